"""One call to one engine: a connection of its own, one request, one answer.

A call blocks in `run`. Whoever may not wait any longer, because a deadline has
passed or the caller has gone, calls `release`, which shuts the engine's socket
down and so wakes the thread that is blocked on it.
"""

import contextlib
import http.client
import socket
import ssl
import threading
import time
from collections.abc import Generator, Mapping
from dataclasses import dataclass
from urllib.parse import urlsplit

from .httpd.messages import JSON, Request
from .outcome import BODY_LIMIT, Answered, Cancelled, Outcome, Unreachable

_FORWARDED = ("x-request-id", "traceparent", "tracestate")
_PORTS = {"http": 80, "https": 443}


@dataclass(frozen=True)
class Address:
    """Where an engine listens. `prefix` is the path of its URL, without a slash at the end."""

    scheme: str
    host: str
    port: int
    authority: str
    prefix: str

    @classmethod
    def of(cls, url: str) -> "Address":
        """Read a worker's URL; raises `ValueError` when it is not `http(s)://host[:port][/path]`."""
        parts = urlsplit(url)
        if parts.scheme not in _PORTS or not parts.hostname or parts.query or parts.fragment:
            raise ValueError(f"not an engine URL: {url!r}")
        authority = parts.netloc.rpartition("@")[2]
        port = parts.port or _PORTS[parts.scheme]
        return cls(parts.scheme, parts.hostname, port, authority, parts.path.rstrip("/"))


@dataclass(frozen=True)
class EngineRequest:
    """What an engine is sent, apart from its address."""

    method: str
    target: str
    headers: tuple[tuple[str, str], ...] = ()
    body: bytes = b""

    def encode(self, address: Address) -> bytes:
        headers = [*self.headers, ("accept", "*/*"), ("host", address.authority)]
        if self.body:
            headers.append(("content-length", str(len(self.body))))
        lines = [f"{self.method} {address.prefix}{self.target} HTTP/1.1"]
        lines += [f"{name}: {value}" for name, value in headers]
        return "\r\n".join([*lines, "", ""]).encode("latin-1") + self.body


def forwarded(request: Request, body: bytes) -> tuple[tuple[str, str], ...]:
    """The caller's headers that an engine may see: content type, request id, trace."""
    given = ((name, request.header(name)) for name in ("content-type", *_FORWARDED))
    headers = {name: value for name, value in given if value is not None}
    if body:
        headers.setdefault("content-type", JSON)
    return tuple(headers.items())


@dataclass(frozen=True)
class Head:
    """Status line and headers of an answer whose body is still to come."""

    status: int
    headers: Mapping[str, str]
    pieces: Generator[bytes, None, None]


