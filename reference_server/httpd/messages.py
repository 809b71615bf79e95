"""The values that cross the HTTP boundary: Request, Body, Caller, Reply."""

import json
import select
import socket
from collections.abc import Callable, Generator, Iterable, Mapping
from dataclasses import dataclass, replace
from email.message import Message as Headers
from io import BufferedIOBase

JSON = "application/json"
TEXT = "text/plain; charset=utf-8"

CHUNKED = -1
"""The framing of a body that comes in chunks; any other framing is its length in bytes."""

_MAX_CHUNK_LINE = 4096


class BodyTooLarge(ValueError):
    """The body is larger than the reader allows."""


def framing(headers: Headers, version: str) -> int | None:
    """How a request's body is delimited: `CHUNKED`, a length in bytes, or None for nonsense."""
    codings = [c.strip().lower() for value in headers.get_all("transfer-encoding", []) for c in value.split(",")]
    if codings:
        return CHUNKED if codings[-1] == "chunked" and version != "HTTP/1.0" else None
    lengths = {v.strip() for value in headers.get_all("content-length", []) for v in value.split(",")}
    if not lengths:
        return 0
    length = lengths.pop()
    valid = not lengths and length.isascii() and length.isdigit() and len(length) < 19
    return int(length) if valid else None


class Body:
    """A request's body, read when it is asked for.

    `announced` is its length in bytes, None for a chunked one; `done` tells whether
    nothing of it is left on the connection.
    """

    def __init__(self, source: BufferedIOBase, framing: int, ask: Callable[[], None]) -> None:
        self._source, self._framing, self._ask = source, framing, ask
        self._read: bytes | None = b"" if framing == 0 else None

    @property
    def announced(self) -> int | None:
        return None if self._framing == CHUNKED else self._framing

    @property
    def done(self) -> bool:
        return self._read is not None

    @property
    def content(self) -> bytes:
        """As much as was read: the whole body, or nothing."""
        return self._read or b""

    def read(self, limit: int) -> bytes:
        """The whole body; raises `BodyTooLarge` past `limit` bytes, `ValueError` when malformed."""
        if self._read is None:
            if self._framing > limit:
                raise BodyTooLarge
            self._ask()
            self._read = self._chunks(limit) if self._framing == CHUNKED else self._exactly(self._framing)
        return self._read

    def _exactly(self, size: int) -> bytes:
        data = self._source.read(size)
        if len(data) < size:
            raise ConnectionError("the caller closed inside its body")
        return data

    def _chunks(self, limit: int) -> bytes:
        body = bytearray()
        while size := self._chunk_size():
            if len(body) + size > limit:
                raise BodyTooLarge
            body += self._exactly(size)
            if self._line():
                raise ValueError("no line end after a chunk")
        while self._line():
            pass  # trailers
        return bytes(body)

    def _chunk_size(self) -> int:
        digits = self._line().partition(b";")[0].strip()
        if not digits or digits.strip(b"0123456789abcdefABCDEF"):
            raise ValueError("malformed chunk size")
        return int(digits, 16)

    def _line(self) -> bytes:
        line = self._source.readline(_MAX_CHUNK_LINE)
        if not line.endswith(b"\n"):
            raise ConnectionError("the caller closed inside its body")
        return line.rstrip(b"\r\n")


class Caller:
    """The other end of a connection: is it still there?"""

    def __init__(self, connection: socket.socket) -> None:
        self._connection = connection

    def gone(self) -> bool:
        """Whether the caller has closed its side, fully or for sending."""
        if hasattr(select, "POLLRDHUP"):
            poll = select.poll()
            poll.register(self._connection, select.POLLRDHUP)
            return bool(poll.poll(0))
        try:
            readable = select.select([self._connection], [], [], 0)[0]
            return bool(readable) and not self._connection.recv(1, socket.MSG_PEEK)
        except OSError:
            return True


@dataclass(frozen=True)
class Request:
    """One request: `target` as sent, header names and values as sent (Latin-1)."""

    method: str
    target: str
    headers: tuple[tuple[str, str], ...]
    body: Body
    caller: Caller

    @property
    def path(self) -> str:
        """The raw path: scheme and host of an absolute target, query and fragment removed."""
        target = self.target.partition("#")[0].partition("?")[0]
        if "://" in target and not target.startswith("/"):
            target = "/" + target.split("://", 1)[1].partition("/")[2]
        return target

    @property
    def query(self) -> str:
        """The raw query, without its question mark."""
        return self.target.partition("#")[0].partition("?")[2]

    def header(self, name: str) -> str | None:
        """The first value of a header."""
        return next((v for n, v in self.headers if n.lower() == name), None)


@dataclass(frozen=True)
class Reply:
    """One answer. `stream` instead of `body` is sent piece by piece.

    `hang_up` and `of_bytes` make answers that are not HTTP: `status` 0 closes the
    connection without a word; a `raw` stream is all that is sent, head included, and then
    the connection is closed, or with `reset` reset.
    """

    status: int
    headers: tuple[tuple[str, str], ...] = ()
    body: bytes = b""
    stream: Generator[bytes, None, None] | None = None
    raw: bool = False
    reset: bool = False

    @classmethod
    def of_json(cls, status: int, value: object, headers: Iterable[tuple[str, str]] = ()) -> "Reply":
        return cls(status, (("content-type", JSON), *headers), dump(value))

    @classmethod
    def of_text(cls, status: int, text: str, headers: Iterable[tuple[str, str]] = ()) -> "Reply":
        return cls(status, (("content-type", TEXT), *headers), text.encode())

    @classmethod
    def hang_up(cls) -> "Reply":
        """No answer: the connection is closed."""
        return cls(0)

    @classmethod
    def of_bytes(cls, pieces: Generator[bytes, None, None], status: int = 0, *, reset: bool = False) -> "Reply":
        """These very bytes, then the end of the connection; `status` is what a head among them says."""
        return cls(status, stream=pieces, raw=True, reset=reset)

    def with_headers(self, headers: Mapping[str, str]) -> "Reply":
        return replace(self, headers=(*self.headers, *headers.items()))


class Refusal(Exception):
    """Ends the handling of a request with this answer."""

    def __init__(self, reply: Reply) -> None:
        super().__init__(f"refused with {reply.status}")
        self.reply = reply

    @classmethod
    def of_text(cls, status: int, text: str) -> "Refusal":
        """A refusal in plain text."""
        return cls(Reply.of_text(status, text))


def dump(value: object) -> bytes:
    """Compact JSON in UTF-8."""
    return json.dumps(value, ensure_ascii=False, separators=(",", ":")).encode()
