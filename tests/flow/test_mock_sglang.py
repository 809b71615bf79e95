"""The control of a mock SGLang engine over HTTP, and what it tells about itself."""

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor

import pytest

from reference_server import ManualTicks, MockEngine

from ..support.aside import Aside
from ..support.asking import JSON, ask
from ..support.bare_connection import raw
from ..support.generating import PROMPT, begun, generate, spans
from ..support.sglang_calls import post, refit

PAUSED = {"message": "Generation paused successfully.", "status": "ok"}
CONTINUED = {"message": "Generation continued successfully.", "status": "ok"}
FLUSHED = (
    "Cache flushed.\nPlease check backend logs for more details. "
    "(When there are running or waiting requests, the operation will not be performed.)\n"
)
NOT_FLUSHED = (
    "Weights were updated, but the cache was not flushed because requests are still running or queued. "
    "Retract or finish them, then call /flush_cache."
)


class TestPause:
    @pytest.mark.parametrize("path", ["/pause_generation", "/continue_generation"])
    @pytest.mark.parametrize(
        ("body", "headers", "message"),
        [
            (None, {}, "Field required"),
            (b"", JSON, "Field required"),
            (b"null", JSON, "Input should be a valid dictionary"),
            (b"[]", JSON, "Input should be a valid dictionary"),
            (b"{bad", JSON, "JSON decode error"),
            (b"[" * 100_000, JSON, "JSON decode error"),
            (b"\xff\xfe", JSON, "JSON decode error"),
            (b"{}", {}, "Input should be a valid dictionary"),
            (b"{}", {"content-type": "text/plain"}, "Input should be a valid dictionary"),
        ],
    )
    def test_what_is_no_json_object_is_a_400(
        self, engine: MockEngine, path: str, body: bytes | None, headers: dict[str, str], message: str
    ) -> None:
        answer = ask(engine, "POST", path, body, headers)
        error = answer.json
        assert (answer.status, answer.type) == (400, "application/json")
        assert error.pop("message").startswith("1 validation error:\n  {'type': ") and message in answer.json["message"]
        assert error == {"object": "error", "type": "Bad Request", "param": None, "code": 400}
        assert engine.state == "running"

    @pytest.mark.parametrize("kind", ["application/json", "Application/JSON; charset=utf-8", "application/x+json"])
    def test_json_by_any_of_its_names(self, engine: MockEngine, kind: str) -> None:
        answer = ask(engine, "POST", "/pause_generation", b"{}", {"content-type": kind})
        assert (answer.status, answer.type, answer.json) == (200, "application/json", PAUSED)
        assert engine.pause_mode == "abort"

    @pytest.mark.parametrize("mode", ["abort", "retract", "in_place"])
    def test_twice_and_continue_twice(self, engine: MockEngine, mode: str) -> None:
        for _ in range(2):
            answer = post(engine, "/pause_generation", {"mode": mode, "unknown": 1})
            assert (answer.status, answer.json) == (200, PAUSED)
            assert (engine.state, engine.pause_mode) == ("paused", mode)
        for _ in range(2):
            answer = post(engine, "/continue_generation", {"torch_empty_cache": "yes"})
            assert (answer.status, answer.json) == (200, CONTINUED)
            assert (engine.state, engine.pause_mode) == ("running", None)

    @pytest.mark.parametrize("mode", ["bogus", "keep", 1, None])
    def test_another_mode_is_a_400(self, engine: MockEngine, mode: object) -> None:
        answer = post(engine, "/pause_generation", {"mode": mode})
        assert answer.status == 400
        assert "Input should be 'abort', 'retract' or 'in_place'" in answer.json["message"]

    def test_what_arrives_meanwhile_is_parked(self, engine: MockEngine, aside: Aside) -> None:
        post(engine, "/pause_generation")
        asked = [
            aside(post, engine, "/generate", PROMPT),
            aside(post, engine, "/v1/completions", {"prompt": "w1"}),
            aside(post, engine, "/v1/chat/completions", {"messages": [{"role": "user", "content": "w1"}]}),
        ]
        engine.wait_until(lambda: engine.parked == 3)
        assert engine.in_flight == 0
        post(engine, "/abort_request", {"abort_all": True})
        assert engine.parked == 3
        post(engine, "/continue_generation")
        assert [one.result(10).status for one in asked] == [200, 200, 200]

    def test_abort(self, slow: MockEngine, ticks: ManualTicks, aside: Aside) -> None:
        (asked,) = begun(slow, aside)
        text = aside(post, slow, "/v1/completions", {"prompt": "w4"})
        chat = aside(post, slow, "/v1/chat/completions", {"messages": [{"role": "user", "content": "w5"}]})
        slow.wait_until(lambda: slow.in_flight == 3)
        ticks.step(3)
        post(slow, "/pause_generation")
        answer = asked.result(10)
        assert answer["meta_info"]["finish_reason"] == {
            "type": "abort",
            "message": "Aborted",
            "status_code": None,
            "err_type": None,
        }
        assert len(answer["text"].split()) == len(answer["output_ids"]) == 3
        assert answer["meta_info"]["weight_versions"] == spans(("1", 0, 3))
        for other in (text, chat):
            assert other.result(10).status == 200
            assert other.result(10).json["choices"][0]["finish_reason"] == "abort"
            assert other.result(10).json["usage"]["completion_tokens"] == 3
        assert post(slow, "/flush_cache").status == 200

    def test_retract(self, slow: MockEngine, ticks: ManualTicks, aside: Aside) -> None:
        (asked,) = begun(slow, aside)
        ticks.step(3)
        post(slow, "/pause_generation", {"mode": "retract"})
        assert post(slow, "/flush_cache").status == 200
        assert refit(slow, "step-2", "42").status == 200
        post(slow, "/continue_generation")
        ticks.step(5)
        meta = asked.result(10)["meta_info"]
        assert meta["weight_versions"] == spans(("1", 0, 3), ("42", 3, 8))
        assert (meta["weight_version"], meta["num_retractions"]) == ("42", 1)

    def test_in_place(self, slow: MockEngine, ticks: ManualTicks, aside: Aside) -> None:
        (asked,) = begun(slow, aside)
        ticks.step(3)
        post(slow, "/pause_generation", {"mode": "in_place"})
        flush = post(slow, "/flush_cache")
        assert (flush.status, flush.type, flush.body) == (400, None, b"Flush cache failed.\n")
        failed = refit(slow, "step-2", "42")
        assert failed.status == 400
        assert failed.json == {"success": False, "message": NOT_FLUSHED, "num_paused_requests": 0}
        # The new weights are in use all the same, though the engine does not say so.
        assert (slow.model_path, slow.weight_version) == ("step-2", "42")
        told = ask(slow, "GET", "/model_info").json
        assert (told["model_path"], told["weight_version"]) == ("step-1", "1")
        post(slow, "/continue_generation")
        ticks.step(5)
        assert asked.result(10)["meta_info"]["weight_versions"] == spans(("1", 0, 3), ("42", 3, 8))

    def test_in_place_without_a_flush(self, slow: MockEngine, aside: Aside, ticks: ManualTicks) -> None:
        (asked,) = begun(slow, aside)
        post(slow, "/pause_generation", {"mode": "in_place"})
        assert refit(slow, "step-2", "42", flush_cache=False).status == 200
        post(slow, "/continue_generation")
        ticks.step(8)
        assert asked.result(10)["meta_info"]["weight_versions"] == spans(("42", 0, 8))

    def test_abort_of_the_retracted_forgets_what_they_had(
        self, slow: MockEngine, ticks: ManualTicks, aside: Aside
    ) -> None:
        (asked,) = begun(slow, aside)
        stream = aside(post, slow, "/generate", {**PROMPT, "stream": True})
        text = aside(post, slow, "/v1/completions", {"prompt": "w4"})
        slow.wait_until(lambda: slow.in_flight == 3)
        ticks.step(3)
        post(slow, "/pause_generation", {"mode": "retract"})
        post(slow, "/abort_request", {"abort_all": True})
        answer, last = asked.result(10), stream.result(10).events[-1]
        reason = {"type": "abort", "message": "Abort in waiting queue"}
        assert answer["meta_info"]["finish_reason"] == last["meta_info"]["finish_reason"] == reason
        assert (answer["text"], answer["output_ids"], answer["meta_info"]["completion_tokens"]) == ("", [], 0)
        assert "prompt_tokens" not in answer["meta_info"]
        assert last["meta_info"]["completion_tokens"] == len(last["output_ids"]) == 3
        assert text.result(10).json["choices"][0]["text"] == ""
        assert text.result(10).json["usage"]["total_tokens"] == 0


