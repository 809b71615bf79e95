"""Server-sent events: how every engine streams what it generates."""

from collections.abc import Generator, Iterator, Sequence

from ...httpd.messages import Reply, dump
from ..state.generation import Generation
from ..state.machine import EngineState


def event(value: object) -> bytes:
    """One server-sent event."""
    return b"data: " + dump(value) + b"\n\n"


def event_stream(state: EngineState, generations: Sequence[Generation], events: Iterator[bytes]) -> Reply:
    """Events as an answer; what has not ended when the stream is closed is removed."""

    def pieces() -> Generator[bytes, None, None]:
        try:
            # Begun before the answer is sent, so that `finally` runs even if nothing of it can be.
            yield b""
            yield from events
            yield b"data: [DONE]\n\n"
        finally:
            state.drop(generations)

    stream = pieces()
    next(stream)
    return Reply(200, (("content-type", "text/event-stream; charset=utf-8"),), stream=stream)
