"""The control of a mock vLLM engine over HTTP, and what it tells about itself."""

from collections.abc import Callable
from concurrent.futures import Future
from typing import Any, ClassVar

import pytest

from reference_server import Gateway, ManualTicks, MockEngine
from smg.rl import RL

from ..support.aside import Aside
from ..support.asking import JSON, Answer, address_of, ask, post
from ..support.generating import spans
from ..support.vllm_calls import ASKED, begun, message, ok, start_vllm, text
from ..support.waiting import wait_until

PAUSED, RESUMED = {"status": "paused"}, {"status": "resumed"}
DEAD = "EngineCore encountered an issue. See stack trace (above) for the root cause."


@pytest.fixture
def start() -> Callable[..., MockEngine]:
    return start_vllm


def old(**options: Any) -> MockEngine:
    return MockEngine("vllm", model="m", model_path="step-1", version="0.26.0", **options)


def get(engine: MockEngine, path: str) -> Any:
    answer = ask(engine, "GET", path)
    assert (answer.status, answer.type) == (200, "application/json")
    return answer.json


def choice(future: "Future[Any]") -> Any:
    return future.result(10)["choices"][0]


def reload(engine: MockEngine, path: str) -> Answer:
    return post(engine, "/collective_rpc", {"method": "reload_weights", "kwargs": {"weights_path": path}})


