"""An engine without a dialect: weights, run state, prefix cache, generations."""

import contextlib
import enum
import threading
import time
from collections.abc import Callable, Collection, Iterator
from dataclasses import replace

from .generation import Phase
from .serving import Gone, Serving, stays
from .traits import PAUSE_MODES, SGLANG, Traits
from .weights import Weights


class Flush(enum.Enum):
    """What came of a flush of the prefix cache."""

    DONE = "flushed"
    BUSY = "something runs"
    TIMED_OUT = "something was still in flight at the end of the timeout"


class Refit(enum.Enum):
    """What came of a refit."""

    DONE = "the new weights serve"
    NOT_FLUSHED = "the new weights serve, on a cache of the old ones"
    NO_CHECKPOINT = "nothing to load there; the old weights serve"


class EngineState(Serving):
    """The whole state of an engine.

    `weights` serve; `reported` is what the engine says of itself, which differs after a
    refit whose flush failed. `flushes` counts how often the prefix cache was emptied, by
    a refit too. `asleep` holds the tags of the memory given back. `checkpoints` are the
    paths that load, None for all.
    """

    def __init__(
        self,
        model_path: str,
        weight_version: str = "default",
        *,
        checkpoints: Collection[str] | None = None,
        generation_ticks: int = 8,
        clock: Callable[[], float] = time.monotonic,
        changed: threading.Condition | None = None,
        traits: Traits = SGLANG,
    ) -> None:
        weights = Weights(model_path, weight_version)
        super().__init__(weights, generation_ticks, clock, changed or threading.Condition(), traits)
        self.reported = self.weights
        self.flushes = 0
        self.asleep: frozenset[str] = frozenset()
        self._checkpoints = checkpoints
        self._half_loaded = False
        self._seats: list[object] = []

    def pause(self, mode: str) -> None:
        """Shut the door. `mode`, a key of `PAUSE_MODES`, says what becomes of those inside.

        A mode that drains waits for the end of those that run, but not of those that were
        frozen before, and no longer than until another pause freezes or ends them.
        """
        with self._changing():
            self._draining = PAUSE_MODES[mode].drains and not self.frozen
            self.pause_mode = mode
            if self._mode.ends:
                self.abort()
            if self._mode.retracts:
                self._batch.retract()
            if self._draining:
                self._drain()

    def resume(self) -> None:
        """Run again: first the queued, then the parked. No matter if the engine was not paused."""
        with self._changing():
            self.pause_mode = None
            self._batch.end_doomed()
            self._batch.run(Phase.QUEUED)
            self._let_in()

    def flush(self, timeout: float = 0.0, *, retract: bool = False) -> Flush:
        """Empty the prefix cache unless something runs; wait `timeout` seconds for nothing to be in flight.

        With `retract` what runs is in no one's way: its prompts are computed anew.
        """
        with self._changing():
            seconds = min(timeout, threading.TIMEOUT_MAX)
            if timeout and not self.changed.wait_for(lambda: self.stopped or not self.in_flight, seconds):
                return Flush.TIMED_OUT
            self._check_alive()
            if retract:
                self._batch.retract()
            done = self._flush()
            if retract and not self.frozen:
                self._batch.run(Phase.QUEUED)
            return Flush.DONE if done else Flush.BUSY

    def refit(
        self,
        path: str,
        version: str | None = None,
        *,
        flush: bool = True,
        abort: bool = False,
        at_once: bool = False,
        handed: bool = False,
    ) -> Refit:
        """Load other weights; `version` None keeps the version. `handed` over, they need no checkpoint.

        An engine that is frozen, or told to, loads `at_once`, another one when nothing is in
        flight any more, and lets nothing new in before. With `abort` what is in flight is
        ended first.
        """
        with self._changing():
            if abort:
                self.abort()
            with self._turn(at_once):
                self._check_alive()
                if self._traits.needs_memory and "weights" in self.asleep:
                    self.crash("weights loaded into memory that was given back")
                    self._check_alive()
                if not handed and self._checkpoints is not None and path not in self._checkpoints:
                    self._half_loaded = self._traits.half_loads
                    return Refit.NO_CHECKPOINT
                old = self.weights
                self._batch.weights = Weights(path, old.version if version is None else version, old.load + 1)
                self._half_loaded = False
                if flush and not self._flush():
                    return Refit.NOT_FLUSHED
                self.reported = self.weights
                return Refit.DONE

    def rename(self, version: str, *, abort: bool = True) -> None:
        """Give the same weights another version; ends what is in flight unless `abort` is false."""
        with self._changing():
            if abort:
                self.abort()
            self._batch.weights = replace(self.weights, version=version)
            self.reported = replace(self.reported, version=version)

    def sleep(self, tags: frozenset[str], *, discard: bool = False) -> None:
        """Give memory back, with `kv_cache` the prefix cache too. An engine where something runs dies of it.

        With `discard` nothing is kept of the weights: until the next refit they are no
        one's, and their path is empty.
        """
        with self._changing():
            if not self._vacant():
                self.crash("memory released while a request ran")
            self._check_alive()
            if "kv_cache" in tags:
                self._flush()
            self.asleep |= tags
            if discard:
                self._batch.weights = replace(self.weights, path="", load=self.weights.load + 1)

    def wake(self, tags: frozenset[str]) -> None:
        """Take memory again. An engine that is not asleep in all of `tags` dies of it."""
        with self._changing():
            if tags - self.asleep:
                self.crash("memory resumed that was not released")
            self._check_alive()
            self.asleep -= tags

    def rouse(self, tags: frozenset[str] | None = None, *, early: bool = False) -> bool:
        """Take memory again, None for all; whether it is all back.

        Then the engine resumes, with `early` even before.
        """
        with self._changing():
            self.asleep -= self.asleep if tags is None else tags
            if early or not self.asleep:
                self.resume()
            return not self.asleep

    def meet(self, gone: Gone = stays) -> None:
        """Wait for a trainer to join, who will hand over weights; raises `CallerGone`."""
        seat = object()
        with self._changing():
            self._seats.append(seat)
        try:
            self._wait(lambda: seat not in self._seats, (), gone)
        finally:
            with self.changed:
                self._seats = [one for one in self._seats if one is not seat]

    def join(self, timeout: float) -> bool:
        """Be that trainer; whether the engine waited for one, or began to within `timeout` seconds."""
        with self._changing():
            self.changed.wait_for(lambda: self.stopped or self._seats, timeout)
            self._check_alive()
            met = bool(self._seats)
            del self._seats[:1]
            return met

    def wait_until_running(self, timeout: float) -> bool:
        """Whether the engine is not paused, or ceases to be within `timeout` seconds."""
        with self._changing():
            running = self.changed.wait_for(lambda: self.stopped or not self.paused, timeout)
            self._check_alive()
            return running

    # Under the lock.

    @contextlib.contextmanager
    def _turn(self, at_once: bool) -> Iterator[None]:
        """A refit's turn: on an engine that is not frozen, the door shut and nothing in flight."""
        if at_once or self.frozen:
            yield
            return
        self._refits_waiting += 1
        self.changed.notify_all()
        try:
            self.changed.wait_for(lambda: self.stopped or not self.in_flight)
            yield
        finally:
            self._refits_waiting -= 1
            self._let_in()

    def _drain(self) -> None:
        running = self._batch.within(Phase.RUNNING)
        self.changed.notify_all()
        self.changed.wait_for(lambda: self.stopped or self.frozen or all(one.ending for one in running))
        self._check_alive()
        self._draining = self._draining and bool(self.count(Phase.RUNNING))

    def _vacant(self) -> bool:
        """Whether nothing holds on to the cache. The queued do not: their prompts are computed anew."""
        if self._mode.yields:
            self._batch.retract()
        return not self.count(Phase.RUNNING)

    def _flush(self) -> bool:
        if not self._vacant():
            return False
        self._batch.cache.clear()
        self.flushes += 1
        return True

    def _unfit(self) -> str | None:
        if self._traits.needs_memory and self.asleep:
            return "a request ran on memory that was given back"
        return "a request ran on weights that were loaded by half" if self._half_loaded else None