class TestRefit:
    def test_paused(self, engine: MockEngine) -> None:
        before = generate(engine)
        post(engine, "/pause_generation")
        answer = refit(engine, "step-2", "42")
        assert (answer.status, answer.type) == (200, "application/json")
        assert answer.json == {
            "success": True,
            "message": "Succeeded to update model weights. Weight version updated to 42.",
            "num_paused_requests": 0,
        }
        post(engine, "/continue_generation")
        after = generate(engine)
        assert after["text"] != before["text"]
        assert (after["meta_info"]["weight_version"], after["meta_info"]["cached_tokens"]) == ("42", 0)
        assert (engine.model_path, engine.weight_version, engine.flushes) == ("step-2", "42", 1)

    def test_without_a_version(self, engine: MockEngine) -> None:
        answer = refit(engine, "step-2")
        assert answer.json["message"] == "Succeeded to update model weights."
        assert (engine.model_path, engine.weight_version) == ("step-2", "1")

    def test_two_engines_with_the_same_weights_agree(self, engine: MockEngine) -> None:
        refit(engine, "step-2", "42")
        with MockEngine("sglang", model_path="step-2", weight_version="42") as other:
            assert generate(other)["text"] == generate(engine)["text"]

    @pytest.mark.parametrize(
        ("body", "message"),
        [
            ({}, "Field required"),
            ({"model_path": "step-2", "weight_version": 43}, "Input should be a valid string"),
            ({"model_path": None}, "Input should be a valid string"),
            ({"model_path": "\ud800"}, "Input should be a valid string"),
            ({"model_path": "step-2", "flush_cache": "maybe"}, "Input should be a valid boolean, unable to"),
            ({"model_path": "step-2", "flush_cache": None}, "Input should be a valid boolean"),
            ({"model_path": 5, "weight_version": 43}, "2 validation errors:\n"),
        ],
    )
    def test_what_does_not_validate(self, engine: MockEngine, body: object, message: str) -> None:
        answer = post(engine, "/update_weights_from_disk", body)
        assert answer.status == 400 and message in answer.json["message"]
        assert engine.weight_version == "1" and engine.model_path == "step-1"

    @pytest.mark.parametrize(
        ("path", "why"),
        [
            ("/no/such/step", "Repo id must be in the form 'repo_name' or 'namespace/repo_name': '/no/such/step'."),
            ("no-such-name", "Cannot find an appropriate cached snapshot folder"),
        ],
    )
    def test_a_checkpoint_that_is_not_there(self, path: str, why: str) -> None:
        with MockEngine("sglang", checkpoints={"step-2"}, model_path="step-1") as engine:
            answer = refit(engine, path, "42")
            assert answer.status == 400 and answer.json["success"] is False
            assert answer.json["message"].startswith(f"Failed to get weights iterator: {why}")
            assert (engine.model_path, engine.weight_version) == ("step-1", "default")
            assert refit(engine, "step-2", "42").status == 200

    def test_unpaused_it_waits_for_those_in_flight(self, slow: MockEngine, ticks: ManualTicks, aside: Aside) -> None:
        (asked,) = begun(slow, aside)
        waiting = aside(refit, slow, "step-2", "42")
        slow.wait_until(lambda: len(slow.calls("update_weights_from_disk")) == 1)
        ticks.step(7)
        assert not waiting.done() and slow.weight_version == "1"
        ticks.step()
        assert waiting.result(10).status == 200
        assert asked.result(10)["meta_info"]["weight_versions"] == spans(("1", 0, 8))

    def test_unpaused_it_does_not_wait_if_it_aborts(self, slow: MockEngine, aside: Aside) -> None:
        (asked,) = begun(slow, aside)
        assert refit(slow, "step-2", "42", abort_all_requests=True).status == 200
        assert asked.result(10)["meta_info"]["finish_reason"]["type"] == "abort"

    def test_data_parallel_ranks_answer_together(self) -> None:
        with MockEngine("sglang", dp_size=2) as engine:
            answer = refit(engine, "step-2", "42").json
            assert answer["num_paused_requests"] == [0, 0]
            done = "Succeeded to update model weights."
            assert answer["message"] == f"{done} | {done} Weight version updated to 42."

    @pytest.mark.parametrize("spare", [True, False])
    def test_the_version_alone(self, slow: MockEngine, ticks: ManualTicks, aside: Aside, spare: bool) -> None:
        (asked,) = begun(slow, aside)
        ticks.step(2)
        body = {"new_version": "7", "abort_all_requests": False} if spare else {"new_version": "7"}
        answer = post(slow, "/update_weight_version", body)
        assert answer.json == {"success": True, "message": "Weight version updated to 7", "new_version": "7"}
        ticks.step(6)
        reason = asked.result(10)["meta_info"]["finish_reason"]["type"]
        assert reason == ("stop" if spare else "abort")
        assert (slow.weight_version, slow.model_path) == ("7", "step-1")

    @pytest.mark.parametrize("body", [{}, {"new_version": 3}, {"new_version": None}])
    def test_the_version_must_be_a_string(self, engine: MockEngine, body: object) -> None:
        assert post(engine, "/update_weight_version", body).status == 400
        assert engine.weight_version == "1"