class TestPause:
    @pytest.mark.parametrize("mode", ["abort", "wait", "keep"])
    def test_twice_and_resume_twice(self, engine: MockEngine, mode: str) -> None:
        for _ in range(2):
            assert ok(engine, f"/pause?mode={mode}") == PAUSED
            assert (engine.pause_mode, get(engine, "/is_paused")) == (mode, {"is_paused": True})
            assert get(engine, "/is_sleeping") == {"is_sleeping": True}
            assert ask(engine, "GET", "/health").status == 200
        for _ in range(2):
            assert ok(engine, "/resume") == RESUMED
            assert (engine.state, get(engine, "/is_paused")) == ("running", {"is_paused": False})
        assert get(engine, "/is_sleeping") == {"is_sleeping": False}

    def test_it_reads_no_body(self, engine: MockEngine) -> None:
        assert ok(engine, "/pause", {"mode": "keep"}) == PAUSED
        assert engine.pause_mode == "abort"

    @pytest.mark.parametrize(
        ("query", "param", "sentence"),
        [
            ("mode=bogus", "query.mode", "Input should be 'abort', 'wait' or 'keep'"),
            ("mode=in_place", "query.mode", "Input should be 'abort', 'wait' or 'keep'"),
            ("clear_cache=maybe", "query.clear_cache", "Input should be a valid boolean, unable to interpret input"),
        ],
    )
    def test_what_does_not_validate(self, engine: MockEngine, query: str, param: str, sentence: str) -> None:
        said = message(post(engine, f"/pause?{query}"), 400, "Bad Request", param)
        assert said.startswith("1 validation error:\n  {'type': '") and sentence in said
        assert engine.state == "running"

    @pytest.mark.parametrize(("query", "flushes"), [("", 1), ("?clear_cache=false", 0), ("?mode=keep", 0)])
    def test_the_cache(self, engine: MockEngine, query: str, flushes: int) -> None:
        ok(engine, f"/pause{query}")
        assert engine.flushes == flushes

    def test_abort(self, slow: MockEngine, ticks: ManualTicks, aside: Aside) -> None:
        asked = begun(slow, aside)
        ticks.step(3)
        ok(slow, "/pause")
        ended = choice(asked)
        assert (ended["finish_reason"], len(ended["text"].split())) == ("abort", 3)
        assert ended["weight_versions"] == spans(("default", 0, 3))

    def test_wait(self, slow: MockEngine, ticks: ManualTicks, aside: Aside) -> None:
        asked = begun(slow, aside)
        pause = aside(ok, slow, "/pause?mode=wait")
        slow.wait_until(lambda: slow.state == "paused")
        assert post(slow, "/v1/completions", ASKED).status == 503
        ticks.step(7)
        assert not pause.done()
        ticks.step()
        assert pause.result(10) == PAUSED
        assert choice(asked)["finish_reason"] == "stop"

    def test_keep(self, slow: MockEngine, ticks: ManualTicks, aside: Aside) -> None:
        asked = begun(slow, aside)
        ticks.step(3)
        ok(slow, "/pause?mode=keep")
        new = aside(ok, slow, "/v1/completions", {**ASKED, "return_weight_versions": True})
        slow.wait_until(lambda: slow.parked == 1)
        ok(slow, "/update_weight_version", {"new_version": "2"})
        ticks.step(3)
        ok(slow, "/resume")
        ticks.step(8)
        assert choice(asked)["weight_versions"] == spans(("default", 0, 3), ("2", 3, 8))
        assert choice(new)["weight_versions"] == spans(("2", 0, 8))

    @pytest.mark.parametrize("mode", ["abort", "wait"])
    @pytest.mark.parametrize("path", ["/v1/completions", "/v1/chat/completions"])
    @pytest.mark.parametrize("stream", [True, False])
    def test_what_arrives_meanwhile_is_refused(self, engine: MockEngine, mode: str, path: str, stream: bool) -> None:
        ok(engine, f"/pause?mode={mode}")
        answer = post(engine, path, {**ASKED, "messages": [{"role": "user", "content": "w1"}], "stream": stream})
        said = message(answer, 503, "ServiceUnavailableError")
        assert said == "Generation is paused. Please retry after it resumes."
        assert engine.parked == 0
        ok(engine, "/resume")
        assert text(engine)

    @pytest.mark.parametrize("version", ["0.26.0", "0.32.0"])
    @pytest.mark.parametrize("mode", ["abort", "wait", "keep"])
    def test_older_engines_keep_it_waiting_and_serve_it_with_the_new_weights(
        self, aside: Aside, version: str, mode: str
    ) -> None:
        with MockEngine("vllm", model="m", model_path="step-1", version=version) as engine:
            before = text(engine)
            ok(engine, f"/pause?mode={mode}")
            asked = aside(text, engine)
            engine.wait_until(lambda: engine.parked == 1)
            reload(engine, "step-2")
            post(engine, "/reset_prefix_cache")
            assert not asked.done()
            ok(engine, "/resume")
            assert asked.result(10) == text(engine) != before
            engine.check()

    def test_an_older_name_for_wait(self, aside: Aside, ticks: ManualTicks) -> None:
        with old(ticks=ticks) as engine:
            asked = begun(engine, aside)
            pause = aside(ok, engine, "/pause?wait_for_inflight_requests=true")
            engine.wait_until(lambda: engine.pause_mode == "wait")
            ticks.step(8)
            assert pause.result(10) == PAUSED and choice(asked)["finish_reason"] == "stop"


