"""Whatever goes wrong on the way is one family of errors, and its code says how far the request came."""

import gc
import socket
from collections.abc import Callable

import pytest

from smg.rl import RL, RlConnectionError

from ..support.calls import CALLS
from ..support.misbehaving_server import Script, answer, answering, closing, hanging_up, resetting
from ..support.wire_answers import Serve

CHUNKED = b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n"

BAD: dict[str, Script] = {
    "closes at once": closing,
    "hangs up": hanging_up,
    "resets": resetting,
    "an empty line": answering(b"\r\n\r\n"),
    "garbage": answering(bytes(range(256)) * 4),
    "another protocol": answering(b"SSH-2.0-OpenSSH_9.6\r\n"),
    "HTTP/0.9": answering(b"<html>hello</html>\r\n"),
    "HTTP/2": answering(b"HTTP/2.0 200 OK\r\nContent-Length: 2\r\n\r\n{}"),
    "TLS": answering(b"\x15\x03\x01\x00\x02\x02\x46"),
    "a status that is none": answering(b"HTTP/1.1 two OK\r\n\r\n"),
    "a status of six digits": answering(b"HTTP/1.1 200000 OK\r\n\r\n"),
    "cut in the status": answering(b"HTTP/1.1 2"),
    "cut in the body": answering(answer(200, b'{"workers"', length=15)),
    "cut before the body": answering(answer(200, length=15)),
    "cut in a chunk": answering(CHUNKED + b"f\r\n{"),
    "cut between chunks": answering(CHUNKED + b"1\r\n{\r\n"),
    "a chunk of no size": answering(CHUNKED + b"\r\n\r\n"),
    "a chunk of negative size": answering(CHUNKED + b"-5\r\nhello\r\n0\r\n\r\n"),
    "a chunk of odd size": answering(CHUNKED + b"zz\r\nhello\r\n0\r\n\r\n"),
    "a chunk beyond all memory": answering(CHUNKED + b"f" * 20 + b"\r\nhello"),
    "a body beyond memory": answering(answer(200, b"{}", length=10**15)),
    "a body beyond all memory": answering(answer(200, b"{}", length=10**30)),
    "a header of a megabyte": answering(answer(200, b"{}", "X-Long: " + "x" * (1 << 20))),
    "a status line of a megabyte": answering(b"HTTP/1.1 200 " + b"x" * (1 << 20) + b"\r\n\r\n"),
    "a thousand headers": answering(answer(200, b"{}", *["X-Any: 1"] * 1_000)),
}

# Names that no resolver is asked for: they cannot be encoded.
NO_NAMES = ["http://a..b:1", "http://.a:1", f"http://{'a' * 64}.example:1"]


def broken(rl: RL, call: Callable[[RL, float | None], object], code: str) -> str:
    """The text of the error that this call ends in."""
    with pytest.raises(RlConnectionError) as caught:
        call(rl, 20)
    error = caught.value
    assert (type(error), error.status, error.code) == (RlConnectionError, 0, code)
    assert error.payload == {"error": code, "message": error.payload["message"]}
    for word in (code, str(error.payload["message"]), rl.base_url):
        assert word in str(error)
    assert len(str(error)) < 600
    return str(error)


@pytest.mark.parametrize("script", BAD.values(), ids=BAD)
def test_an_answer_that_is_lost_or_no_http_is_a_bad_response(serve: Serve, script: Script) -> None:
    server = serve(script)
    text = broken(RL(server.url), CALLS["workers"], "bad_response")
    assert "unknown" in text, "whether the call had an effect"
    # Nothing leaks of the library below, nor of the bytes that came.
    assert not any(word in text for word in ("Errno", "IncompleteRead(", "\\x", "xxx", "(b'"))
    assert server.connections == 1, "nothing is sent twice"


@pytest.mark.parametrize("name", CALLS)
def test_every_call_tells_so(serve: Serve, name: str) -> None:
    server = serve(hanging_up)
    broken(RL(server.url), CALLS[name], "bad_response")
    # After a pause whose fate is unknown there are the resume, and questions.
    assert server.connections > 1 if name == "paused" else server.connections == 1


@pytest.mark.parametrize("name", CALLS)
def test_a_port_that_refuses_is_a_failed_connection(name: str) -> None:
    with socket.socket() as unused:
        unused.bind(("127.0.0.1", 0))  # bound, not listening: refuses
        text = broken(RL(f"http://127.0.0.1:{unused.getsockname()[1]}"), CALLS[name], "connection_failed")
    assert "refused" in text
    assert "is the gateway running" in text


def test_an_unknown_name_is_a_failed_connection(monkeypatch: pytest.MonkeyPatch) -> None:
    def look_up(*args: object, **options: object) -> object:
        raise socket.gaierror(socket.EAI_NONAME, "Name or service not known")

    monkeypatch.setattr(socket, "getaddrinfo", look_up)
    text = broken(RL("http://gateway.invalid:30000"), CALLS["workers"], "connection_failed")
    assert "Name or service not known" in text


def test_so_is_a_name_without_an_address(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(socket, "getaddrinfo", lambda *args, **options: [])
    broken(RL("http://gateway.invalid:30000"), CALLS["workers"], "connection_failed")


@pytest.mark.parametrize("url", NO_NAMES)
def test_so_is_a_name_that_cannot_be_one(url: str) -> None:
    broken(RL(url), CALLS["workers"], "connection_failed")


def test_the_error_comes_without_those_below_it(serve: Serve) -> None:
    with pytest.raises(RlConnectionError) as caught:
        RL(serve(resetting).url).workers()
    assert (caught.value.__context__, caught.value.__cause__) == (None, None)
    assert (caught.value.errno, caught.value.strerror) == (None, None)


def test_a_client_goes_on_after_a_failure(serve: Serve) -> None:
    server = serve(hanging_up, answering(answer(200, b'{"workers": []}')))
    rl = RL(server.url)
    broken(rl, CALLS["workers"], "bad_response")
    assert rl.workers() == []


def test_an_interrupt_while_connecting_ends_that_and_leaves_no_socket_open(monkeypatch: pytest.MonkeyPatch) -> None:
    tried: list[object] = []

    def connect(self: socket.socket, address: object) -> None:
        tried.append(address)
        raise KeyboardInterrupt

    two = [(socket.AF_INET, socket.SOCK_STREAM, 6, "", ("127.0.0.1", port)) for port in (1, 2)]
    monkeypatch.setattr(socket, "getaddrinfo", lambda *args, **options: two)
    monkeypatch.setattr(socket.socket, "connect", connect)
    with pytest.raises(KeyboardInterrupt) as caught:
        RL("http://gateway.test:1").workers()
    assert tried == [("127.0.0.1", 1)]
    caught.value.__traceback__ = None
    del caught
    gc.collect()  # an open socket would give its ResourceWarning now