class TestFlush:
    @pytest.mark.parametrize("method", ["GET", "POST"])
    def test_text_without_a_type(self, engine: MockEngine, method: str) -> None:
        answer = ask(engine, method, "/flush_cache")
        assert (answer.status, answer.type, answer.body.decode()) == (200, None, FLUSHED)
        assert engine.flushes == 1

    def test_busy(self, slow: MockEngine, aside: Aside) -> None:
        begun(slow, aside)
        answer = post(slow, "/flush_cache")
        assert (answer.status, answer.type, answer.body) == (400, None, b"Flush cache failed.\n")
        answer = post(slow, "/flush_cache?timeout=0.01")
        assert (answer.status, answer.type, answer.body) == (400, None, b"Timed out waiting for idle state.")
        assert slow.flushes == 0

    def test_it_waits(self, slow: MockEngine, ticks: ManualTicks, aside: Aside) -> None:
        begun(slow, aside)
        waiting = aside(ask, slow, "GET", "/flush_cache?timeout=1&timeout=1000")
        slow.wait_until(lambda: len(slow.calls("flush_cache")) == 1)
        ticks.step(8)
        assert waiting.result(10).status == 200

    @pytest.mark.parametrize(
        ("timeout", "message"),
        [("-1", "greater than or equal to 0"), ("x", "a valid number"), ("nan", "greater than or equal to 0")],
    )
    def test_a_timeout_that_is_none(self, engine: MockEngine, timeout: str, message: str) -> None:
        answer = ask(engine, "GET", f"/flush_cache?timeout={timeout}")
        assert answer.status == 400 and message in answer.json["message"]
        assert engine.flushes == 0


