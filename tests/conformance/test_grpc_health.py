"""The mock gRPC service, called the way a gateway calls it."""

import socket
from collections.abc import Iterator

import pytest
from h2.connection import H2Connection
from h2.events import DataReceived, ResponseReceived, StreamEnded, TrailersReceived

from .caller import exchange
from .engine import Engine
from .gateway import free_port


class RpcCaller:
    """The other end of the mock gRPC service."""

    def __init__(self, sock: socket.socket) -> None:
        self._sock = sock
        self._http = H2Connection()
        self._http.initiate_connection()

    def call(self, path: str, *, take_back: bool = False) -> int:
        """The stream of a call, which leaves with the next `answer`."""
        stream = self._http.get_next_available_stream_id()
        head = [(":method", "POST"), (":scheme", "http"), (":authority", "e0"), (":path", path), ("te", "trailers")]
        self._http.send_headers(stream, head)
        self._http.send_data(stream, b"\0\0\0\0\0", end_stream=True)
        if take_back:
            self._http.reset_stream(stream)
        return stream

    def answer(self, stream: int) -> tuple[bytes, bytes]:
        """The status and the message that a stream ends with."""
        status, message = b"", b""
        self._sock.sendall(self._http.data_to_send())
        while data := self._sock.recv(65536):
            for event in self._http.receive_data(data):
                if isinstance(event, (ResponseReceived, TrailersReceived)) and event.stream_id == stream:
                    status = dict(event.headers).get(b"grpc-status", status)
                elif isinstance(event, DataReceived) and event.stream_id == stream:
                    message += event.data
                elif isinstance(event, StreamEnded) and event.stream_id == stream:
                    return status, message
        raise EOFError


@pytest.fixture
def engine() -> Iterator[Engine]:
    running = Engine("g0", "grpc", free_port(), {"grpc": "vllm"})
    yield running
    running.close()


def test_a_engine_is_healthy_and_can_do_nothing_else(engine: Engine) -> None:
    paths = ["/vllm.Engine/HealthCheck", "/sglang.Engine/HealthCheck", "/vllm.Engine/Generate"]
    with socket.create_connection(("127.0.0.1", engine.port), timeout=10) as sock:
        caller = RpcCaller(sock)
        answers = [caller.answer(caller.call(path)) for path in paths]
    assert answers == [(b"0", b"\0\0\0\0\x02\x08\x01"), (b"12", b""), (b"12", b"")]
    assert [(call.path, call.framing) for call in engine.calls()] == [(path, "grpc") for path in paths]


def test_a_grpc_call_that_is_taken_back_harms_no_other(engine: Engine) -> None:
    with socket.create_connection(("127.0.0.1", engine.port), timeout=10) as sock:
        caller = RpcCaller(sock)
        caller.call("/vllm.Engine/HealthCheck", take_back=True)
        assert caller.answer(caller.call("/vllm.Engine/HealthCheck"))[0] == b"0"
    assert len(engine.calls()) == 2


def test_a_engine_hangs_up_on_what_is_not_http2(engine: Engine) -> None:
    assert exchange(engine.port, {"target": "/health"}).notes == {"closed": True}
