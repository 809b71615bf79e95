"""One exchange on one connection: its deadline, its secret, and how to end it from outside."""

import contextlib
import io
import socket
import time
from dataclasses import dataclass

LONGEST = 2e6
"""Seconds, 23 days; poll() counts milliseconds in 31 bits, which is 24 days."""

# Slices of a body between two looks at the clock; one TLS record where each is sent by itself.
PLAIN_SLICE, TLS_SLICE = 1 << 20, 1 << 14


class Secret:
    """A bearer token that no repr and no traceback with locals shows.

    Requests carry a stand-in for it, which is filled in on the way into the socket.
    """

    STAND_IN = "Bearer \0"

    def __init__(self, token: str) -> None:
        self._token = token

    def fill(self, head: bytes) -> bytes:
        """The head of a request, with the token in it."""
        return head.replace(self.STAND_IN.encode(), b"Bearer " + self._token.encode(), 1)

    def __repr__(self) -> str:
        return "Secret(***)"


@dataclass
class Exchange:
    """One request and its answer: its deadline (an instant), how far it came, its socket."""

    deadline: float
    secret: Secret | None
    sent: bool = False
    aborted: bool = False
    connection: socket.socket | None = None

    def abort(self) -> None:
        """End it from another thread: whoever is blocked in it comes out with an error."""
        self.aborted = True
        if self.connection is not None:
            with contextlib.suppress(OSError):
                # Not SSLSocket.shutdown: that one drops the TLS state a reader still uses.
                socket.socket.shutdown(self.connection, socket.SHUT_RDWR)

    def adopt(self, connection: socket.socket) -> None:
        """The socket that `abort` shuts down from now on."""
        self.connection = connection
        if self.aborted:
            raise ConnectionAbortedError("the exchange was aborted")

    def remaining(self) -> float:
        left = self.deadline - time.monotonic()
        if left <= 0:
            raise TimeoutError("the deadline has passed")
        return min(left, LONGEST)


def connect(
    exchange: Exchange, address: tuple[str, int], timeout: object = None, source_address: object = None
) -> socket.socket:
    """A connection to the first address that takes one before the deadline."""
    failure: OSError = OSError("the host name has no address")
    for family, kind, protocol, _, where in socket.getaddrinfo(*address, type=socket.SOCK_STREAM):
        connection = socket.socket(family, kind, protocol)
        try:
            exchange.adopt(connection)
            connection.settimeout(exchange.remaining())
            connection.connect(where)
            connection.settimeout(exchange.remaining())  # for the TLS handshake, if any
            return connection
        except BaseException as error:
            connection.close()
            if not isinstance(error, OSError):
                raise
            failure = error
    raise failure


class DeadlineSocket:
    """What http.client needs of a socket, each operation bounded by the deadline."""

    def __init__(self, connection: socket.socket, exchange: Exchange, slice: int) -> None:
        self._connection, self._exchange, self._slice = connection, exchange, slice

    def sendall(self, data: bytes) -> None:
        if self._exchange.secret is not None and not self._exchange.sent:
            # The head; a body may hold whatever it likes.
            data = self._exchange.secret.fill(data)
        view = memoryview(data)
        try:
            for start in range(0, len(view), self._slice):
                self._connection.settimeout(self._exchange.remaining())
                self._connection.sendall(view[start : start + self._slice])
        finally:
            del data, view  # a traceback with locals would show the token

    def makefile(self, mode: str) -> io.BufferedReader:
        return io.BufferedReader(_DeadlineReader(self._connection, self._exchange))

    def close(self) -> None:
        # urllib closes this as soon as it has the head; the reader keeps the connection open.
        self._connection.close()


class _DeadlineReader(io.RawIOBase):
    def __init__(self, connection: socket.socket, exchange: Exchange) -> None:
        self._connection, self._exchange = connection, exchange
        self._file = connection.makefile("rb", buffering=0)

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: object) -> int | None:
        self._connection.settimeout(self._exchange.remaining())
        return self._file.readinto(buffer)  # type: ignore[arg-type]  # a writable buffer, by RawIOBase's promise

    def close(self) -> None:
        self._file.close()
        super().close()
