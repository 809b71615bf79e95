"""Bare connections to a server, for what an HTTP client would not do."""

import contextlib
import json
import socket
from collections.abc import Iterator

from .asking import Served, address_of
from .waiting import WAIT_SECONDS


@contextlib.contextmanager
def raw(server: Served | str) -> Iterator[socket.socket]:
    """A bare connection to a server."""
    with socket.create_connection(address_of(server), timeout=WAIT_SECONDS) as connection:
        yield connection


@contextlib.contextmanager
def hung(server: Served | str, path: str, body: object) -> Iterator[socket.socket]:
    """A request whose connection is closed on leaving."""
    data = json.dumps(body).encode()
    head = f"POST {path} HTTP/1.1\r\nhost: x\r\ncontent-type: application/json\r\ncontent-length: {len(data)}\r\n\r\n"
    with raw(server) as connection:
        connection.sendall(head.encode() + data)
        yield connection


def refuses(server: Served | str) -> bool:
    """Whether nobody listens there any more."""
    try:
        with raw(server):
            return False
    except ConnectionError:
        return True
