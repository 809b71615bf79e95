"""Workers come and go; inference is passed through to those that are ready."""

import queue
import threading
from collections.abc import Generator
from contextlib import ExitStack

import pytest

from reference_server import Gateway, MockEngine
from reference_server.health import HealthPolicy
from reference_server.httpd.messages import Reply, Request
from reference_server.httpd.server import HttpServer

from ..support.asking import JSON, ask
from ..support.bare_connection import raw
from ..support.scripted_engine import ScriptedEngine, streaming
from ..support.waiting import wait_until

NOBODY = "00000000-0000-7000-8000-000000000000"


def health_of(gateway: Gateway) -> dict[str, str]:
    return {worker.url: worker.health for worker in gateway.registry.all()}


def test_a_worker_is_registered_changed_and_drained() -> None:
    with MockEngine("sglang") as engine, Gateway(enable_rl=True, drain_secs=0.3) as gateway:
        added = ask(gateway.url, "POST", "/workers", {"url": engine.url, "labels": {"role": "policy"}})
        worker_id = added.json["worker_id"]
        assert (added.status, added.headers["location"]) == (202, f"/workers/{worker_id}")
        wait_until(lambda: health_of(gateway) == {engine.url: "ready"}, "it is registered")
        assert ask(gateway.url, "POST", "/workers", {"url": engine.url}).status == 409
        row = ask(gateway.url, "GET", f"/workers/{worker_id}").json
        assert (row["labels"]["role"], row["runtime_type"], row["status"]) == ("policy", "sglang", "ready")
        assert ask(gateway.url, "PATCH", f"/workers/{worker_id}", {"labels": {"zone": "a"}}).status == 202
        labels = ask(gateway.url, "GET", f"/v1/rl/workers/{worker_id}").json["labels"]
        assert (labels["role"], labels["zone"]) == ("policy", "a")
        assert ask(gateway.url, "PUT", f"/workers/{worker_id}", {"labels": {"role": "critic"}}).status == 202
        wait_until(lambda: "zone" not in gateway.registry.all()[0].labels, "the new registration is through")
        assert gateway.registry.all()[0].labels["role"] == "critic"
        assert ask(gateway.url, "DELETE", f"/workers/{worker_id}").status == 202
        assert health_of(gateway) == {engine.url: "draining"}
        assert ask(gateway.url, "GET", f"/v1/rl/workers/{worker_id}/engine/health").status == 200
        wait_until(lambda: health_of(gateway) == {}, "it has drained")
        assert ask(gateway.url, "GET", f"/workers/{worker_id}").status == 404


REFUSED: list[tuple[object, int, str]] = [
    ({"labels": {}}, 422, "missing field `url`"),
    ({"url": "http://h:1", "labels": {"a": 1}}, 422, "labels.a"),
    ({"url": "http://h:1", "labels": []}, 422, "labels"),
    ({"url": "http://h:1", "worker_type": "chef"}, 422, "`chef`"),
    ({"url": "http://h:1", "runtime_type": "magic"}, 422, "`magic`"),
    ({"url": "http://h:1", "priority": 1.5}, 422, "priority"),
    ({"url": 5}, 422, "url"),
    ({"url": ""}, 400, "cannot be empty"),
    ({"url": "HTTP://h:1"}, 400, "lowercase"),
    ({"url": "http://h:99999"}, 400, "port"),
    ({"url": "http://"}, 400, "empty host"),
    ({"url": "ftp://h"}, 400, "scheme"),
    ([], 422, "object"),
    (b"{", 400, "parse"),
]


@pytest.mark.parametrize(("body", "status", "says"), REFUSED, ids=[str(case[0]) for case in REFUSED])
def test_a_registration_that_makes_no_sense_is_refused(body: object, status: int, says: str) -> None:
    with Gateway(enable_rl=True) as gateway:
        answer = ask(gateway.url, "POST", "/workers", body, JSON)
        assert (answer.status, says in answer.body.decode()) == (status, True), answer.body


def test_workers_are_named_by_uuid() -> None:
    with Gateway(enable_rl=True) as gateway:
        for method, body in (("GET", None), ("DELETE", None), ("PATCH", {}), ("PUT", {})):
            assert ask(gateway.url, method, "/workers/nope", body, JSON).status == 400
            assert ask(gateway.url, method, f"/workers/{NOBODY}", body, JSON).status == 404
        wrong = ask(gateway.url, "POST", f"/workers/{NOBODY}")
        assert (wrong.status, wrong.headers["allow"]) == (405, "GET,HEAD,PUT,PATCH,DELETE")
        assert ask(gateway.url, "POST", "/workers", b"{}", {"content-type": "text/plain"}).status == 415


def test_an_engine_that_starts_late_is_registered_when_it_is_there() -> None:
    engine = MockEngine("sglang")
    with engine:
        url = engine.url
    with Gateway(enable_rl=True) as gateway:
        worker_id = ask(gateway.url, "POST", "/workers", {"url": url}).json["worker_id"]
        pending = ask(gateway.url, "GET", f"/workers/{worker_id}").json
        assert (pending["status"], pending["is_healthy"]) == ("pending", False)
        assert ask(gateway.url, "POST", "/workers", {"url": url}).json["code"] == "WORKER_CREATE_IN_PROGRESS"
        assert ask(gateway.url, "GET", "/v1/rl/workers").json["total"] == 0
        with engine:
            wait_until(lambda: health_of(gateway) == {url: "ready"}, "the late engine is registered")
            assert gateway.registry.all()[0].id == worker_id


