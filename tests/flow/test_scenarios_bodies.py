"""Public reports about statuses and bodies that lie (rows C), each as a test named after its row."""

import gzip
import json

import pytest

from reference_server import Fleet, Gateway, ManualTicks, MockEngine, faults
from reference_server.httpd.messages import Reply, Request
from reference_server.httpd.server import HttpServer
from smg.rl import VLLM, FanoutError, WeightVersionError, paused

from ..support.aside import Aside
from ..support.asking import ask
from ..support.fleets import fleet_of

ALL = "engine=sglang"
PAUSE, REFIT = "pause_generation", "update_weights_from_disk"
STEP = {"model_path": "/ckpt/step-42", "weight_version": "42"}
PROMPT = {"text": "hello", "sampling_params": {"max_new_tokens": 4}}


def content_type(engine: MockEngine, path: str) -> str | None:
    return dict(engine.calls(path)[-1].headers).get("content-type")


@pytest.mark.parametrize(
    ("body", "ok"),
    [
        ({"success": False, "message": "x"}, False),
        ({"status": "error"}, False),
        ({"status": "ok"}, True),
        ({"success": True}, True),
        (None, True),
        ("", True),
        ([], True),
    ],
    ids=json.dumps,
)
def test_c1_a_200_whose_body_says_that_it_failed_is_not_ok(body: object, ok: bool) -> None:
    with Fleet(sglang=1) as fleet:
        fleet.engines[0].fail(REFIT, faults.Status(200, body), times=1)
        result = fleet.rl.fanout(REFIT, STEP, selector=ALL)
        (answer,) = result.results.values()
        assert (result.succeeded, result.failed, answer.status, answer.body) == (1, [], 200, body)
        assert answer.ok is ok


@pytest.mark.parametrize(
    ("kind", "path"),
    [("sglang", "flush_cache"), ("vllm", "reset_prefix_cache"), ("vllm", "sleep"), ("tokenspeed", "flush_cache")],
)
def test_c1_in_the_words_of_every_engine(kind: str, path: str) -> None:
    with fleet_of(kind, 1) as fleet:
        fleet.engines[0].fail(path, faults.Unsuccessful(), times=1)
        answer = fleet.rl.call(fleet.worker_id(fleet.engines[0]), path, {})
        assert (answer.status, answer.ok) == (200, False)


def test_c3_a_flush_that_is_refused_says_why(aside: Aside) -> None:
    ticks = ManualTicks()
    with Fleet(sglang=1, engine={"ticks": ticks}) as fleet:
        engine, rl = fleet.engines[0], fleet.rl
        asked = aside(rl.fanout, "generate", PROMPT, selector=ALL)
        engine.wait_until(lambda: engine.in_flight == 1)
        rl.fanout(PAUSE, {"mode": "in_place"}, selector=ALL)
        answer = rl.call(fleet.worker_id(engine), "flush_cache", method="POST")
        assert (answer.status, answer.body, answer.ok) == (400, "Flush cache failed.\n", False)
        with pytest.raises(FanoutError, match="Flush cache failed") as failed:
            rl.fanout("flush_cache", selector=ALL)
        assert [(one.error, one.status) for one in failed.value.result.failed] == [("upstream_error", 400)]
        rl.fanout("continue_generation", {}, selector=ALL)
        ticks.step(4)
        assert asked.result(10).succeeded == 1


def test_c4_without_a_body_nothing_is_sent_and_the_error_tells_what_to_send() -> None:
    with Fleet(sglang=1) as fleet:
        with pytest.raises(FanoutError, match=r"HTTP 400.*SGLang wants one, send \{\}"):
            fleet.rl.fanout(PAUSE, selector=ALL)
        (entry,) = fleet.engines[0].calls(PAUSE)
        assert entry.body == b"" and content_type(fleet.engines[0], PAUSE) is None
        assert fleet.engines[0].state == "running"


@pytest.mark.parametrize("body", [{}, [], 0, "", False], ids=repr)
def test_c4_what_is_falsy_is_a_body_too(body: object) -> None:
    with Fleet(sglang=1) as fleet:
        engine = fleet.engines[0]
        result = fleet.rl.fanout(PAUSE, body, selector=ALL, allow_partial=True)
        (entry,) = engine.calls(PAUSE)
        assert (entry.json(), content_type(engine, PAUSE)) == (body, "application/json")
        assert result.succeeded == (1 if body == {} and isinstance(body, dict) else 0)


TEXT = json.dumps({"text": "x" * 500}).encode()
ENCODED: dict[str, Reply] = {
    "chunked": Reply(200, (("content-type", "application/json"),), stream=(part for part in (TEXT[:9], TEXT[9:]))),
    "gzip": Reply(200, (("content-type", "application/json"), ("content-encoding", "gzip")), gzip.compress(TEXT)),
    "hop by hop": Reply(200, (("content-type", "application/json"), ("keep-alive", "timeout=5")), TEXT),
}


