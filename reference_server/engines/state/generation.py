"""One generation: what was asked for, how far it is, how it ended."""

import enum
from collections.abc import Iterator
from dataclasses import dataclass, replace
from itertools import groupby

from .weights import PrefixCache, Tokens, Weights, fingerprint, next_token


@dataclass(frozen=True)
class Adapter:
    """A LoRA adapter: what requests call it, and where it was loaded from."""

    name: str
    path: str


@dataclass(frozen=True)
class Wanted:
    """What a caller asks for: at most `limit` tokens (None: no limit) after `prompt`, with an `adapter` if any.

    With `ignore_end` the answer does not end by itself before the limit.
    """

    id: str
    prompt: Tokens
    limit: int | None = None
    ignore_end: bool = False
    adapter: Adapter | None = None


@dataclass(frozen=True)
class Ending:
    """How a generation ended: `kind` is `stop`, `length`, `abort` or `gone` (the caller left).

    `queued`: it was aborted while it waited to run again.
    """

    kind: str
    queued: bool = False


@dataclass(frozen=True)
class Span:
    """Tokens `start` to `end` (excluded) were made by the weights called `version`."""

    version: str
    start: int
    end: int


class Phase(enum.Enum):
    PARKED = "arrived while the engine took nothing new"
    RUNNING = "gets a token a tick"
    QUEUED = "was taken in, waits to run, or to run again"
    ENDED = "over"


@dataclass(frozen=True)
class Progress:
    """A generation at one moment; `ending` is None while it goes on. `seconds` since it arrived."""

    id: str
    prompt_tokens: int
    cached_tokens: int
    retractions: int
    tokens: Tokens
    versions: tuple[str, ...]
    weight_version: str
    ending: Ending | None
    seconds: float

    @property
    def spans(self) -> tuple[Span, ...]:
        """Which weights made which tokens, without gaps."""
        return tuple(_spans(self.versions)) or (Span(self.weight_version, 0, 0),)

    def weight_versions(self) -> list[dict[str, object]]:
        """The spans as engines write them."""
        return [{"version": span.version, "start": span.start, "end": span.end} for span in self.spans]

    def since(self, count: int) -> "Iterator[Progress]":
        """Its moments after the first `count` tokens, one a token; the ending comes with the last."""
        whole = len(self.tokens) - (self.ending is not None)
        for length in range(count + 1, whole + 1):
            yield self._after(length)
        if self.ending is not None:
            yield self

    def _after(self, count: int) -> "Progress":
        return replace(
            self,
            tokens=self.tokens[:count],
            versions=self.versions[:count],
            weight_version=self.versions[count - 1],
            ending=None,
        )


class Generation:
    """A generation of an engine; only `EngineState` changes it."""

    def __init__(self, wanted: Wanted, natural_length: int, weights: Weights, arrived: float) -> None:
        self.wanted = wanted
        self.phase = Phase.PARKED
        self.arrived = arrived
        self.tokens: list[int] = []
        self.versions: list[str] = []
        self.cached_tokens = 0
        self.retractions = 0
        self.ending: Ending | None = None
        # Aborted while frozen: it ends when the engine resumes.
        self.doomed = False
        # Aborted, and ending with so many more ticks.
        self.abort_in: int | None = None
        self.weight_version = weights.version
        self._cached_by = weights
        self._fingerprint = fingerprint(wanted.prompt, "" if wanted.adapter is None else wanted.adapter.path)
        self._length, self._last = _plan(wanted, natural_length)

    def run(self, cache: PrefixCache, weights: Weights) -> None:
        """Start, or start again after a retraction: the prompt is computed anew."""
        self.phase = Phase.RUNNING
        self.weight_version = weights.version
        cached, self._cached_by = cache.prefill(self.wanted.prompt, weights)
        if not self.retractions:
            self.cached_tokens = cached
        if not self._length:
            self.end(self._last)

    def advance(self, weights: Weights) -> None:
        """One more token, or one tick less until an abort takes hold."""
        if self.abort_in is not None:
            self.abort_in -= 1
            if not self.abort_in:
                self.end(Ending("abort"))
            return
        self.tokens.append(next_token(weights, self._cached_by, self._fingerprint, len(self.tokens)))
        self.versions.append(weights.version)
        self.weight_version = weights.version
        if len(self.tokens) == self._length:
            self.end(self._last)

    def retract(self) -> None:
        self.phase = Phase.QUEUED
        self.retractions += 1

    def end(self, ending: Ending) -> None:
        self.phase = Phase.ENDED
        self.ending = ending

    def past(self, count: int) -> bool:
        """Whether there is something to say to who knows `count` tokens."""
        return self.ending is not None or len(self.tokens) > count

    def progress(self, now: float) -> Progress:
        return Progress(
            self.wanted.id,
            len(self.wanted.prompt),
            self.cached_tokens,
            self.retractions,
            tuple(self.tokens),
            tuple(self.versions),
            self.weight_version,
            self.ending,
            now - self.arrived,
        )


def _plan(wanted: Wanted, natural_length: int) -> tuple[int, Ending]:
    """How many tokens a generation will have if nobody interferes, and how it will end."""
    if wanted.limit is None:
        return natural_length, Ending("length" if wanted.ignore_end else "stop")
    if wanted.ignore_end or wanted.limit <= natural_length:
        return wanted.limit, Ending("length")
    return natural_length, Ending("stop")


def _spans(versions: tuple[str, ...]) -> Iterator[Span]:
    start = 0
    for version, made in groupby(versions):
        end = start + len(list(made))
        yield Span(version, start, end)
        start = end