class TestAbort:
    def test_all(self, slow: MockEngine, ticks: ManualTicks, aside: Aside) -> None:
        asked = [begun(slow, aside), begun(slow, aside)]
        ticks.step(2)
        assert ok(slow, "/abort_requests", {}) == {"status": "aborted", "aborted": 2}
        assert [choice(one)["finish_reason"] for one in asked] == ["abort", "abort"]
        assert ok(slow, "/abort_requests", {"request_ids": []}) == {"status": "aborted", "aborted": 0}

    def test_one(self, slow: MockEngine, aside: Aside) -> None:
        mine, other = begun(slow, aside, request_id="mine"), begun(slow, aside)
        for id in ("mine", "cmpl-mine"):
            assert ok(slow, "/abort_requests", {"request_ids": [id]})["aborted"] == 1
            assert slow.in_flight == 2
        ok(slow, "/abort_requests", {"request_ids": ["cmpl-mine-0"]})
        assert mine.result(10)["id"] == "cmpl-mine" and choice(mine)["finish_reason"] == "abort"
        assert not other.done()

    def test_in_a_pause_it_finds_the_frozen_and_the_queued(self, slow: MockEngine, aside: Aside) -> None:
        frozen = begun(slow, aside)
        ok(slow, "/pause?mode=keep")
        queued = aside(ok, slow, "/v1/completions", ASKED)
        slow.wait_until(lambda: slow.parked == 1)
        assert ok(slow, "/abort_requests", {})["aborted"] == 2
        for one in (frozen, queued):
            assert (choice(one)["finish_reason"], choice(one)["text"]) == ("abort", "")

    @pytest.mark.parametrize(
        ("body", "sentence"),
        [
            (None, "Invalid JSON format"),
            (b"{", "Invalid JSON format"),
            (b"[" * 100_000, "Invalid JSON format"),
            ([], "Request body must be a JSON object"),
        ],
    )
    def test_a_body_that_is_no_object(self, engine: MockEngine, body: object, sentence: str) -> None:
        assert message(post(engine, "/abort_requests", body), 400, "Bad Request") == sentence

    def test_ids_that_are_none(self, engine: MockEngine) -> None:
        answer = post(engine, "/abort_requests", {"request_ids": 5})
        assert answer.status == 500
        assert answer.json == {"error": "Failed to abort requests: 'int' object is not iterable"}
        assert ok(engine, "/abort_requests", {"request_ids": "abc"})["aborted"] == 3


