"""The serving half of an engine: requests arrive, wait, get their tokens, end.

Requests come in through a door. While the engine is paused, or a refit waits for
its turn, the door is shut and what arrives is parked, or refused; when it opens, the
parked come in, in the order of their arrival. Inside, each generation gets a token a
tick, unless a pause has frozen them.
"""

import abc
import contextlib
import threading
from collections.abc import Callable, Iterator, Sequence

from .batch import Batch
from .generation import Generation, Phase, Progress, Wanted
from .traits import PAUSE_MODES, RUNNING, PauseMode, Traits
from .weights import Weights

Gone = Callable[[], bool]
"""Tells whether the caller who waits has gone away."""

_POLL_SECONDS = 0.05


class EngineStopped(Exception):
    """The engine stopped or died while somebody waited for it."""


class CallerGone(Exception):
    """The caller went away; what it asked for is removed."""


class NothingNew(Exception):
    """The engine is paused, and refuses what arrives in such a pause."""


def stays() -> bool:
    """A caller that does not go away."""
    return False


class Serving(abc.ABC):
    """Every method may be called from any thread.

    `changed` is notified after each change; its lock guards everything. `crashed` is
    why the engine died, None while it lives. `clock` gives seconds. Once the engine
    stopped or died, whoever would change it or wait for it gets `EngineStopped`.
    """

    def __init__(
        self,
        weights: Weights,
        generation_ticks: int,
        clock: Callable[[], float],
        changed: threading.Condition,
        traits: Traits,
    ) -> None:
        self.changed = changed
        self.pause_mode: str | None = None
        self.crashed: str | None = None
        self._traits = traits
        self._draining = False
        self._stopped = False
        self._refits_waiting = 0
        self._batch = Batch(generation_ticks, weights)
        self._clock = clock

    @property
    def weights(self) -> Weights:
        """What serves."""
        return self._batch.weights

    @property
    def paused(self) -> bool:
        return self.pause_mode is not None

    @property
    def frozen(self) -> bool:
        """Whether no generation gets a token: paused, and not in order to drain."""
        return self.paused and not self._draining

    @property
    def stopped(self) -> bool:
        return self._stopped or self.crashed is not None

    @property
    def in_flight(self) -> int:
        """How many generations have begun and not ended."""
        return self.count(Phase.RUNNING, Phase.QUEUED)

    def count(self, *phases: Phase) -> int:
        """How many generations are in one of `phases`."""
        with self.changed:
            return len(self._batch.within(*phases))

    def arrive(self, wanted: Sequence[Wanted]) -> list[Generation]:
        """Take in requests, all or none, without waiting; raises `DuplicateRequest` and `NothingNew`."""
        with self._changing():
            if self.pause_mode in self._traits.refuses:
                raise NothingNew
            new = self._batch.add(wanted, self._clock())
            self._let_in()
            return new

    def results(self, generations: Sequence[Generation], gone: Gone = stays) -> list[Progress]:
        """Wait for the end of generations; raises `CallerGone`, and then they are removed."""
        self._wait(lambda: all(one.ending for one in generations), generations, gone)
        return [one.progress(self._clock()) for one in generations]

    def stream(self, generations: Sequence[Generation], gone: Gone = stays) -> Iterator[tuple[int, Progress]]:
        """Every token of generations as it comes, with the generation's index; the last has the ending."""
        sent = dict.fromkeys(range(len(generations)), 0)
        while sent:
            self._wait(lambda: any(generations[i].past(count) for i, count in sent.items()), generations, gone)
            for index, count in list(sent.items()):
                with self.changed:
                    now = generations[index].progress(self._clock())
                sent[index] = len(now.tokens)
                if now.ending:
                    del sent[index]
                for moment in now.since(count):
                    yield index, moment

    def drop(self, generations: Sequence[Generation]) -> None:
        """Remove generations whose caller has gone."""
        with self.changed:
            self._batch.end(generations, "gone")
            self.changed.notify_all()

    def abort(self, id: str | None = None) -> int:
        """End the generation that has this id, None for all; how many that were.

        The parked stay, unless the engine has them in its own queue. What an `in_place`
        pause has frozen ends when the engine resumes, not before.
        """
        with self._changing():
            parked = (Phase.PARKED,) if self._traits.queues else ()
            inside = self._batch.within(Phase.RUNNING, Phase.QUEUED, *parked)
            meant = [one for one in inside if id in (None, one.wanted.id)]
            doomed = [one for one in meant if self._mode.dooms and one.phase is Phase.RUNNING]
            self._batch.doom(doomed)
            self._batch.end([one for one in meant if one not in doomed], "abort")
            return len(meant)

    def crash(self, reason: str) -> None:
        """Die: neither who waits nor who comes later gets an answer."""
        with self.changed:
            self.crashed = reason
            self.changed.notify_all()

    def stop(self) -> None:
        """Let everyone who waits go, with `EngineStopped`."""
        with self.changed:
            self._stopped = True
            self.changed.notify_all()

    def wait_for_work(self) -> bool:
        """See `ticks.Steps`."""
        with self.changed:
            self.changed.wait_for(lambda: self.stopped or (not self.frozen and self.count(Phase.RUNNING)))
            return not self.stopped

    def step(self) -> None:
        """See `ticks.Steps`. Nothing happens on an engine that is frozen."""
        with self.changed:
            if self.frozen:
                return
            why = self._unfit()
            if why and self.count(Phase.RUNNING):
                self.crash(why)
                return
            self._batch.step()
            self.changed.notify_all()

    # Under the lock.

    @property
    def _mode(self) -> PauseMode:
        return RUNNING if self.pause_mode is None else PAUSE_MODES[self.pause_mode]

    @abc.abstractmethod
    def _unfit(self) -> str | None:
        """Why generating would kill the engine, None if it would not."""

    @contextlib.contextmanager
    def _changing(self) -> Iterator[None]:
        with self.changed:
            self._check_alive()
            yield
            self.changed.notify_all()

    def _check_alive(self) -> None:
        if self.stopped:
            raise EngineStopped

    def _let_in(self) -> None:
        """The parked come in, if the door is open."""
        if not self.paused and not self._refits_waiting:
            self._batch.run(Phase.PARKED)

    def _wait(self, done: Callable[[], bool], generations: Sequence[Generation], gone: Gone) -> None:
        while True:
            with self.changed:
                if done():
                    return
                self._check_alive()
                self.changed.wait(_POLL_SECONDS)
            if gone():
                self.drop(generations)
                raise CallerGone
