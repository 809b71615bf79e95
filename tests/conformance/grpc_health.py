"""Just enough gRPC for a gateway to register an engine.

The health check of one service says "healthy"; every other method is unimplemented.
"""

import socket
from collections.abc import Callable

from h2.config import H2Configuration
from h2.connection import H2Connection
from h2.events import ConnectionTerminated, RequestReceived, StreamEnded
from h2.exceptions import ProtocolError

RESPONSE_HEAD = [(":status", "200"), ("content-type", "application/grpc")]
HEALTHY = b"\x00\x00\x00\x00\x02\x08\x01"
OK, UNIMPLEMENTED = ("grpc-status", "0"), ("grpc-status", "12")


def serve(sock: socket.socket, package: str, record: Callable[[str], None]) -> None:
    """Answer calls until the other side leaves; `record` gets each call's path."""
    http = H2Connection(H2Configuration(client_side=False))
    http.initiate_connection()
    paths: dict[int, str] = {}
    while data := sock.recv(65536):
        for event in http.receive_data(data):
            if isinstance(event, RequestReceived):
                paths[event.stream_id] = dict(event.headers)[b":path"].decode("latin-1")
            elif isinstance(event, StreamEnded):
                path = paths.pop(event.stream_id)
                record(path)
                _answer(http, event.stream_id, healthy=path.startswith(f"/{package}") and path.endswith("/HealthCheck"))
            elif isinstance(event, ConnectionTerminated):
                return
        sock.sendall(http.data_to_send())


def _answer(http: H2Connection, stream: int, *, healthy: bool) -> None:
    try:
        if healthy:
            http.send_headers(stream, RESPONSE_HEAD)
            http.send_data(stream, HEALTHY)
            http.send_headers(stream, [OK], end_stream=True)
        else:
            http.send_headers(stream, [*RESPONSE_HEAD, UNIMPLEMENTED], end_stream=True)
    except ProtocolError:
        pass  # what arrived with the call has already taken it back