class TestRefit:
    def test_from_disk(self, engine: MockEngine) -> None:
        before = text(engine)
        ok(engine, "/pause")
        assert reload(engine, "step-2").json == {"results": [None]}
        ok(engine, "/resume")
        assert text(engine) != before
        # The pause has emptied the cache, not the refit.
        assert engine.flushes == 1
        assert (engine.model_path, get(engine, "/weight_info")) == ("step-2", {"weight_version": "default"})

    def test_unpaused_it_is_at_once_and_leaves_a_stale_cache(
        self, slow: MockEngine, ticks: ManualTicks, aside: Aside
    ) -> None:
        asked = begun(slow, aside)
        ticks.step(4)
        assert reload(slow, "step-2").status == 200
        assert slow.in_flight == 1 and slow.model_path == "step-2" and slow.flushes == 0
        ticks.step(4)
        assert choice(asked)["finish_reason"] == "stop"

    @pytest.mark.parametrize("arguments", [{}, {"kwargs": {}}, {"kwargs": None}])
    def test_without_a_path_it_is_the_last_one(self, engine: MockEngine, arguments: dict[str, object]) -> None:
        reload(engine, "step-2")
        assert ok(engine, "/collective_rpc", {"method": "reload_weights", **arguments}) == {"results": [None]}
        assert engine.model_path == "step-2"

    def test_from_where_nothing_is(self, engine: MockEngine) -> None:
        said = message(reload(engine, "/no/such"), 500, "InternalServerError")
        assert "Repo id must be in the form 'repo_name' or 'namespace/repo_name': '/no/such'." in said
        assert engine.model_path == "step-1" and ask(engine, "GET", "/health").status == 200
        assert reload(engine, "step-2").status == 200
        assert text(engine)

    def test_and_then_a_request_is_its_death(self, engine: MockEngine) -> None:
        reload(engine, "/no/such")
        assert message(post(engine, "/v1/completions", ASKED), 500, "InternalServerError") == DEAD
        assert engine.state == "dead"
        with pytest.raises(ConnectionError):
            ask(engine, "GET", "/health")

    @pytest.mark.parametrize("stream", [True, False])
    def test_a_stop_is_no_death(self, aside: Aside, ticks: ManualTicks, stream: bool) -> None:
        with MockEngine("vllm", ticks=ticks) as engine:
            asked = aside(post, engine, "/v1/completions", {"prompt": "w1", "stream": stream})
            engine.wait_until(lambda: engine.in_flight == 1)
        with pytest.raises(Exception, match=r"Remote end closed|IncompleteRead"):
            asked.result(10)
        assert engine.log[0].status == (200 if stream else 0)
        engine.check()

    @pytest.mark.parametrize(
        ("body", "status", "kind", "sentence"),
        [
            (None, 400, "Bad Request", "JSON decode error: Expecting value: line 1 column 1 (char 0)"),
            (b"{x", 400, "Bad Request", "JSON decode error: Expecting property name"),
            ([], 400, "Bad Request", "Request body must be a JSON object"),
            ({}, 400, "Bad Request", "Missing 'method' in request body"),
            ({"method": "nope"}, 500, "InternalServerError", "'Worker' object has no attribute 'nope'"),
            ({"method": 5}, 500, "InternalServerError", "the first argument must be callable"),
            (
                {"method": "reload_weights", "kwargs": {"nope": 1}},
                500,
                "InternalServerError",
                "got an unexpected keyword argument 'nope'",
            ),
            ({"method": "reload_weights", "kwargs": "x"}, 500, "InternalServerError", "must be a mapping, not str"),
        ],
    )
    def test_a_call_that_fails(self, engine: MockEngine, body: object, status: int, kind: str, sentence: str) -> None:
        assert sentence in message(post(engine, "/collective_rpc", body), status, kind)
        assert text(engine)

    def test_results_are_text_one_of_each_worker(self) -> None:
        with MockEngine("vllm", tp_size=2, pp_size=2) as engine:
            call = b'{"method": "determine_available_memory"}'
            answer = ask(engine, "POST", "/collective_rpc", call, {"content-type": "text/plain"})
            assert answer.json == {"results": [str(1 << 30)] * 4}
            assert ok(engine, "/collective_rpc", {"method": "check_health"}) == {"results": [None] * 4}

    def test_the_version_alone(self, slow: MockEngine, ticks: ManualTicks, aside: Aside) -> None:
        asked = begun(slow, aside)
        ticks.step(2)
        assert ok(slow, "/update_weight_version", {"new_version": "7"}) == {"success": True, "new_version": "7"}
        assert get(slow, "/weight_info") == {"weight_version": "7"} and slow.weight_version == "7"
        ticks.step(6)
        assert choice(asked)["weight_versions"] == spans(("default", 0, 2), ("7", 2, 8))

    @pytest.mark.parametrize(
        ("body", "headers", "param"),
        [
            (None, {}, "body.new_version"),
            ({}, {}, "body.new_version"),
            ({"new_version": None}, {}, "body.new_version"),
            ({"new_version": 7}, {}, "body.new_version"),
            ([], {}, "body.new_version"),
            (b'{"new_version": "7"}', {"content-type": "text/plain"}, "body.new_version"),
            (b"{x", JSON, "body.1"),
        ],
    )
    def test_a_version_that_is_none(
        self, engine: MockEngine, body: object, headers: dict[str, str], param: str
    ) -> None:
        message(ask(engine, "POST", "/update_weight_version", body, headers), 400, "Bad Request", param)
        assert engine.weight_version == "default"

    def test_the_prefix_cache(self, slow: MockEngine, aside: Aside) -> None:
        asked = begun(slow, aside)
        assert ok(slow, "/reset_prefix_cache") == {"success": False}
        assert slow.flushes == 0
        assert ok(slow, "/reset_prefix_cache?reset_running_requests=true") == {"success": True}
        ok(slow, "/pause?mode=keep")
        assert ok(slow, "/reset_prefix_cache?reset_external=true") == {"success": True}
        assert slow.flushes == 2 and not asked.done()
        said = message(
            post(slow, "/reset_prefix_cache?reset_running_requests=x"),
            400,
            "Bad Request",
            "query.reset_running_requests",
        )
        assert "valid boolean" in said

    @pytest.mark.parametrize("path", ["/reset_mm_cache", "/reset_encoder_cache"])
    def test_other_caches(self, engine: MockEngine, path: str) -> None:
        answer = post(engine, path)
        assert (answer.status, answer.type, answer.body) == (200, None, b"")


