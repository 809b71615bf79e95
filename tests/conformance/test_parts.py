"""The scripted engine, the caller, and how a session ends: what the vectors' truth rests on."""

import socket
import sys
import threading
import time
from collections.abc import Callable, Iterator

import pytest

from . import gateway
from .caller import Answer, Exchange, exchange, request_bytes
from .engine import Call, Engine
from .gateway import NotReady, free_port
from .names import Names
from .session import Session
from .vectors import Reply, Step
from .view import peak, response


@pytest.fixture
def engine() -> Iterator[Engine]:
    running = Engine("e0", "sglang", free_port(), {"tp_size": 4})
    yield running
    running.close()


def ask(engine: Engine, step: Step) -> tuple[int, bytes]:
    answer = exchange(engine.port, step).answer
    assert answer is not None
    return answer.status, answer.body


def wait_until(happened: Callable[[], bool]) -> None:
    end = time.monotonic() + 10
    while not happened():
        assert time.monotonic() < end, "it never happened"
        time.sleep(0.005)


def test_an_engine_records_what_arrives_byte_for_byte(engine: Engine) -> None:
    ask(engine, {"method": "PuT", "target": "/%7Ex?&a", "headers": [("X-A", "1"), ("x-a", "2")], "body_b64": "/w=="})
    call = engine.calls()[0]
    assert (call.method, call.target, call.path) == ("PuT", "/%7Ex?&a", "/%7Ex")
    assert (call.framing, call.body) == ("length", b"\xff")
    assert call.headers[:3] == [("Host", f"127.0.0.1:{engine.port}"), ("X-A", "1"), ("x-a", "2")]


def test_a_chunked_body_arrives_whole(engine: Engine) -> None:
    ask(engine, {"method": "POST", "target": "/x", "body": "abcde", "framing": "chunked"})
    assert (engine.calls()[0].framing, engine.calls()[0].body) == ("chunked", b"abcde")


def test_rules_come_first_and_wear_out(engine: Engine) -> None:
    engine.begin(
        [
            {"path": "/health", "method": "POST", "reply": {"status": 500}},
            {"path": "/health", "times": 1, "reply": {"status": 201, "json": [1]}},
        ]
    )
    assert ask(engine, {"target": "/health"}) == (201, b"[1]")
    assert ask(engine, {"target": "/health"}) == (200, b"")
    assert ask(engine, {"target": "/nothing"})[0] == 404
    assert len(engine.calls()) == 3
    engine.begin([])
    assert engine.calls() == []


@pytest.mark.parametrize(
    ("reply", "status", "body"),
    [
        ({"body": "abc", "framing": "chunked"}, 200, b"abc"),
        ({"body": "", "framing": "chunked"}, 200, b""),
        ({"body": "abc", "framing": "close"}, 200, b"abc"),
        ({"body": "abcdef", "lie": -3}, 200, b"abc"),
        ({"fill": ("é", 2), "prefix": "<", "suffix": ">"}, 200, "<éé>".encode()),
        ({"status": 204, "body": "none"}, 204, b""),
    ],
)
def test_a_reply_is_framed_as_the_rule_says(engine: Engine, reply: Reply, status: int, body: bytes) -> None:
    engine.begin([{"path": "*", "reply": reply}])
    assert ask(engine, {"target": "/x"}) == (status, body)


@pytest.mark.parametrize("kind", ["close", "reset", "partial"])
def test_a_broken_reply_is_no_answer(engine: Engine, kind: str) -> None:
    engine.begin([{"path": "*", "reply": {"kind": kind, "body": "abcdef", "send_bytes": 2}}])
    seen = exchange(engine.port, {"target": "/x"})
    assert (seen.answer, seen.notes) == (None, {"closed": True})


def test_a_caller_that_leaves_is_noticed(engine: Engine) -> None:
    engine.begin([{"path": "*", "reply": {"kind": "hang"}}])
    with socket.create_connection(("127.0.0.1", engine.port)) as caller:
        caller.sendall(b"GET /x HTTP/1.1\r\nHost: e0\r\n\r\n")
        wait_until(lambda: engine.calls() != [])
        (call,) = engine.calls()
        assert (call.left, call.ended) == (None, None)
    wait_until(lambda: call.ended is not None)
    assert call.left is not None


def test_the_peak_counts_calls_open_at_once() -> None:
    spans = [(0.0, 2.0), (1.0, 3.0), (1.5, 1.8), (3.5, None), (4.0, 5.0)]
    calls = [Call("e0", "GET", "/x", arrived=start, ended=end) for start, end in spans]
    assert [peak(calls[:count]) for count in range(6)] == [0, 1, 2, 3, 3, 3]
    assert peak(calls[3:]) == 2


def test_a_closed_engine_leaves_no_thread_and_refuses() -> None:
    before = threading.active_count()
    engine = Engine("e0", "bare", free_port(), {})
    with socket.create_connection(("127.0.0.1", engine.port)) as idle:
        assert ask(engine, {"target": "/health"})[0] == 200
        engine.close()
        engine.close()
        assert idle.recv(1) == b""
    assert threading.active_count() == before
    with pytest.raises(ConnectionRefusedError):
        ask(engine, {"target": "/health"})


@pytest.mark.parametrize(
    ("step", "expected"),
    [
        ({"target": "/x"}, b"GET /x HTTP/1.1\r\nHost: h\r\nConnection: close\r\n\r\n"),
        (
            {"target": "/x", "body": "", "headers": [("HOST", "other")]},
            b"GET /x HTTP/1.1\r\nHOST: other\r\nConnection: close\r\nContent-Length: 0\r\n\r\n",
        ),
        (
            {"method": "POST", "target": "/", "target_fill": ("a", 3), "fill": ("xy", 2), "framing": "chunked"},
            b"POST /aaa HTTP/1.1\r\nHost: h\r\nConnection: close\r\nTransfer-Encoding: chunked\r\n\r\n"
            b"2\r\nxy\r\n2\r\nxy\r\n0\r\n\r\n",
        ),
        ({"target": "/x", "body": "b", "framing": "none"}, b"GET /x HTTP/1.1\r\nHost: h\r\nConnection: close\r\n\r\nb"),
        ({"raw": "any\xff", "target": "/x"}, b"any\xff"),
    ],
)
def test_a_request_is_sent_as_the_step_says(step: Step, expected: bytes) -> None:
    assert b"".join(request_bytes(step, "h")) == expected


def test_an_engine_invites_a_body_that_is_kept_back(engine: Engine) -> None:
    seen = exchange(engine.port, {"method": "POST", "target": "/x", "body": "abc", "expect_continue": True})
    assert seen.notes == {"got_100": True}
    assert engine.calls()[0].body == b"abc"


def test_a_gateway_that_exits_is_reported_and_leaves_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    before = threading.active_count()
    monkeypatch.setattr(gateway, "LAUNCH", f"{sys.executable} -c 'raise SystemExit(\"no such luck\")'")
    with pytest.raises(NotReady, match="exited with 1:\nno such luck"):
        Session({"engines": [{"name": "e0"}], "workers": ["e0"]})
    assert threading.active_count() == before


def test_a_constant_that_json_lacks_is_no_json() -> None:
    answer = Answer(200, [], b'{"a": NaN}', 0.0)
    shown = response(Exchange(answer), {}, Names(10101, {}), ordered_ids=False)
    assert shown == {"status": 200, "headers": {}, "text": '{"a": NaN}'}
