"""HTTP/1.1 from a socket, as callers and engines both need it: heads as they are spelled, and whole bodies."""

import socket
from collections.abc import Callable, Sequence
from typing import TypeVar

import h11

Headers = list[tuple[str, str]]
Head = TypeVar("Head", h11.Request, h11.Response)


class Closed(EOFError):
    """The other side closed the connection."""


def awaiting_request() -> h11.Connection:
    """What a request is read with."""
    return h11.Connection(h11.SERVER)


def awaiting_answer(method: str) -> h11.Connection:
    """What the answer to a request of that method is read with."""
    http = h11.Connection(h11.CLIENT)
    # The request was written raw and may be none that h11 would write; it must know only whether a body can come.
    http.send(h11.Request(method="HEAD" if method == "HEAD" else "GET", target="/", headers=[("Host", "")]))
    http.send(h11.EndOfMessage())
    return http


class Reader:
    """Reads the messages of a connection, each with a new `h11.Connection`: a head, then its body."""

    def __init__(self, sock: socket.socket, begin: Callable[[], h11.Connection]) -> None:
        self.sock = sock
        self._begin = begin
        self._http = begin()

    @property
    def awaits_100(self) -> bool:
        """Whether the other side keeps a body back until it is invited to send it."""
        return self._http.they_are_waiting_for_100_continue

    def head(self, kind: type[Head]) -> Head:
        """The next head of that kind; interim answers are passed over."""
        while True:
            event, taken = self._event()
            if isinstance(event, (h11.Request, h11.InformationalResponse, h11.Response)):
                _check_lines(taken, event.headers)
            if isinstance(event, kind):
                return event

    def body(self) -> bytes:
        """All of the body; what follows it is left for the next head."""
        body = bytearray()
        while isinstance(event := self._event()[0], h11.Data):
            body += event.data
        rest = self._unread()
        # h11 reads on only when it has seen the answer leave, and answers are written past it.
        self._http = self._begin()
        if rest:  # receiving nothing would tell h11 that the connection has ended
            self._http.receive_data(rest)
        return bytes(body)

    def _event(self) -> tuple[h11.Event, bytes]:
        """What comes next, and the bytes that it was read from."""
        while True:
            unread = self._unread()
            try:
                event = self._http.next_event()
            except h11.RemoteProtocolError:
                if self._ended():
                    raise Closed from None
                raise
            if isinstance(event, h11.ConnectionClosed):
                raise Closed
            if isinstance(event, h11.Event):
                return event, unread[: len(unread) - len(self._unread())]
            self._http.receive_data(self.sock.recv(65536))

    def _unread(self) -> bytes:
        return self._http.trailing_data[0]

    def _ended(self) -> bool:
        return self._http.trailing_data[1]


def _check_lines(head: bytes, headers: Sequence[tuple[bytes, bytes]]) -> None:
    """Refuse a head that h11 puts right unseen: folded lines, bare line feeds, a length said twice."""
    lines = head.count(b"\r\n") - 2
    if lines != len(headers):
        raise h11.RemoteProtocolError(f"{len(headers)} headers on {lines} lines: {head!r}")


def spelled(head: h11.Request | h11.Response) -> Headers:
    """The headers in order, their names in the case that was sent."""
    return [(name.decode("latin-1"), value.decode("latin-1")) for name, value in head.headers.raw_items()]


def chunks(body: bytes, size: int) -> bytes:
    """The body in chunks of that size (at least one byte each), with the end mark."""
    pieces = [body[at : at + size] for at in range(0, len(body), max(1, size))]
    return b"".join(b"%x\r\n%b\r\n" % (len(piece), piece) for piece in pieces) + b"0\r\n\r\n"
