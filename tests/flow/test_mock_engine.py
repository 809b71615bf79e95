"""A mock engine as its tests see it: options, start and stop, log, failures."""

import http.client
import io
import socket
import threading
from collections.abc import Iterator
from typing import Any

import pytest

from reference_server import ManualTicks, MockEngine
from reference_server.engines.state.clock import Steps
from reference_server.httpd.messages import Body, Caller, Request
from reference_server.httpd.request_log import Log

from ..support.aside import Aside
from ..support.asking import ask, connect
from ..support.bare_connection import hung
from ..support.generating import PROMPT, begun, generate
from ..support.sglang_calls import post, refit


class TestLog:
    def test_what_arrived_in_order(self, engine: MockEngine) -> None:
        post(engine, "/pause_generation", {"mode": "retract"})
        ask(engine, "GET", "/flush_cache?timeout=3", None, {"X-Trace": "7"})
        ask(engine, "GET", "/nope")
        pause, flush, nope = engine.log
        assert [entry.number for entry in engine.log] == [0, 1, 2]
        assert (pause.method, pause.path, pause.status) == ("POST", "/pause_generation", 200)
        assert pause.json() == {"mode": "retract"}
        assert (flush.method, flush.query, flush.body) == ("GET", "timeout=3", b"")
        assert ("X-Trace", "7") in flush.headers
        assert (nope.status, nope.hung_up) == (404, False)
        assert engine.calls("pause_generation") == engine.calls("/pause_generation") == (pause,)

    def test_who_waits_is_told(self) -> None:
        class Told(threading.Condition):
            times = 0

            def notify_all(self) -> None:
                self.times += 1
                super().notify_all()

        changed = Told()
        log = Log(changed)
        number = log.arrived("GET", "/", "", [], b"")
        assert changed.times == 1
        log.answered(number, 200, hung_up=False)
        assert changed.times == 2

    def test_what_waits_has_no_status_yet(self, slow: MockEngine, ticks: ManualTicks, aside: Aside) -> None:
        (asked,) = begun(slow, aside)
        assert slow.log[0].status is None
        ticks.step(8)
        asked.result(10)
        assert slow.log[0].status == 200

    @pytest.mark.parametrize("paused", [True, False])
    @pytest.mark.parametrize("stream", [True, False])
    def test_a_caller_that_hangs_up_is_noticed(
        self, slow: MockEngine, ticks: ManualTicks, paused: bool, stream: bool
    ) -> None:
        if paused:
            post(slow, "/pause_generation")
        with hung(slow, "/generate", {**PROMPT, "stream": stream}):
            slow.wait_until(lambda: slow.parked + slow.in_flight == 1)
        slow.wait_until(lambda: slow.calls("generate")[0].hung_up)
        assert slow.calls("generate")[0].status == (200 if stream else 0)
        assert slow.parked == slow.in_flight == 0
        post(slow, "/continue_generation")
        ticks.step()
        assert slow.in_flight == 0

    def test_a_caller_that_hangs_up_amid_a_fast_stream_is_noticed(self) -> None:
        with MockEngine("sglang") as engine:
            endless = {**PROMPT, "stream": True, "sampling_params": {"max_new_tokens": 10**9, "ignore_eos": True}}
            with hung(engine, "/generate", endless) as connection:
                assert connection.recv(1000)
            engine.wait_until(lambda: engine.calls("generate")[0].hung_up)
            engine.wait_until(lambda: engine.in_flight == 0)
            engine.check()

    def test_a_stream_that_is_never_sent_is_noticed(self, slow: MockEngine) -> None:
        body = b'{"text": "w1", "stream": true}'
        ours, theirs = socket.socketpair()
        with ours, theirs:
            headers = (("content-type", "application/json"),)
            source = io.BufferedReader(io.BytesIO(body))
            read = Body(source, len(body), lambda: None)
            reply = slow._answer(Request("POST", "/generate", headers, read, Caller(ours)))
            assert slow.in_flight == 1 and reply.stream is not None
            reply.stream.close()
        assert slow.in_flight == 0 and slow.log[0].hung_up

    def test_what_was_begun_for_a_caller_that_hangs_up_is_done_all_the_same(
        self, slow: MockEngine, ticks: ManualTicks, aside: Aside
    ) -> None:
        begun(slow, aside)
        with hung(slow, "/update_weights_from_disk", {"model_path": "step-2", "weight_version": "42"}):
            slow.wait_until(lambda: len(slow.calls("update_weights_from_disk")) == 1)
        ticks.step(8)
        slow.wait_until(lambda: slow.weight_version == "42")
        slow.wait_until(lambda: slow.calls("update_weights_from_disk")[0].hung_up)


