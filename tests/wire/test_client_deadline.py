"""`timeout` is a deadline for the whole call, whatever the other end does meanwhile.

A test asserts that a call ended long before the misbehaviour would have; the numbers are far
apart so that a slow machine cannot confuse them.
"""

import socket
import time
from collections.abc import Callable, Iterator

import pytest

from smg.rl import RL, RlConnectionError, RlError, RlTimeoutError, paused

from ..support.calls import CALLS
from ..support.misbehaving_server import Peer, Script, answer, deaf, dripping, keeping, silent, sipping
from ..support.wire_answers import LISTING, Serve

SHORT, LONG = 0.3, 5.0

NEVER_ENDING: dict[str, Script] = {
    "no answer": silent,
    "a dripping head": dripping(b"HTTP/1.1 200 OK\r\n", b"X-Any: 1\r\n"),
    "a dripping header": dripping(b"HTTP/1.1 200 OK\r\nX-Any: ", b"x"),
    "a dripping body": dripping(answer(200, length=1_000), b"x"),
    "a dripping chunk": dripping(b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\nfff\r\n", b"x"),
    "dripping chunks": dripping(b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n", b"1\r\nx\r\n"),
    "no end of 100": dripping(b"", b"HTTP/1.1 100 Continue\r\n\r\n"),
}


@pytest.fixture(autouse=True)
def it_ends_long_before_the_misbehaviour_would() -> Iterator[None]:
    started = time.monotonic()
    yield
    assert time.monotonic() - started < LONG


@pytest.mark.parametrize("call", CALLS.values(), ids=CALLS)
@pytest.mark.parametrize("script", NEVER_ENDING.values(), ids=NEVER_ENDING)
def test_a_call_ends_with_its_timeout(serve: Serve, script: Script, call: Callable[[RL, float | None], object]) -> None:
    server = serve(script)
    with pytest.raises(RlTimeoutError, match=r"no complete answer within 0\.3 s") as caught:
        call(RL(server.url), SHORT)
    assert (caught.value.status, caught.value.code) == (0, "client_timeout")
    assert f"{server.received(1)[0].line.split()[0]} {server.url}/v1/rl/" in str(caught.value)
    assert "may still be running" in str(caught.value)


@pytest.mark.parametrize("call", CALLS.values(), ids=CALLS)
def test_a_call_without_one_ends_with_the_clients(serve: Serve, call: Callable[[RL, float | None], object]) -> None:
    with pytest.raises(RlTimeoutError, match=r"within 0\.3 s"):
        call(RL(serve(silent).url, timeout=SHORT), None)


def test_a_longer_timeout_of_one_call_holds(serve: Serve) -> None:
    # The answer takes longer than the client's timeout: the byte before it comes after 20 of them.
    slow = dripping(b"HTTP/1.1 200 OK\r\nContent-Length: 15\r\n\r\n", b'{"workers": []}')
    assert RL(serve(slow).url, timeout=SHORT).workers(timeout=60) == []


def test_a_gateway_that_does_not_read_ends_the_call_too(serve: Serve) -> None:
    with pytest.raises(RlTimeoutError):
        RL(serve(deaf).url).call("w0", "x", "x" * (16 << 20), timeout=SHORT)


def test_so_does_one_that_reads_too_slowly(serve: Serve) -> None:
    with pytest.raises(RlTimeoutError):
        RL(serve(sipping).url).call("w0", "x", "x" * (48 << 20), timeout=SHORT)


def test_so_does_one_that_does_not_accept() -> None:
    with socket.create_server(("127.0.0.1", 0), backlog=0) as full:
        queued = [socket.socket() for _ in range(4)]
        try:
            for one in queued:
                one.setblocking(False)
                one.connect_ex(full.getsockname())
            with pytest.raises(RlTimeoutError):
                RL(f"http://127.0.0.1:{full.getsockname()[1]}").workers(timeout=SHORT)
        finally:
            for one in queued:
                one.close()


def test_what_timed_out_is_not_sent_again(serve: Serve) -> None:
    server = serve(silent, keeping(LISTING))
    with pytest.raises(RlTimeoutError):
        RL(server.url).fanout("update_weights_from_disk", {}, selector="a=b", timeout=SHORT)
    assert (len(server.received(1)), server.connections) == (1, 1)


def test_a_pause_that_timed_out_is_resumed_over_a_new_connection(serve: Serve) -> None:
    server = serve(silent, keeping(answer(200, b'{"results": {}, "failed": []}')))
    rl = RL(server.url)
    with pytest.raises(RlTimeoutError) as caught, paused(rl, "a=b", timeout=SHORT, settle=0):
        pytest.fail("the block ran")
    assert isinstance(caught.value.__context__, RlError) and "a=b" in str(caught.value.remedy)
    assert [request.line.split()[1] for request in server.received(2)[:2]] == [
        "/v1/rl/engine/pause_generation?selector=a%3Db",
        "/v1/rl/engine/continue_generation?selector=a%3Db",
    ]


def test_a_resume_that_timed_out_is_the_error(serve: Serve) -> None:
    server = serve(keeping(answer(200, b'{"results": {}, "failed": []}')), silent)
    with pytest.raises(RlTimeoutError, match="continue_generation"), paused(RL(server.url), "a=b", timeout=SHORT):
        pass
    assert server.connections == 2


# The second is a fifth of a second more than what poll() counts to before it starts again at 0.
@pytest.mark.parametrize("timeout", [3e6, 4294967.5, 1e10, 1e300])
def test_any_finite_timeout_will_do(serve: Serve, timeout: float) -> None:
    def slow(peer: Peer) -> None:
        peer.receive()
        peer.waits(0.6)
        peer.send(LISTING)

    assert len(RL(serve(slow).url, timeout=timeout).workers()) == 1


def test_the_system_that_gives_up_earlier_is_no_timeout_of_ours(monkeypatch: pytest.MonkeyPatch) -> None:
    def connect(self: socket.socket, address: object) -> None:
        raise TimeoutError(110, "Connection timed out")  # what Linux says after two minutes

    monkeypatch.setattr(socket.socket, "connect", connect)
    with pytest.raises(RlConnectionError, match="cannot connect") as caught:
        RL("http://127.0.0.1:1").workers()
    assert caught.value.code == "connection_failed"
    assert "600" not in str(caught.value)
