"""A mock TokenSpeed engine over HTTP."""

from collections.abc import Callable
from concurrent.futures import Future
from functools import partial
from typing import Any

import pytest

from reference_server import Gateway, ManualTicks, MockEngine
from smg.rl import RL

from ..support.aside import Aside
from ..support.asking import Answer, ask, post
from ..support.generating import PROMPT, begun, generate, spans
from ..support.waiting import wait_until

TENSORS = {"serialized_named_tensors": ["x"]}
BROADCAST: dict[str, object] = {"names": [], "dtypes": [], "shapes": []}
NOTHING, BOTH = frozenset[str](), frozenset({"weights", "kv_cache"})
GROUP = {"master_address": "x", "master_port": 1, "rank_offset": 1, "world_size": 2}
CONTROL = [
    ("POST", "/pause_generation"),
    ("POST", "/continue_generation"),
    ("POST", "/update_weights_from_disk"),
    ("POST", "/update_weights_from_tensor"),
    ("POST", "/update_weights_from_distributed"),
    ("POST", "/init_weights_update_group"),
    ("POST", "/destroy_weights_update_group"),
    ("GET", "/flush_cache"),
    ("POST", "/release_memory_occupation"),
    ("POST", "/resume_memory_occupation"),
    ("POST", "/abort_request"),
    ("GET", "/get_weight_version"),
    ("POST", "/update_weight_version"),
    ("GET", "/model_info"),
    ("GET", "/v1/loads"),
]


@pytest.fixture
def start() -> Callable[..., MockEngine]:
    return partial(MockEngine, "tokenspeed", model_path="step-1", checkpoints=["step-1", "step-2"])


def done(engine: MockEngine, path: str, body: object = None) -> str:
    """The sentence of a success."""
    answer = post(engine, path, body)
    assert (answer.status, answer.type, answer.json["success"]) == (200, "application/json", True), answer
    return str(answer.json["message"])


def wrong(answer: Answer, status: int = 400) -> str:
    """The sentence of a refusal."""
    assert (answer.status, answer.type, answer.json["success"]) == (status, "application/json", False)
    return str(answer.json["message"])


def pausing(engine: MockEngine, aside: Aside, path: str = "/pause_generation", body: object = None) -> "Future[Any]":
    """A call that waits for what is in flight."""
    future = aside(post, engine, path, body)
    engine.wait_until(lambda: engine.state == "paused")
    return future


class TestPause:
    @pytest.mark.parametrize("body", [None, {}, {"mode": "abort"}, {"mode": 5}, [], b"{bad"])
    def test_any_body_will_do(self, engine: MockEngine, body: object) -> None:
        for _ in range(2):
            assert done(engine, "/pause_generation", body) == "Paused generation."
            assert (engine.state, engine.pause_mode) == ("paused", "wait")
        for _ in range(2):
            assert done(engine, "/continue_generation", body) == "Continued generation."
            assert engine.state == "running"

    def test_it_drains_whatever_mode_it_is_asked_for(self, slow: MockEngine, ticks: ManualTicks, aside: Aside) -> None:
        (asked,) = begun(slow, aside)
        pause = pausing(slow, aside, body={"mode": "abort"})
        new = aside(generate, slow)
        slow.wait_until(lambda: slow.parked == 1)
        ticks.step(7)
        assert not pause.done()
        ticks.step()
        assert pause.result(10).json == {"success": True, "message": "Paused generation."}
        assert asked.result(10)["meta_info"]["finish_reason"]["type"] == "stop"
        done(slow, "/continue_generation")
        ticks.step(8)
        assert len(new.result(10)["output_ids"]) == 8

    @pytest.mark.parametrize("paused", [True, False])
    def test_an_abort_of_all_ends_the_pause_too(self, slow: MockEngine, aside: Aside, paused: bool) -> None:
        asked = begun(slow, aside, 2)
        if paused:
            pausing(slow, aside)
            asked.append(aside(generate, slow))
            slow.wait_until(lambda: slow.parked == 1)
        answer = post(slow, "/abort_request", {"abort_all": True})
        assert (answer.status, answer.json) == (200, {"success": True})
        assert [one.result(10)["meta_info"]["finish_reason"]["type"] for one in asked] == ["abort"] * len(asked)
        assert slow.state == "running"

    def test_an_abort_of_one(self, slow: MockEngine, aside: Aside) -> None:
        (one,) = begun(slow, aside, rid="one")
        begun(slow, aside, rid="other")
        for body in ({"rid": "nobody"}, {}, {"rid": "one"}):
            assert post(slow, "/abort_request", body).json == {"success": True}
        assert one.result(10)["meta_info"]["finish_reason"]["type"] == "abort"
        assert slow.in_flight == 1


