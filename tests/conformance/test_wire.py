"""What the reader makes of answers and requests, and what it refuses."""

import socket
from collections.abc import Callable
from functools import partial

import h11
import pytest

from .wire import Closed, Headers, Reader, awaiting_answer, awaiting_request, spelled


def reader_of(sent: bytes, begin: Callable[[], h11.Connection]) -> Reader:
    """Reads what was sent on a connection that is closed behind it."""
    here, there = socket.socketpair()
    with there:
        there.sendall(sent)
    return Reader(here, begin)


@pytest.mark.parametrize(
    ("method", "sent", "headers", "body"),
    [
        ("GET", b"X-A: 1\r\nx-a:2\r\n\r\nall", [("X-A", "1"), ("x-a", "2")], b"all"),
        ("HEAD", b"Content-Length: 3\r\n\r\n", [("Content-Length", "3")], b""),
        ("GET", b"Content-Length: 3\r\n\r\nabcd", [("Content-Length", "3")], b"abc"),
        (
            "GET",
            b"Transfer-Encoding: chunked\r\n\r\n2;a=b\r\nab\r\n1\r\nc\r\n0\r\nX: y\r\n\r\n",
            [("Transfer-Encoding", "chunked")],
            b"abc",
        ),
    ],
)
def test_an_answer_is_read_as_it_is_spelled(method: str, sent: bytes, headers: Headers, body: bytes) -> None:
    interim = b"HTTP/1.1 100 Continue\r\n\r\n"
    reader = reader_of(interim + b"HTTP/1.1 200 OK\r\n" + sent, partial(awaiting_answer, method))
    with reader.sock:
        assert (spelled(reader.head(h11.Response)), reader.body()) == (headers, body)


@pytest.mark.parametrize(
    "sent",
    [b"", b"\r", b"\r\nContent-Length: 3\r\n\r\nab", b"\r\nTransfer-Encoding: chunked\r\n\r\n2\r\nab\r\n0\r\n"],
)
def test_an_answer_that_is_cut_short_is_none(sent: bytes) -> None:
    reader = reader_of(sent and b"HTTP/1.1 200 OK" + sent, partial(awaiting_answer, "GET"))
    with reader.sock, pytest.raises(Closed):
        reader.head(h11.Response)
        reader.body()


@pytest.mark.parametrize(
    "sent",
    [
        b"HTTP/1.1 200 OK\r\nA: b\r\n c\r\n\r\n",
        b"HTTP/1.1 200 OK\r\nA: b\nC: d\r\n\r\n",
        b"HTTP/1.1 200 OK\n\n",
        b"HTTP/1.1 200 OK\r\nContent-Length: 0\r\nContent-Length: 0\r\n\r\n",
        b"HTTP/1.1 103 Early Hints\nA: b\n\nHTTP/1.1 200 OK\r\n\r\n",
        b"this is not HTTP\r\n\r\n",
    ],
)
def test_a_malformed_answer_is_refused(sent: bytes) -> None:
    reader = reader_of(sent, partial(awaiting_answer, "GET"))
    with reader.sock, pytest.raises(h11.RemoteProtocolError):
        reader.head(h11.Response)


def test_requests_that_arrive_together_are_read_apart() -> None:
    sent = b"POST /%d HTTP/1.1\r\nHost: e0\r\nContent-Length: 1\r\n\r\n%d"
    reader = reader_of(sent % (1, 1) + sent % (2, 2), awaiting_request)
    with reader.sock:
        assert [(reader.head(h11.Request).target, reader.body()) for _ in range(2)] == [(b"/1", b"1"), (b"/2", b"2")]
        with pytest.raises(Closed):
            reader.head(h11.Request)