@pytest.mark.parametrize("name", ENCODED)
def test_c5_the_gateway_passes_the_bytes_on_and_counts_them_anew(name: str) -> None:
    def engine(request: Request) -> Reply:
        request.body.read(1 << 20)
        if request.path == "/generate":
            return ENCODED[name]
        return Reply.of_json(200, {"data": [{"id": "m", "owned_by": "sglang"}]})

    server = HttpServer(engine)
    server.start()
    try:
        with Gateway(worker_urls=[server.url], enable_rl=True) as gateway:
            got = ask(gateway.url, "POST", "/generate", PROMPT)
            body = gzip.decompress(got.body) if got.headers.get("content-encoding") == "gzip" else got.body
            assert (got.status, body) == (200, TEXT)
            assert got.headers.get("content-length", str(len(got.body))) == str(len(got.body))
            assert "keep-alive" not in got.headers
    finally:
        server.stop()


def test_c7_a_flush_that_never_succeeds_is_no_success() -> None:
    with Fleet(sglang=2) as fleet:
        for engine in fleet.engines:
            engine.fail("flush_cache", faults.Status(400, "Flush cache failed.\n"))
        with pytest.raises(FanoutError, match="2 of 2 workers failed flush_cache"):
            fleet.rl.fanout("flush_cache", {}, selector=ALL)
        result = fleet.rl.fanout("flush_cache", {}, selector=ALL, allow_partial=True)
        assert result.succeeded == 0 and not any(answer.ok for answer in result.results.values())


def test_c8_a_vllm_without_its_control_routes_is_an_error_before_the_block() -> None:
    with Fleet(vllm=1, engine={"dev_mode": False}) as fleet:
        with pytest.raises(FanoutError, match="failed pause: .*HTTP 404"):
            with paused(fleet.rl, "engine=vllm", routes=VLLM):
                pytest.fail("the block ran")


def test_c8_and_the_error_tells_how_to_switch_them_on() -> None:
    with Fleet(vllm=1, engine={"dev_mode": False}) as fleet:
        with pytest.raises(FanoutError) as failed, paused(fleet.rl, "engine=vllm", routes=VLLM):
            pytest.fail("the block ran")
        assert "VLLM_SERVER_DEV_MODE=1" in str(failed.value)


def test_c9_the_version_is_read_wherever_an_engine_tells_it() -> None:
    with Fleet(sglang=2, vllm=1, engine={"weight_version": "7"}) as fleet:
        older = fleet.engines[1]
        older.fail("model_info", faults.Status(404))
        older.fail("get_model_info", faults.Status(200, {"weight_version": "6"}))
        versions = fleet.rl.weight_versions("engine in (sglang, vllm)")
        assert [versions[fleet.worker_id(engine)] for engine in fleet.engines] == ["7", "6", "7"]
        assert older.calls("get_weight_version") and fleet.engines[2].calls("weight_info")


def test_c9_an_engine_that_tells_none_has_no_version_and_no_path_instead() -> None:
    with Fleet(vllm=1, engine={"version": "0.26.0"}) as fleet:
        assert fleet.rl.weight_versions("engine=vllm") == {fleet.worker_id(fleet.engines[0]): None}
        with pytest.raises(WeightVersionError, match="reports no version"):
            fleet.rl.expect_weight_version("engine=vllm", "mock-model")


def test_c10_an_answer_that_is_not_a_number_comes_through() -> None:
    with Fleet(sglang=1) as fleet:
        fleet.engines[0].fail("model_info", faults.NotANumber(), times=2)
        id = fleet.worker_id(fleet.engines[0])
        text = fleet.rl.call(id, "model_info", method="GET").body
        assert isinstance(text, str) and "NaN" in text and "Infinity" in text
        assert fleet.rl.fanout("model_info", selector=ALL, method="GET").results[id].body == text
        fleet.check()


@pytest.mark.parametrize("number", [float("nan"), float("inf")])
def test_c10_a_body_that_is_not_a_number_is_refused_before_anybody_is_called(number: float) -> None:
    with Fleet(sglang=1) as fleet:
        with pytest.raises(ValueError, match="NaN and Infinity cannot"):
            fleet.rl.fanout(REFIT, {**STEP, "scale": number}, selector=ALL)
        assert fleet.gateway.log == () and fleet.engines[0].calls(REFIT) == ()


def test_c11_a_success_without_json_is_text_nothing_or_none() -> None:
    with Fleet(sglang=1) as fleet:

        def body(path: str, sent: object) -> object:
            (answer,) = fleet.rl.fanout(path, sent, selector=ALL).results.values()
            assert answer.ok
            return answer.body

        flushed = body("flush_cache", {})
        assert isinstance(flushed, str) and flushed.startswith("Cache flushed.")
        assert body("abort_request", {"abort_all": True}) == ""
        assert body("release_memory_occupation", {}) is None


MEMORY = {"kv_cache", "weights", "cuda_graph"}


@pytest.mark.parametrize(
    ("kind", "asleep", "state"), [("sglang", MEMORY, "running"), ("tokenspeed", set[str](), "paused")]
)
def test_c12_no_tags_mean_all_to_sglang_and_a_mere_pause_to_tokenspeed(kind: str, asleep: set[str], state: str) -> None:
    with fleet_of(kind, 1) as fleet:
        engine = fleet.engines[0]
        assert fleet.rl.call(fleet.worker_id(engine), "release_memory_occupation", {"tags": []}).ok
        assert engine.calls("release_memory_occupation")[0].json() == {"tags": []}
        assert (set(engine.asleep), engine.state) == (asleep, state)