class TestAbortAndMemory:
    @pytest.mark.parametrize("body", [{}, {"rid": "nobody"}, {"rid": None}, {"rid": ""}])
    def test_an_abort_of_nobody_is_an_empty_200(self, slow: MockEngine, aside: Aside, body: object) -> None:
        begun(slow, aside)
        answer = post(slow, "/abort_request", body)
        assert (answer.status, answer.type, answer.body) == (200, None, b"")
        assert slow.in_flight == 1

    def test_one(self, slow: MockEngine, aside: Aside) -> None:
        (one,) = begun(slow, aside, rid="one")
        begun(slow, aside, rid="one-more")
        post(slow, "/abort_request", {"rid": "one"})
        assert one.result(10)["meta_info"]["finish_reason"]["type"] == "abort"
        assert slow.in_flight == 1

    @pytest.mark.parametrize("body", [{"rid": 3}, {"abort_all": "sure"}])
    def test_an_abort_that_does_not_validate(self, engine: MockEngine, body: object) -> None:
        assert post(engine, "/abort_request", body).status == 400

    @pytest.mark.parametrize("method", ["GET", "POST"])
    @pytest.mark.parametrize("body", [{}, {"tags": None}, {"tags": ["kv_cache"]}])
    def test_memory(self, engine: MockEngine, method: str, body: object) -> None:
        for path in ("/release_memory_occupation", "/resume_memory_occupation"):
            answer = ask(engine, method, path, body)
            assert (answer.status, answer.type, answer.body) == (200, "application/json", b"null")
        assert len(generate(engine)["output_ids"]) == 8

    def test_memory_needs_a_body(self, engine: MockEngine) -> None:
        assert ask(engine, "POST", "/release_memory_occupation").status == 400
        assert post(engine, "/release_memory_occupation", {"tags": "kv_cache"}).status == 400

    def test_what_kills_a_real_engine_leaves_this_one_without_an_answer(self, engine: MockEngine) -> None:
        for path in ("/resume_memory_occupation", "/model_info"):
            with pytest.raises(ConnectionError):
                post(engine, path)
        assert engine.state == "dead"
        assert [entry.status for entry in engine.log] == [0, 0]


