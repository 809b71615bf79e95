"""An engine without a dialect: weights, run state, prefix cache, generations."""

import contextlib
import enum
import threading
import time
from collections.abc import Callable, Collection, Iterator, Mapping
from dataclasses import replace

from .batch import Batch
from .generations import Phase
from .serving import Serving
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


PAUSE_MODES: Mapping[str, Callable[[Batch], None]] = {
    "abort": lambda batch: batch.end(batch.within(Phase.RUNNING, Phase.QUEUED), "abort"),
    "retract": lambda batch: batch.retract(),
    "in_place": lambda batch: None,
}
"""What becomes of the generations in flight when the engine is paused; none gets a token before it resumes."""


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
    ) -> None:
        weights = Weights(model_path, weight_version)
        super().__init__(weights, generation_ticks, clock, changed or threading.Condition())
        self.reported = self.weights
        self.flushes = 0
        self.asleep: frozenset[str] = frozenset()
        self._checkpoints = checkpoints

    def pause(self, mode: str) -> None:
        """Shut the door. `mode`, a key of `PAUSE_MODES`, says what becomes of those inside."""
        with self._changing():
            self.pause_mode = mode
            PAUSE_MODES[mode](self._batch)

    def resume(self) -> None:
        """Run again: first the queued, then the parked. No matter if the engine was not paused."""
        with self._changing():
            self.pause_mode = None
            self._batch.end_doomed()
            self._batch.run(Phase.QUEUED)
            self._let_in()

    def flush(self, timeout: float = 0.0) -> Flush:
        """Empty the prefix cache unless something runs; wait `timeout` seconds for nothing to be in flight."""
        with self._changing():
            seconds = min(timeout, threading.TIMEOUT_MAX)
            if timeout and not self.changed.wait_for(lambda: self.stopped or not self.in_flight, seconds):
                return Flush.TIMED_OUT
            self._check_alive()
            return Flush.DONE if self._flush() else Flush.BUSY

    def refit(self, path: str, version: str | None = None, *, flush: bool = True, abort: bool = False) -> Refit:
        """Load other weights; `version` None keeps the version.

        A paused engine loads at once, another one when nothing is in flight any more, and
        lets nothing new in before. With `abort` what is in flight is ended first.
        """
        with self._changing():
            if abort:
                self.abort()
            with self._turn():
                self._check_alive()
                if self._checkpoints is not None and path not in self._checkpoints:
                    return Refit.NO_CHECKPOINT
                old = self.weights
                self._batch.weights = Weights(path, old.version if version is None else version, old.load + 1)
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

    def sleep(self, tags: frozenset[str]) -> None:
        """Give memory back, with `kv_cache` the prefix cache too. An engine where something runs dies of it."""
        with self._changing():
            if self.count(Phase.RUNNING):
                self.crash("memory released while a request ran")
            self._check_alive()
            if "kv_cache" in tags:
                self._flush()
            self.asleep |= tags

    def wake(self, tags: frozenset[str]) -> None:
        """Take memory again. An engine that is not asleep in all of `tags` dies of it."""
        with self._changing():
            if tags - self.asleep:
                self.crash("memory resumed that was not released")
            self._check_alive()
            self.asleep -= tags

    def wait_until_running(self, timeout: float) -> bool:
        """Whether the engine is not paused, or ceases to be within `timeout` seconds."""
        with self._changing():
            running = self.changed.wait_for(lambda: self.stopped or not self.paused, timeout)
            self._check_alive()
            return running

    # Under the lock.

    @contextlib.contextmanager
    def _turn(self) -> Iterator[None]:
        """A refit's turn: on an engine that is not paused, the door shut and nothing in flight."""
        if self.paused:
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

    def _flush(self) -> bool:
        # The queued hold nothing of the cache: their prompts are computed anew.
        if self.count(Phase.RUNNING):
            return False
        self._batch.cache.clear()
        self.flushes += 1
        return True
