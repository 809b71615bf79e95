"""Faults: what can go wrong with one request to an engine.

A fault is a frozen value that knows how to act; it raises `ValueError` for what cannot be.
What comes instead of the answer leaves the engine as it was, unless `effect` is set; what
breaks the answer lets it do what it was asked. A streamed answer that is broken is put
together first.
"""

import abc
import math
from dataclasses import dataclass, field
from typing import Protocol

from ...httpd.messages import Reply
from . import broken_answers, checks
from .broken_answers import RawAnswer


class Stage(Protocol):
    """What a fault has at hand: one request, and the engine that it came to."""

    @property
    def kind(self) -> str:
        """The kind of engine."""

    @property
    def path(self) -> str:
        """The path that was asked for."""

    def answer(self) -> Reply:
        """Let the engine do what it is asked, and answer."""

    def rehearse(self) -> Reply:
        """The answer of an engine just like it; this one does nothing."""

    def failure(self, message: str) -> object:
        """What the engine says, with 200, when it did not do what it was asked."""

    def wait(self, seconds: float, *, alone: bool = False) -> None:
        """Wait, at most until the faults are cleared; ends the request when the engine stops
        and, unless it waits `alone`, when the caller goes away."""

    def crash(self, restart: bool) -> None:
        """Crash the engine; ends the request."""


class Fault(abc.ABC):
    """Something that goes wrong with a request."""

    @abc.abstractmethod
    def play(self, stage: Stage) -> Reply:
        """Let it go wrong: what is answered."""


@dataclass(frozen=True)
class Instead(Fault):
    """Something else comes instead of the answer. The call takes effect only with `effect`."""

    effect: bool = field(default=False, kw_only=True)

    def __post_init__(self) -> None:
        checks.flag("effect", self.effect)

    def play(self, stage: Stage) -> Reply:
        if self.effect:
            broken_answers.whole(stage.answer())
        return self.reply(stage)

    @abc.abstractmethod
    def reply(self, stage: Stage) -> Reply:
        """What comes instead."""


@dataclass(frozen=True)
class Status(Instead):
    """The engine answers `status` with `body`: text, or what is sent as JSON. No effect without `effect`."""

    status: int
    body: object = "a fault"

    def __post_init__(self) -> None:
        super().__post_init__()
        checks.whole("status", self.status, 200, 599)

    def reply(self, stage: Stage) -> Reply:
        if isinstance(self.body, str):
            return Reply.of_text(self.status, self.body)
        return Reply.of_json(self.status, self.body)


@dataclass(frozen=True)
class Html502(Instead):
    """A proxy before the engine answers 502 with a page of HTML. No effect without `effect`."""

    def reply(self, stage: Stage) -> Reply:
        page = b"<html>\n<head><title>502 Bad Gateway</title></head>\n<body><h1>502 Bad Gateway</h1></body>\n</html>\n"
        return Reply(502, (("content-type", "text/html"),), page)


@dataclass(frozen=True)
class Redirect(Instead):
    """The engine answers 301, 302, 303, 307 or 308 to `location`. No effect without `effect`."""

    location: str
    status: int = 307

    def __post_init__(self) -> None:
        super().__post_init__()
        known = (301, 302, 303, 307, 308)
        checks.require(self.status in known, f"status must be one of {known}, not {self.status!r}")
        checks.text("location", self.location)
        clean = self.location.isascii() and self.location.isprintable()
        checks.require(clean, f"location must be a URL or a path, not {self.location!r}")

    def reply(self, stage: Stage) -> Reply:
        return Reply(self.status, (("location", self.location),))


@dataclass(frozen=True)
class Unsuccessful(Instead):
    """200, and in the body, in the way of the engine's kind, that it failed. No effect without `effect`."""

    message: str = "a fault"

    def __post_init__(self) -> None:
        super().__post_init__()
        checks.text("message", self.message)

    def reply(self, stage: Stage) -> Reply:
        return Reply.of_json(200, stage.failure(self.message))


@dataclass(frozen=True)
class CloseBefore(Instead):
    """The connection is closed before the head of an answer. No effect without `effect`."""

    def reply(self, stage: Stage) -> Reply:
        return Reply.hang_up()


@dataclass(frozen=True)
class Reset(Instead):
    """The connection is reset before the head of an answer. No effect without `effect`."""

    def reply(self, stage: Stage) -> Reply:
        return broken_answers.raw(0, [], reset=True)