class TestRefit:
    def test_from_disk(self, engine: MockEngine) -> None:
        before = generate(engine)
        done(engine, "/pause_generation")
        body = {"model_path": "step-2", "weight_version": "42", "load_format": "auto"}
        assert post(engine, "/update_weights_from_disk", body).json.keys() == {"success", "message"}
        done(engine, "/continue_generation")
        after = generate(engine)
        assert after["text"] != before["text"]
        assert after["meta_info"]["weight_versions"] == spans(("42", 0, 8))
        assert ask(engine, "GET", "/get_weight_version").json == {"weight_version": "42"}
        assert ask(engine, "GET", "/model_info").json == {"model_path": "step-2", "weight_version": "42"}
        with MockEngine("tokenspeed", model_path="step-2", weight_version="42") as other:
            assert generate(other)["text"] == after["text"]

    def test_without_a_version(self, engine: MockEngine) -> None:
        done(engine, "/update_weights_from_disk", {"model_path": "step-2"})
        assert (engine.model_path, engine.weight_version) == ("step-2", "default")

    def test_from_where_nothing_is(self, engine: MockEngine) -> None:
        assert "/no/such" in wrong(post(engine, "/update_weights_from_disk", {"model_path": "/no/such"}), 500)
        assert engine.model_path == "step-1" and generate(engine)

    @pytest.mark.parametrize(
        ("path", "body"), [("/update_weights_from_tensor", TENSORS), ("/update_weights_from_distributed", BROADCAST)]
    )
    @pytest.mark.parametrize(("fields", "flushes"), [({}, 0), ({"flush_cache": True}, 1)])
    def test_from_a_trainer(
        self, engine: MockEngine, path: str, body: dict[str, object], fields: dict[str, object], flushes: int
    ) -> None:
        done(engine, path, {**body, **fields, "weight_version": 8})
        assert (engine.model_path, engine.weight_version, engine.flushes) == ("transfer-1", "8", flushes)

    def test_the_group(self, engine: MockEngine, aside: Aside) -> None:
        init = aside(done, engine, "/init_weights_update_group", GROUP)
        engine.join()
        assert "Succeeded" in init.result(10)
        assert "Succeeded" in done(engine, "/destroy_weights_update_group")

    @pytest.mark.parametrize(
        ("path", "body"),
        [
            ("/update_weights_from_tensor", TENSORS),
            ("/update_weights_from_distributed", BROADCAST),
            ("/init_weights_update_group", GROUP),
        ],
    )
    def test_ranks_take_nothing_from_a_trainer(self, path: str, body: object) -> None:
        with MockEngine("tokenspeed", dp_size=2) as engine:
            assert wrong(post(engine, path, body), 500).startswith("dp_size must be 1")
            assert engine.model_path == "mock-model"

    def test_the_version_alone(self, slow: MockEngine, ticks: ManualTicks, aside: Aside) -> None:
        (asked,) = begun(slow, aside)
        ticks.step(2)
        answer = post(slow, "/update_weight_version", {"new_version": "7"})
        assert answer.json == {"success": True, "message": "Weight version updated to 7", "new_version": "7"}
        ticks.step(6)
        assert asked.result(10)["meta_info"]["weight_versions"] == spans(("default", 0, 2), ("7", 2, 8))

    @pytest.mark.parametrize(
        ("path", "missing"),
        [
            ("/update_weights_from_disk", "model_path"),
            ("/update_weights_from_tensor", "serialized_named_tensors"),
            ("/update_weights_from_distributed", "names"),
            ("/init_weights_update_group", "master_address"),
            ("/update_weight_version", "new_version"),
        ],
    )
    def test_what_must_be_there(self, engine: MockEngine, path: str, missing: str) -> None:
        assert wrong(post(engine, path, {})) == f"Invalid request: '{missing}'"
        assert wrong(post(engine, path, {missing: None})) == f"Invalid request: '{missing}'"
        bodies: list[object] = [None, b"{bad", b"[" * 100_000, []]
        for body in bodies:
            answer = post(engine, path, body)
            assert (answer.status, answer.type) == (500, "text/plain; charset=utf-8")
            assert answer.body == b"Internal Server Error"