class TestTransfer:
    UPDATE: ClassVar[dict[str, object]] = {"update_info": {"names": [], "dtype_names": [], "shapes": []}}

    def test_weights_from_a_trainer(self, slow: MockEngine, ticks: ManualTicks, aside: Aside) -> None:
        init = aside(ok, slow, "/init_weight_transfer_engine", {"init_info": {}})
        slow.wait_until(lambda: len(slow.log) == 1)
        assert not init.done()
        slow.join()
        assert init.result(10) == {"message": "Weight transfer initialized"}
        asked = begun(slow, aside)
        ticks.step(2)
        assert ok(slow, "/start_weight_update") == {"message": "Weight update started"}
        for _ in range(2):
            assert ok(slow, "/update_weights", self.UPDATE) == {"message": "Weights updated"}
        assert slow.model_path == "transfer-1"
        assert ok(slow, "/finish_weight_update", {"weight_version": "8"}) == {"message": "Weight update finished"}
        ticks.step(6)
        assert choice(asked)["weight_versions"] == spans(("default", 0, 2), ("8", 2, 8))
        assert ok(slow, "/start_draft_weight_update") == {"message": "Draft weight update started"}
        assert ok(slow, "/finish_weight_update") == {"message": "Weight update finished"}
        assert "was started" in message(post(slow, "/update_weights", self.UPDATE), 500, "InternalServerError")
        assert get(slow, "/weight_info") == {"weight_version": "8"}
        assert ok(slow, "/shutdown_weight_transfer_engine") == {"message": "Weight transfer shut down"}
        assert post(slow, "/start_weight_update").status == 500

    def test_engines_that_were_handed_the_same_agree(self, aside: Aside) -> None:
        said = set()
        for _ in range(2):
            with MockEngine("vllm", model="m") as engine:
                init = aside(ok, engine, "/init_weight_transfer_engine", {"init_info": {}})
                engine.join()
                init.result(10)
                ok(engine, "/start_weight_update")
                ok(engine, "/update_weights", self.UPDATE)
                said.add(text(engine))
        assert len(said) == 1

    @pytest.mark.parametrize(
        ("path", "body"),
        [
            ("/start_weight_update", None),
            ("/start_draft_weight_update", None),
            ("/update_weights", UPDATE),
            ("/finish_weight_update", {}),
        ],
    )
    def test_without_a_trainer(self, engine: MockEngine, path: str, body: object) -> None:
        assert "Weight transfer not configured." in message(post(engine, path, body), 500, "InternalServerError")

    def test_without_a_start(self, engine: MockEngine, aside: Aside) -> None:
        init = aside(ok, engine, "/init_weight_transfer_engine", {"init_info": {}})
        engine.join()
        init.result(10)
        for path, body in (("/update_weights", self.UPDATE), ("/finish_weight_update", None)):
            assert "No weight update was started." in message(post(engine, path, body), 500, "InternalServerError")

    @pytest.mark.parametrize(
        ("path", "param"),
        [("/init_weight_transfer_engine", "body.init_info"), ("/update_weights", "body.update_info")],
    )
    @pytest.mark.parametrize("value", [None, "x"])
    def test_what_does_not_validate(self, engine: MockEngine, path: str, param: str, value: object) -> None:
        message(post(engine, path, {param.removeprefix("body."): value}), 400, "Bad Request", param)
        message(post(engine, path), 400, "Bad Request", param)

    def test_nobody_to_join(self, engine: MockEngine) -> None:
        with pytest.raises(TimeoutError, match=r"waited for no trainer within 0.01 s; <MockEngine vllm"):
            engine.join(0.01)


