"""An engine without a dialect: weights, run state, prefix cache, generations.

Requests come in through a door. While the engine is paused, or a refit waits for
its turn, the door is shut and what arrives is parked; when it opens, the parked come
in, in the order of their arrival. Inside, each generation gets a token a tick.
A generation that has begun ends exactly once.
"""

import enum
import threading
import time
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from dataclasses import replace

from .generations import Ending, Generation, Phase, Progress, Wanted
from .weights import PrefixCache, Weights

Gone = Callable[[], bool]
"""Tells whether the caller who waits has gone away."""

_POLL_SECONDS = 0.05


class EngineStopped(Exception):
    """The engine stopped or died while somebody waited for it."""


class CallerGone(Exception):
    """The caller went away; what it asked for is removed."""


class DuplicateRequest(ValueError):
    """The id of a new request is the id of one that has not ended; `id` is that."""

    def __init__(self, id: str) -> None:
        super().__init__(f"there is a request {id!r} already")
        self.id = id


class Flush(enum.Enum):
    """What came of a flush of the prefix cache."""

    FLUSHED = "flushed"
    BUSY = "something runs"
    TIMED_OUT = "something still ran at the end of the timeout"


class Refit(enum.Enum):
    """What came of a refit."""

    DONE = "the new weights serve"
    NOT_FLUSHED = "the new weights serve, on a cache of the old ones"
    NO_CHECKPOINT = "nothing to load there; the old weights serve"


def _stays() -> bool:
    return False