class TestFlush:
    def test_get_alone(self, engine: MockEngine) -> None:
        answer = ask(engine, "GET", "/flush_cache")
        assert (answer.status, answer.json) == (200, {"success": True, "message": "Cache flushed."})
        assert engine.flushes == 1
        assert post(engine, "/flush_cache").status == 405

    def test_it_tells_nothing_of_what_came_of_it(self, slow: MockEngine, aside: Aside) -> None:
        begun(slow, aside)
        assert ask(slow, "GET", "/flush_cache").json == {"success": True, "message": "Cache flushed."}
        assert slow.flushes == 0


class TestMemory:
    RELEASE, RESUME = "/release_memory_occupation", "/resume_memory_occupation"

    @pytest.mark.parametrize("body", [None, {}, {"tags": None}, {"tags": ["weights", "kv_cache"]}])
    def test_all(self, engine: MockEngine, body: object) -> None:
        before = generate(engine)["output_ids"]
        assert "Released" in done(engine, self.RELEASE, body)
        assert (engine.asleep, engine.state) == (BOTH, "paused")
        assert "Resumed" in done(engine, self.RESUME, body)
        assert (engine.asleep, engine.state) == (NOTHING, "running")
        assert generate(engine)["output_ids"] == before

    def test_in_parts(self, engine: MockEngine) -> None:
        done(engine, self.RELEASE, {"tags": ["weights"]})
        assert wrong(post(engine, self.RELEASE, {})) == "tags already released: weights"
        done(engine, self.RELEASE, {"tags": ["kv_cache"]})
        done(engine, self.RESUME, {"tags": ["kv_cache"]})
        assert engine.state == "paused"
        said = wrong(post(engine, self.RESUME, {"tags": ["kv_cache", "weights"]}))
        assert said == "tags not released: kv_cache"
        # Without tags it is exactly what sleeps.
        done(engine, self.RESUME)
        assert (engine.asleep, engine.state) == (NOTHING, "running")

    def test_no_tags_at_all_release_nothing_and_pause_all_the_same(self, engine: MockEngine) -> None:
        done(engine, self.RELEASE, {"tags": []})
        assert (engine.asleep, engine.state) == (NOTHING, "paused")

    @pytest.mark.parametrize("path", [RELEASE, RESUME])
    @pytest.mark.parametrize("tags", [["cuda_graph"], "weights", [5]])
    def test_tags_that_are_none(self, engine: MockEngine, path: str, tags: object) -> None:
        assert wrong(post(engine, path, {"tags": tags})).startswith("Invalid request: ")
        assert post(engine, path, b"{bad").status == 500
        assert engine.state == "running"

    def test_a_release_waits_and_there_is_one_at_a_time(
        self, slow: MockEngine, ticks: ManualTicks, aside: Aside
    ) -> None:
        begun(slow, aside)
        release = pausing(slow, aside, self.RELEASE)
        assert "already" in wrong(post(slow, self.RELEASE))
        assert not slow.asleep
        ticks.step(8)
        assert release.result(10).status == 200 and slow.asleep

    def test_a_resume_cancels_it(self, slow: MockEngine, ticks: ManualTicks, aside: Aside) -> None:
        begun(slow, aside)
        release = pausing(slow, aside, self.RELEASE)
        done(slow, "/continue_generation")
        ticks.step(8)
        assert "cancelled" in wrong(release.result(10))
        assert (slow.asleep, slow.state) == (NOTHING, "running")

    def test_a_request_to_a_sleeping_engine_is_its_death(self, engine: MockEngine) -> None:
        done(engine, self.RELEASE)
        done(engine, "/continue_generation")
        with pytest.raises(ConnectionError):
            generate(engine)
        assert engine.state == "dead"