class EngineCall:
    """One request to one engine. `run` gives the outcome; `release` ends it from outside."""

    def __init__(
        self, address: Address, request: EngineRequest, tls: ssl.SSLContext | None = None, head_only: bool = False
    ) -> None:
        self._address, self._request, self._tls, self._head_only = address, request, tls, head_only
        self._lock = threading.Lock()
        self._socket: socket.socket | None = None
        self._answer: _EngineResponse | None = None
        self.outcome: Outcome | Head | None = None

    def settled(self) -> Outcome:
        """The outcome of a call for a whole answer; `Cancelled` as long as there is none."""
        return self.outcome if isinstance(self.outcome, Outcome) else Cancelled()

    def release(self, outcome: Outcome) -> None:
        """End the call with this outcome, unless it has ended; cut off an answer still streaming."""
        with self._lock:
            if self.outcome is None:
                self.outcome = outcome
            if self._socket is not None:
                with contextlib.suppress(OSError):
                    # Not SSLSocket.shutdown: that one drops the TLS state a reader still uses.
                    socket.socket.shutdown(self._socket, socket.SHUT_RDWR)

    def run(self) -> Outcome | Head:
        """Connect, send, read. Never raises for what network or engine may do."""
        started = time.monotonic()
        try:
            ended = self._converse(started)
        except _Released:
            ended = Cancelled()
        except (OSError, http.client.HTTPException, ValueError):
            ended = Unreachable(f"error sending request for url ({self._url()})")
        with self._lock:
            if self.outcome is None:
                self.outcome = ended
            keep = isinstance(self.outcome, Head)
        if not keep:
            self._close()
        return self.outcome

    def _url(self) -> str:
        a = self._address
        return f"{a.scheme}://{a.authority}{a.prefix}{self._request.target}"

    def _converse(self, started: float) -> Outcome | Head:
        connection = self._connect()
        with contextlib.suppress(BrokenPipeError, ConnectionResetError):
            # An engine may answer, and close, before it has read the whole body.
            connection.sendall(self._request.encode(self._address))
        response = self._answer = _EngineResponse(connection, method=self._request.method)
        response.begin()
        if response.status < 200:
            raise http.client.UnknownProtocol(f"status {response.status}")
        if self._head_only:
            return Head(response.status, {k.lower(): v for k, v in response.getheaders()}, self._pieces(response))
        try:
            body = _read_body(response)
        except (OSError, http.client.HTTPException, ValueError):
            return Unreachable("reading response body: error decoding response body")
        content_type = next((v for k, v in response.getheaders() if k.lower() == "content-type"), "")
        latency_ms = int((time.monotonic() - started) * 1000)
        return Answered(response.status, content_type, body[:BODY_LIMIT], len(body) > BODY_LIMIT, latency_ms)

    def _pieces(self, response: http.client.HTTPResponse) -> Generator[bytes, None, None]:
        try:
            while piece := response.read1(65536):
                yield piece
            if response.length:
                raise ConnectionError("the engine closed inside its body")
        finally:
            self._close()

    def _connect(self) -> socket.socket:
        failure: OSError = OSError("the host name has no address")
        host, port = self._address.host, self._address.port
        for family, kind, protocol, _, where in socket.getaddrinfo(host, port, type=socket.SOCK_STREAM):
            try:
                connection = self._adopt(socket.socket(family, kind, protocol))
                connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
                connection.connect(where)
                return self._secure(connection)
            except OSError as error:
                failure = error
                self._close()
        raise failure

    def _secure(self, connection: socket.socket) -> socket.socket:
        if self._address.scheme == "http":
            return connection
        context = self._tls or ssl.create_default_context()
        secured = context.wrap_socket(connection, server_hostname=self._address.host, do_handshake_on_connect=False)
        self._adopt(secured)
        secured.do_handshake()
        return secured

    def _adopt(self, connection: socket.socket) -> socket.socket:
        with self._lock:
            if self.outcome is not None:
                connection.close()
                raise _Released
            self._socket = connection
        return connection

    def _close(self) -> None:
        with self._lock:
            if self._answer is not None:
                self._answer.close()
            if self._socket is not None:
                self._socket.close()
                self._socket = None


class _Released(Exception):
    """The call was ended from outside before it had a socket to shut down."""


class _EngineResponse(http.client.HTTPResponse):
    """Skips interim answers, of which http.client knows only 100, and takes one length at most."""

    def begin(self) -> None:
        super().begin()
        while 101 < self.status < 200:
            self.headers = self.msg = None  # type: ignore[assignment]  # as before the first head
            super().begin()
        if len(set(self.headers.get_all("content-length", ()))) > 1:
            raise http.client.HTTPException("two content lengths")


def _read_body(response: http.client.HTTPResponse) -> bytes:
    """At most one byte more than the limit; raises when the body ends too early."""
    body = bytearray()
    while len(body) <= BODY_LIMIT:
        piece = response.read(BODY_LIMIT + 1 - len(body))
        if not piece:
            if response.length:
                raise http.client.IncompleteRead(b"", response.length)
            break
        body += piece
    return bytes(body)