class EngineState:
    """The state of one engine; every method may be called from any thread.

    `changed` is notified after each change; its lock guards everything. `clock`
    gives seconds. `crashed` is why the engine died, None while it lives.
    """

    def __init__(
        self,
        model_path: str,
        weight_version: str = "default",
        *,
        checkpoints: Collection[str] | None = None,
        generation_ticks: int = 8,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self.changed = threading.Condition()
        self.weights = Weights(model_path, weight_version)
        # What the engine tells of itself: after a refit without its flush, the old weights.
        self.reported = self.weights
        self.pause_mode: str | None = None
        self.flushes = 0
        self.asleep: frozenset[str] = frozenset()
        self.crashed: str | None = None
        self._stopped = False
        self._checkpoints = checkpoints
        self._natural_length = generation_ticks
        self._clock = clock
        self._cache = PrefixCache()
        self._generations: dict[str, Generation] = {}
        self._refits_waiting = 0
        self._loads = 0

    # What can be seen of it.

    @property
    def paused(self) -> bool:
        return self.pause_mode is not None

    @property
    def stopped(self) -> bool:
        return self._stopped or self.crashed is not None

    def count(self, *phases: Phase) -> int:
        """How many generations are in one of `phases`."""
        with self.changed:
            return sum(generation.phase in phases for generation in self._generations.values())

    @property
    def in_flight(self) -> int:
        """Generations that have begun and not ended."""
        return self.count(Phase.RUNNING, Phase.QUEUED)

    # Generations.

    def arrive(self, wanted: Sequence[Wanted]) -> list[Generation]:
        """Take in requests, all or none; raises `DuplicateRequest`. Does not wait."""
        with self.changed:
            self._check_alive()
            ids = [one.id for one in wanted]
            for position, id in enumerate(ids):
                if id in self._generations or id in ids[:position]:
                    raise DuplicateRequest(id)
            arrived = self._clock()
            new = [Generation(one, self._natural_length, self.weights, arrived) for one in wanted]
            self._generations.update(zip(ids, new, strict=True))
            self._let_in()
            return new

    def result(self, generation: Generation, gone: Gone = _stays) -> Progress:
        """Wait for the end of a generation."""
        return self._wait_for(generation, lambda: generation.ending is not None, gone)

    def stream(self, generations: Sequence[Generation], gone: Gone = _stays) -> Iterator[tuple[int, Progress]]:
        """Each token of several generations as it comes, with the generation's index."""
        sent = [0] * len(generations)
        open = dict(enumerate(generations))
        while open:
            self._wait(lambda: any(g.ending or len(g.tokens) > sent[i] for i, g in open.items()), generations, gone)
            for index, generation in list(open.items()):
                with self.changed:
                    now = generation.progress(self._clock())
                whole = len(now.tokens) - (now.ending is not None)
                for count in range(sent[index] + 1, whole + 1):
                    yield index, now.cut(count)
                sent[index] = len(now.tokens)
                if now.ending:
                    del open[index]
                    yield index, now

    def drop(self, generations: Iterable[Generation]) -> None:
        """Remove generations whose caller has gone; those that ended stay as they are."""
        with self.changed:
            self._end(generations, Ending("gone"))

    def abort(self, id: str | None = None) -> None:
        """End the generation in flight with this id, or all of them. The parked stay."""
        with self.changed:
            inside = self._in(Phase.RUNNING, Phase.QUEUED)
            self._end(g for g in inside if id is None or g.wanted.id == id)

    # Control.

    def pause(self, mode: str) -> None:
        """Shut the door; `mode`, a key of `PAUSE_MODES`, says what happens to those inside."""
        with self.changed:
            self._check_alive()
            self.pause_mode = mode
            PAUSE_MODES[mode](self)
            self.changed.notify_all()

    def resume(self) -> None:
        """Run again: the queued first, then the parked. No matter if it was not paused."""
        with self.changed:
            self._check_alive()
            self.pause_mode = None
            self._run(Phase.QUEUED)
            self._let_in()

    def flush(self, timeout: float = 0.0) -> Flush:
        """Empty the prefix cache if nothing runs; wait up to `timeout` seconds until nothing is in flight."""
        with self.changed:
            if timeout and not self.changed.wait_for(lambda: self.stopped or not self.in_flight, timeout):
                return Flush.TIMED_OUT
            self._check_alive()
            return Flush.FLUSHED if self._flush() else Flush.BUSY

    def refit(self, path: str, version: str | None = None, *, flush: bool = True, abort: bool = False) -> Refit:
        """Load other weights, called `version` if it is given.

        On a paused engine at once; else when everything in flight has ended, and nothing
        new comes in before. With `abort` what is in flight is ended first.
        """
        with self.changed:
            if abort:
                self.abort()
            if not self.paused:
                self._wait_for_turn()
            self._check_alive()
            if self._checkpoints is not None and path not in self._checkpoints:
                return Refit.NO_CHECKPOINT
            self._loads += 1
            self.weights = Weights(path, self.weights.version if version is None else version, self._loads)
            self.changed.notify_all()
            if flush and not self._flush():
                return Refit.NOT_FLUSHED
            self.reported = self.weights
            return Refit.DONE

    def rename(self, version: str, *, abort: bool = True) -> None:
        """Call the same weights `version`; ends what is in flight unless `abort` is false."""
        with self.changed:
            self._check_alive()
            if abort:
                self.abort()
            self.weights = replace(self.weights, version=version)
            self.reported = replace(self.reported, version=version)
            self.changed.notify_all()

    def sleep(self, tags: frozenset[str]) -> None:
        """Give memory back. An engine at work, or asleep in one of `tags`, dies of it."""
        with self.changed:
            self._check_alive()
            if self.asleep & tags or not self._flush():
                self.crash("memory released twice, or while a request ran")
                raise EngineStopped
            self.asleep |= tags

    def wake(self, tags: frozenset[str]) -> None:
        """Take memory again. An engine that is not asleep in all of `tags` dies of it."""
        with self.changed:
            self._check_alive()
            if tags - self.asleep:
                self.crash("memory resumed that was not released")
                raise EngineStopped
            self.asleep -= tags

    def crash(self, reason: str) -> None:
        """Die: whoever waits gets no answer, and nobody after."""
        with self.changed:
            self.crashed = reason
            self.changed.notify_all()

    def stop(self) -> None:
        """Wake whoever waits, with `EngineStopped`."""
        with self.changed:
            self._stopped = True
            self.changed.notify_all()

    def wait_open(self, timeout: float) -> bool:
        """Wait up to `timeout` seconds for the engine to take new requests."""
        with self.changed:
            self.changed.wait_for(lambda: self.stopped or not self.paused, timeout)
            self._check_alive()
            return not self.paused

    # Ticks.

    def wait_for_work(self) -> bool:
        with self.changed:
            self.changed.wait_for(lambda: self.stopped or self._steps())
            return not self.stopped

    def step(self) -> None:
        with self.changed:
            if self._steps():
                for generation in self._in(Phase.RUNNING):
                    generation.advance(self.weights)
                self._forget_ended()
                self.changed.notify_all()