class TestIdentity:
    def test_at_the_start(self) -> None:
        with MockEngine("sglang", model="m", tp_size=2, dp_size=3, pp_size=4, version="0.5.15") as engine:
            info = ask(engine, "GET", "/model_info").json
            assert (info["model_path"], info["served_model_name"], info["weight_version"]) == ("m", "m", "default")
            assert info == ask(engine, "GET", "/get_model_info").json
            server = ask(engine, "GET", "/server_info").json
            assert (server["tp_size"], server["dp_size"], server["pp_size"], server["version"]) == (2, 3, 4, "0.5.15")
            assert len(server["internal_states"]) == 3 and server["status"] == "ready"
            assert engine.url.endswith(f":{server['port']}")
            assert server == ask(engine, "GET", "/get_server_info").json
            (model,) = ask(engine, "GET", "/v1/models").json["data"]
            assert (model["id"], model["root"], model["owned_by"]) == ("m", "m", "sglang")
            loads = ask(engine, "GET", "/v1/loads?include=core").json
            assert [load["dp_rank"] for load in loads["loads"]] == [0, 1, 2]

    def test_after_a_refit(self) -> None:
        with MockEngine("sglang", model="m", model_path="step-1") as engine:
            refit(engine, "step-2", "42")
            info = ask(engine, "GET", "/model_info").json
            assert (info["model_path"], info["weight_version"]) == ("step-2", "42")
            assert (info["served_model_name"], info["tokenizer_path"]) == ("step-2", "step-1")
            (model,) = ask(engine, "GET", "/v1/models").json["data"]
            assert (model["id"], model["root"]) == ("step-2", "step-2")
            server = ask(engine, "GET", "/server_info").json
            assert (server["model_path"], server["weight_version"], server["served_model_name"]) == (
                "step-1",
                "default",
                "m",
            )
            (internal,) = server["internal_states"]
            assert (internal["model_path"], internal["weight_version"]) == ("step-2", "42")

    def test_loads(self, aside: Aside, ticks: ManualTicks) -> None:
        with MockEngine("sglang", dp_size=2, ticks=ticks) as engine:
            begun(engine, aside, 3)
            running = [load["num_running_reqs"] for load in ask(engine, "GET", "/v1/loads").json["loads"]]
            assert running == [2, 1]
            post(engine, "/pause_generation", {"mode": "retract"})
            waiting = [load["num_waiting_reqs"] for load in ask(engine, "GET", "/v1/loads").json["loads"]]
            assert waiting == [2, 1]

    @pytest.mark.parametrize("path", ["/health", "/health_generate"])
    def test_health(self, engine: MockEngine, path: str) -> None:
        for _ in range(2):
            answer = ask(engine, "GET", path)
            assert (answer.status, answer.type, answer.body) == (200, None, b"")
            post(engine, "/pause_generation")

    @pytest.mark.parametrize("path", ["/health", "/health_generate"])
    def test_health_by_a_token(self, path: str, aside: Aside) -> None:
        with MockEngine("sglang", health_generation=True, health_timeout=0.01) as engine:
            assert ask(engine, "GET", path).status == 200
            post(engine, "/pause_generation")
            assert ask(engine, "GET", path).status == 503
        with MockEngine("sglang", health_generation=True, health_timeout=1000.0) as engine:
            post(engine, "/pause_generation")
            asked = aside(ask, engine, "GET", path)
            engine.wait_until(lambda: len(engine.calls(path)) == 1)
            post(engine, "/continue_generation")
            assert asked.result(10).status == 200

    @pytest.mark.parametrize("path", ["/ready", "/ping"])
    def test_ready(self, engine: MockEngine, path: str) -> None:
        assert ask(engine, "GET", path).status == 200
        post(engine, "/pause_generation")
        assert (ask(engine, "GET", path).status, ask(engine, "GET", path).body) == (503, b"")