class TestSleep:
    @pytest.mark.parametrize("level", [1, 2])
    def test_a_wake_up_in_parts_pauses_until_the_last(self, engine: MockEngine, level: int) -> None:
        assert ok(engine, f"/sleep?level={level}") == {"status": "sleeping", "level": level}
        assert ok(engine, f"/sleep?level={level}") == {"status": "sleeping", "level": level}
        assert engine.asleep == {"weights", "kv_cache"} and engine.pause_mode == "abort"
        assert engine.flushes == 1
        assert post(engine, "/v1/completions", ASKED).status == 503
        assert ask(engine, "GET", "/health").status == 200
        assert ok(engine, "/wake_up?tags=weights") == {"status": "sleeping", "tags": ["weights"]}
        assert ok(engine, "/wake_up?tags=weights,kv_cache") == {"status": "sleeping", "tags": ["weights,kv_cache"]}
        assert get(engine, "/is_paused") == {"is_paused": True} and get(engine, "/is_sleeping")["is_sleeping"]
        assert reload(engine, "step-2").status == 200
        assert ok(engine, "/wake_up?tags=kv_cache") == {"status": "awake", "tags": ["kv_cache"]}
        assert (engine.state, get(engine, "/is_sleeping")) == ("running", {"is_sleeping": False})
        assert text(engine)

    def test_repeated_tags(self, engine: MockEngine) -> None:
        ok(engine, "/sleep")
        answer = ok(engine, "/wake_up?tags=weights&tags=kv_cache")
        assert answer == {"status": "awake", "tags": ["weights", "kv_cache"]}

    def test_a_wake_up_ends_the_pause_around_it(self, engine: MockEngine) -> None:
        ok(engine, "/pause")
        ok(engine, "/sleep?mode=keep")
        assert ok(engine, "/wake_up") == {"status": "awake", "tags": None}
        assert get(engine, "/is_paused") == {"is_paused": False}

    def test_level_0_is_a_pause(self, engine: MockEngine) -> None:
        ok(engine, "/sleep?level=0")
        assert (engine.state, engine.asleep) == ("paused", frozenset())
        assert get(engine, "/is_sleeping") == {"is_sleeping": True}
        assert ok(engine, "/wake_up?tags=scheduling") == {"status": "awake", "tags": ["scheduling"]}
        assert engine.state == "running"

    @pytest.mark.parametrize(("level", "kept"), [(1, True), (2, False)])
    def test_what_is_left_of_the_weights(self, engine: MockEngine, level: int, kept: bool) -> None:
        before = text(engine)
        ok(engine, f"/sleep?level={level}")
        ok(engine, "/wake_up")
        assert (text(engine) == before) is kept and (engine.model_path == "step-1") is kept
        ok(engine, "/collective_rpc", {"method": "reload_weights"})
        ok(engine, "/reset_prefix_cache")
        assert text(engine) == before

    def test_what_was_kept_goes_on(self, slow: MockEngine, ticks: ManualTicks, aside: Aside) -> None:
        asked = begun(slow, aside)
        ticks.step(3)
        ok(slow, "/sleep?mode=keep")
        ok(slow, "/wake_up")
        ticks.step(5)
        assert choice(asked)["finish_reason"] == "stop"

    def test_what_is_waited_for_ends(self, slow: MockEngine, ticks: ManualTicks, aside: Aside) -> None:
        asked = begun(slow, aside)
        sleep = aside(ok, slow, "/sleep?mode=wait")
        slow.wait_until(lambda: slow.state == "paused")
        assert not slow.asleep
        ticks.step(8)
        assert sleep.result(10)["status"] == "sleeping" and slow.asleep
        assert choice(asked)["finish_reason"] == "stop"

    @pytest.mark.parametrize("stream", [True, False])
    def test_a_request_to_a_sleeping_engine_that_was_resumed_is_its_death(
        self, engine: MockEngine, stream: bool
    ) -> None:
        ok(engine, "/sleep")
        assert ok(engine, "/resume") == RESUMED
        assert get(engine, "/is_paused") == {"is_paused": False}
        assert get(engine, "/is_sleeping") == {"is_sleeping": True}
        if stream:
            with pytest.raises(Exception, match="IncompleteRead"):
                post(engine, "/v1/completions", {**ASKED, "stream": True})
        else:
            assert message(post(engine, "/v1/completions", ASKED), 500, "InternalServerError") == DEAD
        assert engine.state == "dead"

    def test_a_refit_of_sleeping_weights_never_returns(self, engine: MockEngine) -> None:
        ok(engine, "/sleep")
        with pytest.raises(ConnectionError):
            reload(engine, "step-2")
        assert engine.state == "dead"

    @pytest.mark.parametrize(
        ("query", "param", "sentence"),
        [
            ("level=3", "query.level", "less than or equal to 2"),
            ("level=-1", "query.level", "greater than or equal to 0"),
            ("level=True", "query.level", "unable to parse string as an integer"),
            ("mode=retract", "query.mode", "Input should be 'abort', 'wait' or 'keep'"),
        ],
    )
    def test_what_does_not_validate(self, engine: MockEngine, query: str, param: str, sentence: str) -> None:
        assert sentence in message(post(engine, f"/sleep?{query}"), 400, "Bad Request", param)
        assert engine.state == "running"

    def test_the_cache_alone(self, slow: MockEngine, aside: Aside) -> None:
        path, failed = "/release_kv_cache_memory", "Call to release_kv_cache_memory method failed: "
        said = message(post(slow, path), 500, "InternalServerError")
        assert said == f"{failed}release_kv_cache_memory() requires a completed pause first"
        begun(slow, aside)
        aside(ok, slow, "/pause?mode=wait")
        slow.wait_until(lambda: slow.state == "paused")
        assert post(slow, path).status == 500
        ok(slow, "/pause?mode=keep")
        assert ok(slow, path) == {"status": "kv_cache_released"}
        assert slow.asleep == {"kv_cache"}
        said = message(post(slow, path), 500, "InternalServerError")
        assert said == f"{failed}release_kv_cache_memory() requires all executor memory to be resident"

    def test_older_engines_say_nothing_and_resume_too_early(self) -> None:
        with old() as engine:
            for path in ("/sleep", "/wake_up?tags=weights", "/reset_prefix_cache"):
                answer = post(engine, path)
                assert (answer.status, answer.type, answer.body) == (200, None, b"")
            assert (engine.state, engine.asleep) == ("running", frozenset({"kv_cache"}))
            assert get(engine, "/is_sleeping") == {"is_sleeping": True}
            post(engine, "/wake_up")
            ok(engine, "/pause")
            assert get(engine, "/is_sleeping") == {"is_sleeping": False}


