"""An engine without a dialect: whether it runs, its weights, memory, prefix cache and generations.

What a pause does is decided by two tables. `_NEXT` below has the run states and the events
that lead from one to another; every change of the run state goes through it. `PAUSE_MODES`
(`traits`) says what a mode does to the generations that are in flight.

Requests come in through a door. While the engine is paused, or a refit waits for its turn,
the door is shut and what arrives is parked, or refused; when it opens, the parked come in,
in the order of their arrival. Inside, each generation gets a token a step of the clock,
unless the engine is frozen.
"""

import contextlib
import enum
import threading
import time
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import replace

from .batch import Batch
from .generation import Adapter, Generation, Phase, Progress, Wanted
from .traits import DEFAULT, PAUSE_MODES, RUNNING, PauseMode, Traits
from .weights import Weights

Gone = Callable[[], bool]
"""Tells whether the caller who waits has gone away."""

_POLL_SECONDS = 0.05


class Run(enum.Enum):
    """Whether generations get tokens, and whether new ones come in."""

    OPEN = "tokens are made, new requests come in"
    DRAINING = "paused: tokens are made for those that run, nobody new comes in"
    FROZEN = "paused: no tokens, nobody new comes in"


class Event(enum.Enum):
    """What changes the run state."""

    PAUSE = "a pause in a mode that freezes or retracts"
    PAUSE_TO_DRAIN = "a pause in a mode that lets those that run come to their end, or aborts them"
    DRAINED = "the last that ran has ended"
    RESUME = "a resume"


_NEXT: Mapping[tuple[Run, Event], Run] = {
    (Run.OPEN, Event.PAUSE): Run.FROZEN,
    (Run.OPEN, Event.PAUSE_TO_DRAIN): Run.DRAINING,
    (Run.OPEN, Event.RESUME): Run.OPEN,
    (Run.DRAINING, Event.PAUSE): Run.FROZEN,
    (Run.DRAINING, Event.PAUSE_TO_DRAIN): Run.DRAINING,
    (Run.DRAINING, Event.DRAINED): Run.FROZEN,
    (Run.DRAINING, Event.RESUME): Run.OPEN,
    (Run.FROZEN, Event.PAUSE): Run.FROZEN,
    # Those that were frozen before are not waited for: they would never end.
    (Run.FROZEN, Event.PAUSE_TO_DRAIN): Run.FROZEN,
    (Run.FROZEN, Event.RESUME): Run.OPEN,
}


class EngineStopped(Exception):
    """The engine stopped or died while somebody waited for it."""


class CallerGone(Exception):
    """The caller went away; what it asked for is removed."""


class NothingNew(Exception):
    """The engine is paused, and refuses what arrives in such a pause."""


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


class Adapted(enum.Enum):
    """What came of loading an adapter."""

    DONE = "it serves"
    TAKEN = "there is one of this name, which stays"
    NO_CHECKPOINT = "nothing to load there"


def stays() -> bool:
    """A caller that does not go away."""
    return False