def test_a_registration_under_way_can_be_taken_back() -> None:
    with Gateway(enable_rl=True) as gateway:
        worker_id = ask(gateway.url, "POST", "/workers", {"url": "http://127.0.0.1:1"}).json["worker_id"]
        assert ask(gateway.url, "DELETE", f"/workers/{worker_id}").status == 202
        assert ask(gateway.url, "GET", f"/workers/{worker_id}").status == 404


def test_a_burst_of_1000_registrations_comes_through_in_order() -> None:
    def answer(request: Request) -> Reply:
        return Reply.of_json(200, {"data": [{"id": "m", "owned_by": "vllm"}], "version": "1"})

    server = HttpServer(answer)
    server.start()
    try:
        with Gateway(enable_rl=True, health_check=False) as gateway:
            urls = [f"{server.url}/engine-{n:04}" for n in range(1000)]
            ids = [ask(gateway.url, "POST", "/workers", {"url": url}).json["worker_id"] for url in urls]
            wait_until(lambda: len(gateway.registry.all()) == 1000, "all are registered")
            assert ids == sorted(ids) == [worker.id for worker in gateway.registry.all()]
            rows = ask(gateway.url, "GET", "/v1/rl/workers").json["workers"]
            assert [row["base_url"] for row in rows] == urls
    finally:
        server.stop()


def test_health_checks_turn_a_dead_worker_not_ready_and_back() -> None:
    engine = MockEngine("sglang")
    policy = HealthPolicy(interval=0.05, timeout=5, failure_threshold=2, success_threshold=1)
    with engine, Gateway(worker_urls=[engine.url], enable_rl=True, health=policy) as gateway:
        url = engine.url
        engine.stop()
        wait_until(lambda: health_of(gateway) == {url: "not_ready"}, "it is not ready")
        refused = ask(gateway.url, "POST", "/generate", {"text": "a"})
        assert (refused.status, refused.json["error"]["code"]) == (503, "no_available_workers")
        assert ask(gateway.url, "GET", "/readiness").status == 503
        engine.start()
        wait_until(lambda: health_of(gateway) == {url: "ready"}, "it is ready again")
        assert ask(gateway.url, "POST", "/generate", {"text": "a"}).status == 200


def test_inference_goes_round_robin_over_the_ready_workers() -> None:
    with ExitStack() as stack:
        engines = [stack.enter_context(MockEngine("sglang", model="m")) for _ in range(3)]
        gateway = stack.enter_context(Gateway(worker_urls=[e.url for e in engines]))
        routed = [ask(gateway.url, "POST", "/generate", {"text": "a"}) for _ in range(6)]
        assert [len(engine.calls("generate")) for engine in engines] == [2, 2, 2]
        assert {a.headers["x-smg-routed-worker-id"] for a in routed} == {e.url for e in engines}
        assert ask(gateway.url, "GET", "/v1/models").json["data"][0]["id"] == "m"
        unknown = ask(gateway.url, "POST", "/v1/completions", {"model": "other", "prompt": "a"})
        assert (unknown.status, unknown.json["error"]["code"]) == (404, "model_not_found")


def test_a_stream_is_passed_on_piece_by_piece() -> None:
    sent: queue.SimpleQueue[bytes | None] = queue.SimpleQueue()

    def pieces() -> Generator[bytes, None, None]:
        while piece := sent.get():
            yield piece

    server = HttpServer(streaming(pieces))
    server.start()
    try:
        with Gateway(worker_urls=[server.url]) as gateway, raw(gateway.url) as caller:
            caller.sendall(b"POST /generate HTTP/1.0\r\n\r\n")
            received = b""
            for piece in (b"data: one\n\n", b"data: two\n\n"):
                sent.put(piece)
                while piece not in received:
                    received += caller.recv(65536)
            sent.put(None)
            assert caller.recv(65536) == b""
            assert b"content-type: text/event-stream\r\n" in received
    finally:
        sent.put(None)
        server.stop()


def test_a_caller_that_leaves_a_generation_frees_its_engine() -> None:
    with ScriptedEngine() as engine, Gateway(worker_urls=[engine.url]) as gateway:
        with raw(gateway.url) as caller:
            caller.sendall(b"POST /generate HTTP/1.1\r\nHost: x\r\n\r\n")
            wait_until(lambda: engine.held == ["/generate"], "the engine generates")
        wait_until(lambda: engine.left == ["/generate"], "the engine sees its caller go")


def test_inference_wants_the_gateway_s_key_when_there_is_one() -> None:
    with MockEngine("sglang") as engine, Gateway(worker_urls=[engine.url], api_key="k") as gateway:
        assert ask(gateway.url, "POST", "/generate", {"text": "a"}).status == 401
        assert ask(gateway.url, "POST", "/generate", {"text": "a"}, {"authorization": "Bearer k"}).status == 200
        assert [ask(gateway.url, "GET", path).status for path in ("/health", "/liveness", "/v1/models")] == [200] * 3


def test_nothing_is_left_of_a_gateway_that_was_stopped() -> None:
    before = threading.active_count()
    with (
        MockEngine("sglang") as engine,
        Gateway(worker_urls=[engine.url], enable_rl=True, prometheus_port=0) as gateway,
    ):
        assert gateway.metrics_url is not None
        assert ask(gateway.metrics_url.removesuffix("/metrics"), "GET", "/metrics").status == 200
    assert threading.active_count() == before