@dataclass(frozen=True)
class Garbage(Instead):
    """What is answered is `text`, which is not HTTP. No effect without `effect`."""

    text: str = "this is not HTTP\r\n\r\n"

    def __post_init__(self) -> None:
        super().__post_init__()
        checks.text("text", self.text)

    def reply(self, stage: Stage) -> Reply:
        return broken_answers.raw(0, [self.text.encode("utf-8", "replace")])


@dataclass(frozen=True)
class Hang(Instead):
    """No answer ever comes; the connection is closed when the faults are cleared. No effect
    without `effect`. What goes on when it is released is `MockEngine.hold`."""

    def reply(self, stage: Stage) -> Reply:
        stage.wait(math.inf)
        return Reply.hang_up()


@dataclass(frozen=True)
class Lie(Fault):
    """The normal answer of an engine that did what it was asked. The call takes no effect."""

    def play(self, stage: Stage) -> Reply:
        return stage.rehearse()


@dataclass(frozen=True)
class Crash(Fault):
    """The engine crashes: its connections are closed, its port refuses. The call takes no effect.

    With `restart` the engine is there again at once, as new.
    """

    restart: bool = False

    def __post_init__(self) -> None:
        checks.flag("restart", self.restart)

    def play(self, stage: Stage) -> Reply:
        stage.crash(self.restart)
        return Reply.hang_up()


@dataclass(frozen=True)
class Delay(Fault):
    """The engine waits `before` seconds, does what it is asked, and waits `in_body` seconds
    in the middle of the answer. Clearing the faults ends a wait.

    The call takes effect after the first wait, even if the caller has gone by then.
    """

    before: float = 0.0
    in_body: float = 0.0

    def __post_init__(self) -> None:
        checks.seconds("before", self.before)
        checks.seconds("in_body", self.in_body)
        checks.require(self.before + self.in_body > 0, "a delay must be more than 0 seconds, before or in_body")

    def play(self, stage: Stage) -> Reply:
        if self.before:
            stage.wait(self.before, alone=True)
        reply = stage.answer()
        if not self.in_body:
            return reply
        answer = RawAnswer.of(reply)
        return broken_answers.slow(answer, answer.halves(), lambda: stage.wait(self.in_body))


@dataclass(frozen=True)
class Trickle(Fault):
    """The head comes at once, the body a byte at a time, one every `seconds`. The call takes effect."""

    seconds: float = 0.5

    def __post_init__(self) -> None:
        checks.seconds("seconds", self.seconds)

    def play(self, stage: Stage) -> Reply:
        answer = RawAnswer.of(stage.answer())
        head, rest = answer.begun()
        return broken_answers.slow(answer, [head, *(bytes([byte]) for byte in rest)], lambda: stage.wait(self.seconds))


@dataclass(frozen=True)
class Truncate(Fault):
    """The connection is closed in the middle of the body. The call takes effect."""

    def play(self, stage: Stage) -> Reply:
        answer = RawAnswer.of(stage.answer())
        return broken_answers.raw(answer.status, answer.halves()[:1])


@dataclass(frozen=True)
class CloseAfterHead(Fault):
    """The connection is closed, with `reset` reset, after the head. The call takes effect."""

    reset: bool = False

    def __post_init__(self) -> None:
        checks.flag("reset", self.reset)

    def play(self, stage: Stage) -> Reply:
        answer = RawAnswer.of(stage.answer())
        return broken_answers.raw(answer.status, answer.begun()[:1], reset=self.reset)


@dataclass(frozen=True)
class WrongLength(Fault):
    """`Content-Length` is `by` bytes more than the body, or less. The call takes effect.

    More looks like a truncated answer; less like a good one, but JSON without its end is text.
    """

    by: int

    def __post_init__(self) -> None:
        checks.whole("by", self.by, -(1 << 30), 1 << 30)
        checks.require(self.by != 0, "by must not be 0")

    def play(self, stage: Stage) -> Reply:
        answer = RawAnswer.of(stage.answer(), self.by)
        return broken_answers.raw(answer.status, [answer.head, answer.body])


@dataclass(frozen=True)
class NotANumber(Fault):
    """The normal answer, with `NaN` and `Infinity`, which JSON does not know. The call takes effect."""

    def play(self, stage: Stage) -> Reply:
        return broken_answers.with_fields(stage.answer(), {"not_a_number": math.nan, "infinite": math.inf})


@dataclass(frozen=True)
class Huge(Fault):
    """The normal answer, grown by `size` bytes. The call takes effect."""

    size: int = 2 << 20

    def __post_init__(self) -> None:
        checks.whole("size", self.size, 1, 1 << 30)

    def play(self, stage: Stage) -> Reply:
        return broken_answers.with_fields(stage.answer(), {"padding": "x" * self.size})