class EngineState:
    """The whole state of an engine. Every method may be called from any thread.

    `weights` serve; `reported` is what the engine says of itself, which differs after a
    refit whose flush failed. `flushes` counts how often the prefix cache was emptied, by
    a refit too. `asleep` holds the tags of the memory given back. `checkpoints` are the
    paths that load, None for all. `crashed` is why the engine died, None while it lives.

    `changed` is notified after each change; its lock guards everything. `clock` gives
    seconds. Once the engine stopped or died, whoever would change it or wait for it gets
    `EngineStopped`.
    """

    def __init__(
        self,
        model_path: str,
        weight_version: str = "default",
        *,
        checkpoints: Collection[str] | None = None,
        generation_ticks: int = 8,
        abort_ticks: int = 0,
        clock: Callable[[], float] = time.monotonic,
        changed: threading.Condition | None = None,
        traits: Traits = DEFAULT,
    ) -> None:
        self.changed = changed or threading.Condition()
        self._pause_mode: str | None = None
        self.crashed: str | None = None
        self._run = Run.OPEN
        self._stopped = False
        self._traits, self._clock = traits, clock
        self._batch = Batch(generation_ticks, Weights(model_path, weight_version))
        self.reported = self.weights
        self.flushes = 0
        self.asleep: frozenset[str] = frozenset()
        self._checkpoints = checkpoints
        self._adapters: dict[str, str] = {}
        self._half_loaded = False
        self._refits_waiting = self._pauses = 0
        self._abort_ticks = abort_ticks
        # Who holds the pause lock, and behind it who waits for it.
        self._line: list[object] = []
        self._waiting_for_trainer: list[object] = []

    @property
    def weights(self) -> Weights:
        """What serves."""
        return self._batch.weights

    @property
    def pause_mode(self) -> str | None:
        """The key of `PAUSE_MODES` it was paused with last; None when it is not paused."""
        return self._pause_mode

    @property
    def paused(self) -> bool:
        return self._run is not Run.OPEN

    @property
    def frozen(self) -> bool:
        """Whether no generation gets a token."""
        return self._run is Run.FROZEN

    @property
    def pausing(self) -> bool:
        """Whether a pause waits for the end of those that run."""
        return self._pauses > 0

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

        Those that run end with the last of `abort_ticks`, 0 for at once. The parked stay,
        unless the engine has them in its own queue. What an `in_place` pause has frozen ends
        when the engine resumes, not before.
        """
        with self._changing():
            parked = (Phase.PARKED,) if self._traits.queues else ()
            inside = self._batch.within(Phase.RUNNING, Phase.QUEUED, *parked)
            meant = [one for one in inside if id in (None, one.wanted.id)]
            doomed = [one for one in meant if self._mode.dooms and one.phase is Phase.RUNNING]
            self._batch.doom(doomed)
            self._end([one for one in meant if one not in doomed])
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
        """See `clock.Steps`."""
        with self.changed:
            self.changed.wait_for(lambda: self.stopped or (not self.frozen and self.count(Phase.RUNNING)))
            return not self.stopped

    def step(self) -> None:
        """See `clock.Steps`. Nothing happens on an engine that is frozen."""
        with self.changed:
            if self.frozen:
                return
            why = self._unfit()
            if why and self.count(Phase.RUNNING):
                self.crash(why)
                return
            self._batch.step()
            self.changed.notify_all()

    def pause(self, mode: str) -> None:
        """Shut the door. `mode`, a key of `PAUSE_MODES`, says what becomes of those inside.

        A mode that drains waits for the end of those that run, but not of those that were
        frozen before, and no longer than until another pause freezes or ends them. Traits say
        in which modes it holds the pause lock until then.
        """
        with self._changing(), contextlib.ExitStack() as lock:
            lock.enter_context(self._pause_lock())
            self._pause_mode = mode
            self._enter(Event.PAUSE_TO_DRAIN if self._mode.drains else Event.PAUSE)
            if self._mode.ends:
                self.abort()
            if self._mode.retracts:
                self._batch.retract()
            if mode not in self._traits.locks:
                lock.close()
            if self._run is Run.DRAINING:
                self._drain()

    def resume(self) -> None:
        """Run again: first the queued, then the parked. No matter if the engine was not paused."""
        with self._changing(), self._pause_lock():
            self._pause_mode = None
            self._enter(Event.RESUME)
            self._batch.end_doomed()
            self._go(Phase.QUEUED)
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
                self._go(Phase.QUEUED)
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

        An engine that is frozen, or aborts what is in flight for a pause, or is told to, loads
        `at_once`; another one when nothing is in flight any more, and lets nothing new in
        before. With `abort` what is in flight is ended first.
        """
        with self._changing():
            if abort:
                self.abort()
            with self._turn(at_once):
                self._check_alive()
                if self._traits.needs_memory and "weights" in self.asleep:
                    self.crash("weights loaded into memory that was given back")
                    self._check_alive()
                if not handed and not self._loads(path):
                    self._half_loaded = self._traits.half_loads
                    return Refit.NO_CHECKPOINT
                old = self.weights
                self._batch.weights = Weights(path, old.version if version is None else version, old.load + 1)
                self._half_loaded = False
                if flush and not self._flush():
                    return Refit.NOT_FLUSHED
                self.reported = self.weights
                return Refit.DONE

    @contextlib.contextmanager
    def handing_over(self) -> Iterator[None]:
        """Be a call that hands over weights: it comes after a pause in flight, and paused it holds up the resume."""
        with contextlib.ExitStack() as lock:
            with self._changing():
                lock.enter_context(self._pause_lock())
                if not self.paused:
                    lock.close()
            yield

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

    def release(self, tags: frozenset[str]) -> None:
        """Give memory back, as `sleep` does. An engine that is asleep in any of `tags` dies of it."""
        with self._changing():
            if tags & self.asleep:
                self.crash("memory released twice")
            self._check_alive()
            self.sleep(tags)

    def wake(self, tags: frozenset[str]) -> None:
        """Take memory again; who waited for it runs. An engine that is not asleep in all of `tags` dies of it."""
        with self._changing():
            if tags - self.asleep:
                self.crash("memory resumed that was not released")
            self._check_alive()
            self.asleep -= tags
            if not self.paused:
                self._go(Phase.QUEUED)

    def rouse(self, tags: frozenset[str] | None = None, *, early: bool = False) -> bool:
        """Take memory again, None for all; whether it is all back.

        Then the engine resumes, with `early` even before.
        """
        with self._changing():
            self.asleep -= self.asleep if tags is None else tags
            if early or not self.asleep:
                self.resume()
            return not self.asleep

    @property
    def adapters(self) -> dict[str, str]:
        """The LoRA adapters that requests may choose: name -> path."""
        with self.changed:
            return dict(self._adapters)

    def adapter(self, name: str) -> Adapter | None:
        """The adapter of a name, None if there is none."""
        path = self.adapters.get(name)
        return None if path is None else Adapter(name, path)

    def load_adapter(self, name: str, path: str, *, in_place: bool = False) -> Adapted:
        """Load an adapter; `in_place` it takes the place of one of the same name."""
        with self._changing():
            if name in self._adapters and not in_place:
                return Adapted.TAKEN
            if not self._loads(path):
                return Adapted.NO_CHECKPOINT
            self._adapters[name] = path
            return Adapted.DONE

    def unload_adapter(self, name: str, *, wait: bool = False) -> bool:
        """Forget an adapter, and `wait` for the end of the requests in flight that use it; whether it was there."""
        with self._changing():
            if self._adapters.pop(name, None) is None:
                return False
            self.changed.notify_all()
            self.changed.wait_for(lambda: self.stopped or not wait or not self._users(name))
            self._check_alive()
            return True

    def wait_for_trainer(self, gone: Gone = stays) -> None:
        """Wait for a trainer to join, who will hand over weights; raises `CallerGone`."""
        place = object()
        with self._changing():
            self._waiting_for_trainer.append(place)
        try:
            self._wait(lambda: place not in self._waiting_for_trainer, (), gone)
        finally:
            with self.changed:
                self._waiting_for_trainer = [one for one in self._waiting_for_trainer if one is not place]

    def join(self, timeout: float) -> bool:
        """Be that trainer; whether the engine waited for one, or began to within `timeout` seconds."""
        with self._changing():
            self.changed.wait_for(lambda: self.stopped or self._waiting_for_trainer, timeout)
            self._check_alive()
            waited = bool(self._waiting_for_trainer)
            del self._waiting_for_trainer[:1]
            return waited

    def wait_until_running(self, timeout: float) -> bool:
        """Whether a request would get a token now, or within `timeout` seconds: no pause, and the memory there."""
        with self._changing():
            running = self.changed.wait_for(lambda: self.stopped or not (self.paused or self._dormant), timeout)
            self._check_alive()
            return running

    def twin(self) -> "EngineState":
        """Another engine in the same pause, asleep alike, with the same weights; every checkpoint loads there.

        No generation is copied.
        """
        with self.changed:
            weights, length = self.weights, self._batch.natural_length
            twin = EngineState(weights.path, weights.version, generation_ticks=length, traits=self._traits)
            twin._run = Run.FROZEN if self.paused else Run.OPEN
            twin._pause_mode, twin.asleep = self._pause_mode, self.asleep
            twin._adapters = self.adapters
            return twin

    # From here on, whoever calls holds the lock.

    @property
    def _mode(self) -> PauseMode:
        return RUNNING if self._pause_mode is None else PAUSE_MODES[self._pause_mode]

    def _enter(self, event: Event) -> None:
        self._run = _NEXT[self._run, event]

    @contextlib.contextmanager
    def _changing(self) -> Iterator[None]:
        with self.changed:
            self._check_alive()
            yield
            self.changed.notify_all()

    @contextlib.contextmanager
    def _pause_lock(self) -> Iterator[None]:
        """Hold the lock of pauses and resumes, which who comes first gets first."""
        place = object()
        with self.changed:
            self._line.append(place)
        try:
            with self.changed:
                if self._line[0] is not place:
                    self.changed.notify_all()
                    self.changed.wait_for(lambda: self.stopped or self._line[0] is place)
                self._check_alive()
            yield
        finally:
            with self.changed:
                self._line.remove(place)
                if self._line:
                    self.changed.notify_all()

    def _end(self, generations: Sequence[Generation]) -> None:
        """Abort: those that run come to it with the ticks, the others at once."""
        ticking = self._abort_ticks and not self.frozen
        lingering = [one for one in generations if ticking and one.phase is Phase.RUNNING]
        self._batch.linger(lingering, self._abort_ticks)
        self._batch.end([one for one in generations if one not in lingering], "abort")

    def _check_alive(self) -> None:
        if self.stopped:
            raise EngineStopped

    def _loads(self, path: str) -> bool:
        """Whether there is something to load at a path."""
        return self._checkpoints is None or path in self._checkpoints

    def _users(self, name: str) -> list[Generation]:
        """The generations in flight that use an adapter."""
        inside = self._batch.within(Phase.RUNNING, Phase.QUEUED)
        return [one for one in inside if one.wanted.adapter is not None and one.wanted.adapter.name == name]

    @property
    def _dormant(self) -> bool:
        """Whether who would run has to wait for memory."""
        return bool(self.asleep) and not self._traits.needs_memory

    def _go(self, phase: Phase) -> None:
        """Those in `phase` run, or queue for memory."""
        if self._dormant:
            self._batch.queue(phase)
        else:
            self._batch.run(phase)

    def _let_in(self) -> None:
        """The parked come in, if the door is open."""
        if not self.paused and not self._refits_waiting:
            self._go(Phase.PARKED)

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

    @contextlib.contextmanager
    def _turn(self, at_once: bool) -> Iterator[None]:
        """A refit's turn: on an engine that is not frozen, the door shut and nothing in flight."""
        if at_once or self.frozen or self._mode.ends:
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
        self._pauses += 1
        self.changed.notify_all()
        self.changed.wait_for(lambda: self.stopped or self.frozen or all(one.ending for one in running))
        self._pauses -= 1
        self._check_alive()
        if self._run is Run.DRAINING and not self.count(Phase.RUNNING):
            self._enter(Event.DRAINED)

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
        """Why generating would kill the engine, None if it would not."""
        if self._traits.needs_memory and self.asleep:
            return "a request ran on memory that was given back"
        return "a request ran on weights that were loaded by half" if self._half_loaded else None