class TestIdentity:
    def test_health(self, engine: MockEngine) -> None:
        for _ in range(2):
            assert ask(engine, "GET", "/health_generate").json == {"status": "ok"}
            assert ask(engine, "GET", "/health").status == 200
            done(engine, "/pause_generation")

    def test_loads(self, ticks: ManualTicks, aside: Aside) -> None:
        with MockEngine("tokenspeed", dp_size=2, ticks=ticks) as engine:
            begun(engine, aside)
            pausing(engine, aside)
            aside(post, engine, "/generate", PROMPT)
            engine.wait_until(lambda: engine.parked == 1)
            first, second = ask(engine, "GET", "/v1/loads").json["loads"]
            assert first.pop("num_pages") > 0
            assert first == {"dp_rank": 0, "num_reqs": 2, "num_waiting_reqs": 1}
            assert second == {"dp_rank": 1, "num_reqs": 0, "num_waiting_reqs": 0, "num_pages": 0}

    @pytest.mark.parametrize(("method", "path"), CONTROL)
    def test_without_a_control_port(self, method: str, path: str) -> None:
        with MockEngine("tokenspeed", control=False) as engine:
            answer = ask(engine, method, path)
            assert answer.status == 503
            assert answer.json == {"error": "weight-sync control plane is unavailable on this server"}
            assert len(generate(engine)["output_ids"]) == 8 and engine.state == "running"

    def test_openai(self, engine: MockEngine) -> None:
        text = post(engine, "/v1/completions", {"prompt": "w1 w2 w3"}).json
        assert text["choices"][0]["text"] == generate(engine)["text"]
        assert text["metadata"]["weight_version"] == "default"
        chat = post(engine, "/v1/chat/completions", {"messages": [{"role": "user", "content": "w1"}]})
        assert chat.json["choices"][0]["finish_reason"] == "stop"
        assert post(engine, "/v1/completions", {}).status == 400

    @pytest.mark.parametrize("path", ["/nope", "/server_info", "/ready"])
    def test_404(self, engine: MockEngine, path: str) -> None:
        answer = ask(engine, "GET", path)
        assert (answer.status, answer.json) == (404, {"detail": "Not Found"})

    def test_a_key(self) -> None:
        with MockEngine("tokenspeed", api_key="secret") as engine:
            assert post(engine, "/pause_generation").status == 401
            assert ask(engine, "GET", "/health").status == 200
            key = {"authorization": "Bearer secret"}
            assert ask(engine, "POST", "/pause_generation", None, key).status == 200

    def test_a_gateway_is_told_what_it_is(self) -> None:
        with (
            MockEngine("tokenspeed", model="m", model_path="step-1") as engine,
            Gateway(enable_rl=True) as gateway,
            RL(gateway.url) as rl,
        ):
            registration = {"url": engine.url, "runtime_type": "tokenspeed"}
            assert ask(gateway.url, "POST", "/workers", registration).status == 202
            wait_until(lambda: len(rl.workers()) == 1, "the engine is registered")
            (worker,) = rl.workers()
            assert (worker.engine, worker.model_id, worker.health) == ("tokenspeed", "m", "ready")
            assert rl.call(worker.id, "pause_generation").status == 200
            assert engine.state == "paused"