class TestRoutes:
    @pytest.mark.parametrize("path", ["/nope", "/get_weight_version", "/update_weights_from_ipc", "/nope/"])
    def test_404(self, engine: MockEngine, path: str) -> None:
        answer = post(engine, path)
        assert (answer.status, answer.type, answer.json) == (404, "application/json", {"detail": "Not Found"})

    @pytest.mark.parametrize(
        ("method", "path", "allow"),
        [
            ("GET", "/pause_generation", "POST"),
            ("DELETE", "/flush_cache", "GET, POST"),
            ("GET", "/generate", "POST, PUT"),
            ("POST", "/model_info", "GET"),
            ("OPTIONS", "/health", "GET"),
        ],
    )
    def test_405(self, engine: MockEngine, method: str, path: str, allow: str) -> None:
        answer = ask(engine, method, path)
        assert (answer.status, answer.json) == (405, {"detail": "Method Not Allowed"})
        assert answer.headers["allow"] == allow

    def test_a_last_slash_is_redirected(self, engine: MockEngine) -> None:
        answer = ask(engine, "GET", "/pause_generation/?a=b")
        assert (answer.status, answer.type, answer.body) == (307, None, b"")
        assert answer.headers["location"] == f"{engine.url}/pause_generation?a=b"
        assert ask(engine, "POST", "/flush_cache/").headers["location"] == f"{engine.url}/flush_cache"

    def test_percent_escapes(self, engine: MockEngine) -> None:
        assert ask(engine, "GET", "/%6Dodel_info").status == 200

    def test_a_body_that_cannot_be_read(self, engine: MockEngine) -> None:
        head = b"POST /flush_cache HTTP/1.1\r\nhost: x\r\ntransfer-encoding: chunked\r\n\r\nzz\r\n"
        with raw(engine) as connection:
            connection.sendall(head)
            assert connection.recv(100).startswith(b"HTTP/1.1 400 ")
        assert engine.flushes == 0


class TestKey:
    @pytest.fixture
    def guarded(self) -> Iterator[MockEngine]:
        with MockEngine("sglang", api_key="secret") as engine:
            yield engine
            engine.check()

    @pytest.mark.parametrize("path", ["/pause_generation", "/generate", "/v1/models", "/ping", "/nope", "/nope/"])
    @pytest.mark.parametrize("key", [None, "Bearer other", "secret", "Basic secret"])
    def test_without_the_key(self, guarded: MockEngine, path: str, key: str | None) -> None:
        answer = ask(guarded, "POST", path, {}, {} if key is None else {"authorization": key})
        assert (answer.status, answer.json) == (401, {"error": "Unauthorized"})
        assert guarded.state == "running"

    @pytest.mark.parametrize("key", ["Bearer secret", "bearer secret"])
    def test_with_the_key(self, guarded: MockEngine, key: str) -> None:
        assert ask(guarded, "POST", "/pause_generation", {}, {"authorization": key}).status == 200

    @pytest.mark.parametrize("path", ["/health", "/health_generate", "/ready"])
    def test_open_routes(self, guarded: MockEngine, path: str) -> None:
        assert ask(guarded, "GET", path).status == 200

    def test_the_key_is_nowhere_to_be_seen(self, guarded: MockEngine) -> None:
        ask(guarded, "GET", "/v1/models", None, {"Authorization": "Bearer secret"})
        ask(guarded, "GET", "/v1/models")
        assert [entry.authorized for entry in guarded.log] == [True, False]
        for shown in (guarded, guarded.log, guarded._options, vars(guarded.log[0])):
            assert "secret" not in repr(shown)


