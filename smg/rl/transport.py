"""Request -> Response over a private urllib opener; a failure comes back as a value.

One connection a request, no redirect, no proxy from the environment unless trusted,
every status an answer, and a timeout that is a deadline for the whole exchange. (The
look-up of a host name is the system's and cannot be cut short.)
"""

import http.client
import socket
import ssl
import time
import urllib.error
import urllib.request
from functools import partial
from typing import cast

from .deadline import LONGEST, PLAIN_SLICE, TLS_SLICE, DeadlineSocket, Exchange, Secret, connect
from .messages import Began, Failure, Request, Response


class Transport:
    """The `Sender` over urllib. Has no state that changes: threads and forks may share it."""

    def __init__(
        self, *, tls: bool, ssl_context: ssl.SSLContext | None, trust_env: bool, secret: Secret | None
    ) -> None:
        self._secret = secret
        self._opener = urllib.request.OpenerDirector()
        self._opener.add_handler(_Handler())
        if tls:
            # Loads the system's certificates: 20 ms that plain http must not pay.
            self._opener.add_handler(_TlsHandler(ssl_context or ssl.create_default_context()))
        if trust_env:
            self._opener.add_handler(urllib.request.ProxyHandler())

    def send(self, request: Request, timeout: float, began: Began | None = None) -> Response | Failure:
        """See `messages.Sender`."""
        exchange = Exchange(time.monotonic() + timeout, self._secret)
        if began:
            began(exchange)
        try:
            sent = _UrllibRequest(request, exchange)
            with cast(http.client.HTTPResponse, self._opener.open(sent, timeout=min(timeout, LONGEST))) as answer:
                return Response(answer.status, _read(answer), answer.getheader("location"))
        except (OSError, http.client.HTTPException, ValueError, OverflowError) as error:
            # The last two: a host name that cannot be one, a chunk size beyond reason.
            return _failure(error, exchange, timeout)


def _read(answer: http.client.HTTPResponse) -> bytes:
    # In pieces: a length that is announced may be more than there is memory.
    body = bytearray()
    while piece := answer.read(PLAIN_SLICE):
        body += piece
    if answer.length:
        raise http.client.IncompleteRead(bytes(body), answer.length)
    return bytes(body)


def _failure(error: Exception, exchange: Exchange, timeout: float) -> Failure:
    reason = error.reason if isinstance(error, urllib.error.URLError) else error
    if isinstance(reason, TimeoutError) and reason.errno is None:  # with a number it is the system's
        return Failure("client_timeout", f"no complete answer within {timeout:g} s")
    if isinstance(reason, ssl.SSLCertVerificationError):
        return Failure("connection_failed", f"the certificate is not trusted: {reason.verify_message}")
    if exchange.sent:
        return Failure("bad_response", _SAID.get(type(reason), f"the connection broke: {_text(reason)}"))
    return Failure("connection_failed", f"cannot connect: {_text(reason)}")


# Not what these say of themselves: some repeat the bytes they saw.
_SAID = {
    http.client.RemoteDisconnected: "the connection was closed without an answer",
    http.client.BadStatusLine: "the answer is not HTTP",
    http.client.UnknownProtocol: "the answer is not HTTP",
    http.client.IncompleteRead: "the answer was cut off in its body",
    http.client.LineTooLong: "the answer has a header that is too long",
}


def _text(reason: object) -> str:
    if isinstance(reason, OSError) and reason.strerror:
        return reason.strerror
    return str(reason)[:200] or type(reason).__name__


class _UrllibRequest(urllib.request.Request):
    def __init__(self, request: Request, exchange: Exchange) -> None:
        super().__init__(request.url, request.body, dict(request.headers), method=request.method)
        self.exchange = exchange


class _Handler(urllib.request.HTTPHandler):
    def http_open(self, req: urllib.request.Request) -> http.client.HTTPResponse:
        connection = partial(_Connection, exchange=cast(_UrllibRequest, req).exchange)
        return self.do_open(connection, req)


class _TlsHandler(urllib.request.HTTPSHandler):
    def __init__(self, context: ssl.SSLContext) -> None:
        super().__init__(context=context)
        self._trusted = context

    def https_open(self, req: urllib.request.Request) -> http.client.HTTPResponse:
        connection = partial(_TlsConnection, exchange=cast(_UrllibRequest, req).exchange, context=self._trusted)
        return self.do_open(connection, req)


class _HttpResponse(http.client.HTTPResponse):
    """Skips every interim answer; http.client knows only 100."""

    def begin(self) -> None:
        super().begin()
        while 101 < self.status < 200:
            self.headers = self.msg = None  # type: ignore[assignment]  # as before the first head
            super().begin()


class _Connection(http.client.HTTPConnection):
    """Connects, sends and reads by the clock of its exchange."""

    slice = PLAIN_SLICE
    response_class = _HttpResponse
    _connected = False

    def __init__(self, host: str, *, exchange: Exchange, timeout: float = 0) -> None:
        super().__init__(host, timeout=timeout)
        self._govern(exchange)

    def _govern(self, exchange: Exchange) -> None:
        self.exchange = exchange
        # The one hook between "every address its own timeout" and a deadline for all.
        self._create_connection = partial(connect, exchange)

    def connect(self) -> None:
        super().connect()
        self.exchange.adopt(self.sock)
        self.sock = cast(socket.socket, DeadlineSocket(self.sock, self.exchange, self.slice))
        self._connected = True

    def _tunnel(self) -> None:
        # The other hook: what a proxy says on the way is bounded by the deadline too.
        bare = self.sock
        self.sock = cast(socket.socket, DeadlineSocket(bare, self.exchange, self.slice))
        super()._tunnel()  # type: ignore[misc]  # http.client's own
        bare.settimeout(self.exchange.remaining())
        self.sock = bare

    def endheaders(self, message_body: object = None, *, encode_chunked: bool = False) -> None:
        if self.exchange.secret is not None:
            self.putheader("Authorization", Secret.STAND_IN)
        super().endheaders(message_body, encode_chunked=encode_chunked)  # type: ignore[arg-type]  # as given

    def send(self, data: object) -> None:
        try:
            super().send(data)  # type: ignore[arg-type]  # as given
        except OSError as error:
            # A gateway may refuse, and close, before it has read all: look for its answer.
            if not self.exchange.sent or isinstance(error, TimeoutError):
                raise
        # What is sent before is for a proxy, to make it open a tunnel.
        self.exchange.sent = self._connected


class _TlsConnection(_Connection, http.client.HTTPSConnection):
    slice = TLS_SLICE

    def __init__(self, host: str, *, exchange: Exchange, context: ssl.SSLContext, timeout: float = 0) -> None:
        http.client.HTTPSConnection.__init__(self, host, timeout=timeout, context=context)
        self._govern(exchange)