class TestIdentity:
    def test_at_the_start(self) -> None:
        with MockEngine("vllm", model="m", model_path="step-1", tp_size=2, dp_size=3, pp_size=4) as engine:
            assert get(engine, "/version") == {"version": "0.33.0"}
            (model,) = get(engine, "/v1/models")["data"]
            assert (model["id"], model["root"], model["owned_by"]) == ("m", "step-1", "vllm")
            assert model["permission"][0]["object"] == "model_permission"
            assert get(engine, "/get_world_size") == {"world_size": 24}
            assert get(engine, "/get_world_size?include_dp=false") == {"world_size": 8}
            assert get(engine, "/weight_info") == {"weight_version": "default"}
            info = get(engine, "/server_info")
            assert info.keys() == {"vllm_config", "vllm_env", "system_env"} and "model='step-1'" in info["vllm_config"]
            config = get(engine, "/server_info?config_format=json")["vllm_config"]
            assert config["parallel_config"]["tensor_parallel_size"] == 2
            refused = ask(engine, "GET", "/server_info?config_format=x")
            said = message(refused, 400, "Bad Request", "query.config_format")
            assert "Input should be 'text' or 'json'" in said

    def test_a_refit_changes_no_name(self, engine: MockEngine) -> None:
        reload(engine, "step-2")
        (model,) = get(engine, "/v1/models")["data"]
        assert (model["id"], model["root"]) == ("m", "step-1")

    def test_load(self, slow: MockEngine, aside: Aside) -> None:
        begun(slow, aside)
        assert get(slow, "/load") == {"server_load": 1}

    @pytest.mark.parametrize(("method", "path"), [("GET", "/health"), ("GET", "/ping"), ("POST", "/ping")])
    def test_health(self, engine: MockEngine, method: str, path: str) -> None:
        for route in ("/pause", "/sleep", "/resume"):
            post(engine, route)
            answer = ask(engine, method, path)
            assert (answer.status, answer.type, answer.body) == (200, None, b"")

    @pytest.mark.parametrize(("dev_mode", "key"), [(True, None), (False, "secret")])
    def test_a_gateway_knows_it(self, dev_mode: bool, key: str | None) -> None:
        with (
            MockEngine("vllm", model="m", dev_mode=dev_mode, api_key=key) as engine,
            Gateway(worker_urls=[engine.url], enable_rl=True, api_key=key) as gateway,
            RL(gateway.url, api_key=key) as rl,
        ):
            wait_until(lambda: len(rl.workers()) == 1, "the engine is registered")
            (worker,) = rl.workers()
            assert (worker.engine, worker.engine_version, worker.health) == ("vllm", "0.33.0", "ready")
            result = rl.call(worker.id, "pause", params={"mode": "keep"})
            if dev_mode:
                assert (result.status, result.body, engine.pause_mode) == (200, PAUSED, "keep")
            else:
                assert (result.status, result.body) == (404, {"detail": "Not Found"})