class TestLife:
    def test_start_and_stop_as_often_as_you_like(self) -> None:
        threads = threading.active_count()
        engine = MockEngine("sglang")
        engine.stop()
        for _ in range(2):
            assert engine.start() is engine
        url = engine.url
        assert ask(engine, "GET", "/health").status == 200
        for _ in range(2):
            engine.stop()
        assert threading.active_count() == threads
        with pytest.raises(ConnectionRefusedError):
            ask(engine, "GET", "/health")
        assert engine.url == url and len(engine.log) == 1

    def test_a_stop_wakes_all_who_wait(self, aside: Aside) -> None:
        engine = MockEngine("sglang", ticks=ManualTicks(), health_generation=True, health_timeout=1000.0).start()
        running = aside(post, engine, "/generate", PROMPT)
        stream = aside(post, engine, "/generate", {**PROMPT, "stream": True})
        engine.wait_until(lambda: engine.in_flight == 2)
        waiting = [running, stream, aside(refit, engine, "step-2"), aside(post, engine, "/flush_cache?timeout=1000")]
        engine.wait_until(lambda: len(engine.log) == 4)
        post(engine, "/pause_generation", {"mode": "retract"})
        waiting += [aside(post, engine, "/generate", PROMPT), aside(ask, engine, "GET", "/health")]
        engine.wait_until(lambda: len(engine.log) == 7)
        idle = connect(engine)
        idle.request("GET", "/v1/models")
        idle.getresponse().read()
        engine.stop()
        for one in waiting:
            with pytest.raises((ConnectionError, http.client.IncompleteRead)):
                one.result(10)
        idle.close()
        assert not [one for one in threading.enumerate() if one.name.startswith(("listen-", "connection-", "engine-"))]
        engine.check()

    def test_a_stop_does_not_wait_for_the_next_tick(self, aside: Aside) -> None:
        with MockEngine("sglang", tick_seconds=1000.0) as engine:
            asked = aside(post, engine, "/generate", PROMPT)
            engine.wait_until(lambda: engine.in_flight == 1)
        with pytest.raises(ConnectionError):
            asked.result(10)
        assert not [one for one in threading.enumerate() if one.name.startswith("engine-")]

    def test_the_ticks_are_told_of_a_stop(self) -> None:
        told = []

        class Told(ManualTicks):
            def stop(self, engine: Steps) -> None:
                super().stop(engine)
                told.append(engine.wait_for_work())

        with MockEngine("sglang", ticks=Told()):
            assert told == []
        assert told == [False]

    def test_it_starts_again_as_new_on_the_same_port(self) -> None:
        with MockEngine("sglang", model_path="step-1") as engine:
            url = engine.url
            refit(engine, "step-2", "42")
            post(engine, "/pause_generation")
        assert (engine.state, engine.weight_version) == ("paused", "42")
        with engine:
            assert engine.url == url
            assert (engine.state, engine.weight_version, engine.model_path) == ("running", "default", "step-1")
            assert len(generate(engine)["output_ids"]) == 8
            assert len(engine.log) == 3

    def test_no_url_before_the_start(self) -> None:
        engine = MockEngine("sglang")
        with pytest.raises(RuntimeError, match="has no port before it is started"):
            engine.url  # noqa: B018
        assert "not started" in repr(engine)

    def test_repr(self, engine: MockEngine) -> None:
        assert repr(engine) == f"<MockEngine sglang {engine.url} running, weight_version='1', in_flight=0>"

    def test_a_failure_inside_is_a_500_and_raised_by_check(self, monkeypatch: pytest.MonkeyPatch) -> None:
        def broken(mode: str) -> None:
            raise ArithmeticError("broken")

        with MockEngine("sglang") as other:
            monkeypatch.setattr(other._state, "pause", broken)
            answer = post(other, "/pause_generation")
            assert (answer.status, answer.body) == (500, b"Internal Server Error")
            assert answer.type == "text/plain; charset=utf-8"
            with pytest.raises(ArithmeticError):
                other.check()
        with pytest.raises(ArithmeticError):
            other.check()

    def test_a_failure_of_the_server_is_raised_by_check(self, monkeypatch: pytest.MonkeyPatch) -> None:
        def broken(*arguments: object) -> int:
            raise ArithmeticError("broken")

        with MockEngine("sglang") as engine:
            monkeypatch.setattr(engine._log, "arrived", broken)
            assert ask(engine, "GET", "/health").status == 500
            with pytest.raises(ArithmeticError):
                engine.check()
        with pytest.raises(ArithmeticError):
            engine.check()

    def test_a_failure_inside_a_stream_is_raised_by_check(self, monkeypatch: pytest.MonkeyPatch) -> None:
        def broken(*arguments: object) -> Iterator[object]:
            raise ArithmeticError("broken")

        with MockEngine("sglang") as engine:
            monkeypatch.setattr(engine._state, "stream", broken)
            with pytest.raises(http.client.IncompleteRead):
                post(engine, "/generate", {**PROMPT, "stream": True})
            with pytest.raises(ArithmeticError):
                engine.check()
            engine.wait_until(lambda: engine.in_flight == 0)

    def test_waiting_in_vain(self, engine: MockEngine) -> None:
        with pytest.raises(TimeoutError, match="not true within 0.01 s; <MockEngine sglang"):
            engine.wait_until(lambda: engine.in_flight == 1, 0.01)

    @pytest.mark.parametrize(
        ("options", "sentence"),
        [
            ({"model": ""}, "model must not be empty"),
            ({"model_path": ""}, "model_path must not be empty"),
            ({"version": ""}, "version must not be empty"),
            ({"tp_size": 0}, "tp_size must be 1 or more, not 0"),
            ({"dp_size": -1}, "dp_size must be 1 or more, not -1"),
            ({"pp_size": 0}, "pp_size must be 1 or more, not 0"),
            ({"generation_ticks": 0}, "generation_ticks must be 1 or more, not 0"),
            ({"tick_seconds": -0.1}, "tick_seconds must be 0 or more seconds, not -0.1"),
            ({"health_timeout": float("nan")}, "health_timeout must be 0 or more seconds, not nan"),
            ({"port": 70000}, "port must be between 0 and 65535, not 70000"),
            ({"api_key": ""}, "api_key must not be empty"),
            ({"checkpoints": "step-1"}, "checkpoints must be a collection of paths"),
        ],
    )
    def test_options_no_engine_can_have(self, options: dict[str, Any], sentence: str) -> None:
        with pytest.raises(ValueError, match=sentence):
            MockEngine("sglang", **options)

    def test_an_unknown_kind(self) -> None:
        with pytest.raises(ValueError, match="unknown kind of engine 'slang'; known: sglang"):
            MockEngine("slang")
