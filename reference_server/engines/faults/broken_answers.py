"""Answers that are broken on their way: cut, stretched, slowed, made of other bytes."""

import contextlib
import json
from collections.abc import Callable, Generator, Mapping, Sequence
from dataclasses import dataclass

from ...httpd.messages import Reply


@dataclass(frozen=True)
class RawAnswer:
    """An answer as the bytes of its head and body."""

    status: int
    head: bytes
    body: bytes

    @classmethod
    def of(cls, reply: Reply, extra: int = 0) -> "RawAnswer":
        """The whole of an answer; its length is announced as `extra` bytes more than it is."""
        body = whole(reply)
        length = max(0, len(body) + extra)
        headers = [*reply.headers, ("content-length", str(length)), ("connection", "close")]
        lines = [f"HTTP/1.1 {reply.status} ", *(f"{name}: {value}" for name, value in headers)]
        return cls(reply.status, "\r\n".join([*lines, "", ""]).encode("latin-1"), body)

    def halves(self) -> list[bytes]:
        """Up to the middle of the body, and the rest. Of an answer without one, the head's end is missing."""
        if not self.body:
            return self.begun()
        middle = len(self.body) // 2
        return [self.head + self.body[:middle], self.body[middle:]]

    def begun(self) -> list[bytes]:
        """The head and the body. Without a body, nearly all of the head and its end: something must be missing."""
        return [self.head, self.body] if self.body else [self.head[:-2], self.head[-2:]]


def whole(reply: Reply) -> bytes:
    """The body of an answer, put together if it is a stream."""
    if reply.stream is None:
        return reply.body
    with contextlib.closing(reply.stream) as pieces:
        return b"".join(pieces)


def raw(status: int, pieces: Sequence[bytes], *, reset: bool = False) -> Reply:
    """These bytes and then the end of the connection; `status` is what their head says."""
    return Reply.of_bytes((piece for piece in pieces), status, reset=reset)


def slow(answer: RawAnswer, pieces: Sequence[bytes], wait: Callable[[], None]) -> Reply:
    """A raw answer in pieces, with a wait before each but the first."""

    def paced() -> Generator[bytes, None, None]:
        yield pieces[0]
        for piece in pieces[1:]:
            wait()
            yield piece

    return Reply.of_bytes(paced(), answer.status)


def with_fields(reply: Reply, fields: Mapping[str, object]) -> Reply:
    """An answer with more fields; one that is not a JSON object becomes one, under `answer`."""
    body = whole(reply)
    try:
        value = json.loads(body)
    except ValueError:
        value = body.decode("utf-8", "replace")
    answer = value if isinstance(value, dict) else {"answer": value}
    return Reply.of_json(reply.status, {**answer, **fields})
