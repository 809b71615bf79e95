"""Calls and fan-outs through the gateway when engines or callers misbehave."""

import json
import socket
import threading
from contextlib import ExitStack
from pathlib import Path

import pytest

from reference_server import Gateway
from reference_server.events import CallEnded, FanoutEnded

from ..support.asking import ask
from ..support.bare_connection import raw
from ..support.scripted_engine import ScriptedEngine
from ..support.waiting import wait_until

FANOUT = "/v1/rl/engine/{}?selector=engine%3Dsglang"


def request_bytes(path: str) -> bytes:
    return f"POST {path} HTTP/1.1\r\nHost: x\r\nContent-Length: 0\r\n\r\n".encode()


def test_a_caller_that_hangs_up_cancels_the_calls_in_flight_and_starts_no_other() -> None:
    events: list[CallEnded | FanoutEnded] = []
    with ExitStack() as stack:
        engines = [stack.enter_context(ScriptedEngine()) for _ in range(3)]
        gateway = stack.enter_context(
            Gateway(
                worker_urls=[e.url for e in engines], enable_rl=True, rl_fanout_concurrency=2, observers=[events.append]
            )
        )
        with raw(gateway.url) as caller:
            caller.sendall(request_bytes(FANOUT.format("x")))
            wait_until(lambda: sum(len(e.held) for e in engines) == 2, "two engines are called")
        wait_until(lambda: sum(len(e.left) for e in engines) == 2, "both calls are cancelled")
        assert ask(gateway.url, "GET", "/v1/rl/workers").json["total"] == 3
        assert sum(len(e.held) for e in engines) == 2
        assert events == []
        assert gateway.metrics.page() == ""


def test_hanging_engines_and_a_full_window_delay_no_other_fan_out() -> None:
    with ScriptedEngine(free=frozenset(["/continue_generation"])) as engine:
        with (
            Gateway(worker_urls=[engine.url], enable_rl=True, rl_fanout_concurrency=1) as gateway,
            ExitStack() as stack,
        ):
            for _ in range(60):
                stack.enter_context(raw(gateway.url)).sendall(request_bytes(FANOUT.format("stuck")))
            wait_until(lambda: len(engine.held) == 60, "60 fan-outs hang")
            resumed = ask(gateway.url, "POST", FANOUT.format("continue_generation"), {})
            assert (resumed.status, resumed.json["succeeded"]) == (200, 1)


def test_200_generations_in_flight_delay_no_pause() -> None:
    with ScriptedEngine(free=frozenset(["/pause_generation"])) as engine:
        with Gateway(worker_urls=[engine.url], enable_rl=True) as gateway, ExitStack() as stack:
            for _ in range(200):
                stack.enter_context(raw(gateway.url)).sendall(request_bytes("/generate"))
            wait_until(lambda: len(engine.held) == 200, "200 generations run")
            assert ask(gateway.url, "POST", FANOUT.format("pause_generation"), {}).status == 200
            assert len(engine.left) == 0


def test_an_engine_that_does_not_even_accept_is_a_timeout() -> None:
    with socket.create_server(("127.0.0.1", 0), backlog=0) as full, ExitStack() as stack:
        address = full.getsockname()
        for _ in range(4):  # fill the queue of connections that nobody accepts
            waiting = stack.enter_context(socket.socket())
            waiting.setblocking(False)
            waiting.connect_ex(address)
        with Gateway(enable_rl=True, rl_control_timeout_secs=0.2) as gateway:
            url = f"http://127.0.0.1:{address[1]}"
            from reference_server.registry import Worker

            gateway.registry.add([Worker("w", url, "sglang")])
            answer = ask(gateway.url, "GET", "/v1/rl/workers/w/engine/health")
    assert (answer.status, answer.json["error"]) == (504, "upstream_timeout")
    assert answer.json["message"] == f"upstream `{url}` timed out after 0.2s"


def test_a_deadline_releases_the_engine() -> None:
    with ScriptedEngine() as engine:
        with Gateway(worker_urls=[engine.url], enable_rl=True, rl_control_timeout_secs=0.2) as gateway:
            answer = ask(gateway.url, "POST", FANOUT.format("x"))
            assert [f["error"] for f in answer.json["failed"]] == ["upstream_timeout"]
            wait_until(lambda: engine.left == ["/x"], "the engine sees its caller go")


def test_the_environment_s_proxy_is_not_for_engines(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("http_proxy", "HTTP_PROXY", "ALL_PROXY"):
        monkeypatch.setenv(name, "http://127.0.0.1:9")
    with ScriptedEngine() as engine, Gateway(worker_urls=[engine.url], enable_rl=True) as gateway:
        engine.release()
        assert ask(gateway.url, "POST", FANOUT.format("x")).status == 200


def test_stopping_ends_calls_that_hang_and_leaves_no_thread() -> None:
    before = threading.active_count()
    with ScriptedEngine() as engine:
        gateway = Gateway(worker_urls=[engine.url], enable_rl=True).start()
        wait_until(lambda: len(gateway.registry.all()) == 1, "the worker is registered")
        with raw(gateway.url) as control, raw(gateway.url) as inference:
            control.sendall(request_bytes(FANOUT.format("x")))
            inference.sendall(request_bytes("/generate"))
            wait_until(lambda: len(engine.held) == 2, "both requests hang")
            gateway.stop()
            wait_until(lambda: len(engine.left) == 2, "the engine sees both go")
        gateway.stop()
    assert threading.active_count() == before


def test_two_gateways_live_side_by_side() -> None:
    with ScriptedEngine() as engine:
        engine.release()
        with Gateway(worker_urls=[engine.url], enable_rl=True) as one, Gateway(enable_rl=True) as other:
            assert ask(one.url, "GET", "/v1/rl/workers").json["total"] == 1
            assert ask(other.url, "GET", "/v1/rl/workers").json["total"] == 0


def test_without_enable_rl_there_is_no_control_plane() -> None:
    with ScriptedEngine() as engine, Gateway(worker_urls=[engine.url]) as gateway:
        answers = [ask(gateway.url, m, "/v1/rl/workers") for m in ("GET", "POST", "OPTIONS")]
        assert [(a.status, a.body, "x-request-id" in a.headers) for a in answers] == [(404, b"", False)] * 3


def test_a_worker_key_reaches_its_engine_and_nobody_else(tmp_path: Path) -> None:
    with ScriptedEngine() as engine:
        engine.release()
        with Gateway(enable_rl=True, api_key="gateway-key") as gateway:
            _, tried = gateway.register(engine.url, api_key="worker-key")
            assert tried.wait(30)
            key = {"authorization": "Bearer gateway-key"}
            assert ask(gateway.url, "POST", FANOUT.format("x"), {}, key).status == 200
            shown = [ask(gateway.url, "GET", path, None, key).body for path in ("/workers", "/v1/rl/workers")]
            assert not any(b"key" in body for body in shown)
            assert "worker-key" not in repr(gateway.registry.all())
            assert "gateway-key" not in repr((gateway, gateway.config))


def test_a_report_lists_workers_by_id_whatever_their_addresses() -> None:
    with ExitStack() as stack:
        engines = [stack.enter_context(ScriptedEngine()) for _ in range(4)]
        gateway = stack.enter_context(Gateway(enable_rl=True))
        ids = []
        for engine in sorted(engines, key=lambda e: e.url, reverse=True):
            engine.release()
            worker_id, tried = gateway.register(engine.url)
            assert tried.wait(30)
            ids.append(worker_id)
        body = ask(gateway.url, "POST", FANOUT.format("x")).body
        assert list(json.loads(body)["results"]) == ids == sorted(ids)