class TestHandedWeights:
    """As recorded from SGLang 0.5.23 with a gloo group."""

    GROUP = {"master_address": "127.0.0.1", "master_port": 29600, "rank_offset": 1, "world_size": 2}
    TENSOR = {"names": ["a"], "dtypes": ["float32"], "shapes": [[1]]}

    def test_a_broadcast_needs_a_frame_then_a_group(self, engine: MockEngine) -> None:
        outside = post(engine, "/update_weights_from_distributed", self.TENSOR)
        assert (outside.status, outside.json) == (
            400,
            {
                "success": False,
                "message": "update_weights_from_distributed must run between"
                " begin_weight_update() and end_weight_update()",
            },
        )
        assert post(engine, "/begin_weight_update", {}).json == {"success": True, "message": "Success"}
        nowhere = post(engine, "/update_weights_from_distributed", {**self.TENSOR, "group_name": "nope"})
        assert (nowhere.status, nowhere.json) == (
            400,
            {
                "success": False,
                "message": "Failed to receive weights: Group nope not in []. "
                "Please call `init_weights_update_group` first.",
            },
        )
        assert post(engine, "/end_weight_update", {}).json == {"success": True, "message": "Success"}

    def test_init_and_broadcast_block_until_the_trainer_does_its_part(self, engine: MockEngine) -> None:
        with ThreadPoolExecutor(1) as pool:
            joining = pool.submit(post, engine, "/init_weights_update_group", self.GROUP)
            engine.wait_until(lambda: bool(engine.calls("init_weights_update_group")))
            assert not joining.done()
            engine.join()
            assert joining.result().json == {
                "success": True,
                "message": "Succeeded to initialize custom process group.",
            }
            post(engine, "/begin_weight_update", {})
            sending = pool.submit(
                post, engine, "/update_weights_from_distributed", {**self.TENSOR, "weight_version": "77"}
            )
            engine.wait_until(lambda: bool(engine.calls("update_weights_from_distributed")))
            assert (sending.done(), engine.weight_version) == (False, "1")
            engine.join()
            assert sending.result().json == {
                "success": True,
                "message": "Succeeded to update parameter online. Weight version updated to 77.",
            }
        assert engine.weight_version == "77"

    def test_a_group_is_destroyed_once(self, engine: MockEngine) -> None:
        answer = post(engine, "/destroy_weights_update_group", {})
        assert (answer.status, answer.json) == (
            400,
            {"success": False, "message": "The group to be destroyed does not exist."},
        )

    def test_more_than_one_data_parallel_rank_trips_an_assertion(self) -> None:
        with MockEngine("sglang", dp_size=2) as engine:
            for path, body in (
                ("/init_weights_update_group", self.GROUP),
                ("/update_weights_from_distributed", self.TENSOR),
                ("/update_weights_from_tensor", {"serialized_named_tensors": ["AAAA"]}),
            ):
                answer = post(engine, path, body)
                assert (answer.status, answer.type, answer.body) == (
                    500,
                    "text/plain; charset=utf-8",
                    b"Internal Server Error",
                )

    def test_an_older_engine_has_no_frame(self) -> None:
        with MockEngine("sglang", version="0.5.15") as engine:
            assert post(engine, "/begin_weight_update", {}).status == 404
            tensors = {"serialized_named_tensors": ["AAAA"], "weight_version": "5"}
            assert post(engine, "/update_weights_from_tensor", tensors).status == 200
            assert engine.weight_version == "5"