class TestRoutes:
    @pytest.mark.parametrize(
        "path",
        ["/pause", "/resume", "/sleep", "/wake_up", "/collective_rpc", "/abort_requests", "/reset_prefix_cache"],
    )
    def test_without_dev_mode_there_is_no_control(self, path: str) -> None:
        with MockEngine("vllm", dev_mode=False) as engine:
            answer = post(engine, path)
            assert (answer.status, answer.json) == (404, {"detail": "Not Found"})
            assert ask(engine, "GET", "/server_info").status == 404
            assert ask(engine, "GET", "/version").status == ask(engine, "GET", "/load").status == 200

    @pytest.mark.parametrize("path", ["/nope", "/", "/generate", "/flush_cache", "/pause_generation", "/model_info"])
    def test_404(self, engine: MockEngine, path: str) -> None:
        answer = post(engine, path)
        assert (answer.status, answer.json) == (404, {"detail": "Not Found"})

    @pytest.mark.parametrize(
        "path", ["/weight_info", "/update_weight_version", "/abort_requests", "/release_kv_cache_memory"]
    )
    def test_what_older_engines_do_not_have(self, path: str) -> None:
        with old() as engine:
            assert post(engine, path).status == 404
            assert get(engine, "/is_paused") == {"is_paused": False}

    @pytest.mark.parametrize(("method", "path"), [("GET", "/pause"), ("POST", "/is_paused"), ("POST", "/health")])
    def test_405(self, engine: MockEngine, method: str, path: str) -> None:
        answer = ask(engine, method, path)
        assert (answer.status, answer.json) == (405, {"detail": "Method Not Allowed"})

    def test_a_last_slash_is_redirected(self, engine: MockEngine) -> None:
        answer = post(engine, "/pause/?mode=keep")
        assert (answer.status, answer.body) == (307, b"") and address_of(engine)[1]
        assert answer.headers["location"] == f"{engine.url}/pause?mode=keep"

    def test_a_key_guards_what_generates_and_nothing_else(self) -> None:
        with MockEngine("vllm", api_key="secret") as engine:
            for path in ("/v1/models", "/v1/completions", "/v1/nope", "/v2/x", "/inference/v1/generate"):
                answer = post(engine, path)
                assert (answer.status, answer.json) == (401, {"error": "Unauthorized"})
            assert ok(engine, "/pause") == PAUSED
            assert get(engine, "/version") and post(engine, "/nope").status == 404
            assert ask(engine, "GET", "/v1/models", None, {"authorization": "Bearer secret"}).status == 200
