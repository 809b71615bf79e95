"""The generations of one engine, from arrival to end. No locks, no waiting, no modes."""

from collections.abc import Iterable, Sequence

from .generation import Ending, Generation, Phase, Wanted
from .weights import PrefixCache, Weights


class DuplicateRequest(ValueError):
    """The id of a new request is the id of one that has not ended; `id` is that."""

    def __init__(self, id: str) -> None:
        super().__init__(f"there is a request {id!r} already")
        self.id = id


class Batch:
    """The generations that have not ended, by id, in the order of their arrival."""

    def __init__(self, natural_length: int, weights: Weights) -> None:
        self.weights = weights
        self.cache = PrefixCache()
        self.natural_length = natural_length
        self._generations: dict[str, Generation] = {}

    def add(self, wanted: Sequence[Wanted], now: float) -> list[Generation]:
        """Take in requests, all or none, and leave them parked."""
        ids = [one.id for one in wanted]
        for position, id in enumerate(ids):
            if id in self._generations or id in ids[:position]:
                raise DuplicateRequest(id)
        new = [Generation(one, self.natural_length, self.weights, now) for one in wanted]
        self._generations.update(zip(ids, new, strict=True))
        return new

    def within(self, *phases: Phase) -> list[Generation]:
        """The generations in one of `phases`."""
        return [generation for generation in self._generations.values() if generation.phase in phases]

    def run(self, phase: Phase) -> None:
        """Let those in `phase` run."""
        for generation in self.within(phase):
            generation.run(self.cache, self.weights)
        self._forget_ended()

    def queue(self, phase: Phase) -> None:
        """Let those in `phase` wait in the queue to run."""
        for generation in self.within(phase):
            generation.phase = Phase.QUEUED

    def retract(self) -> None:
        """Put those that run back into the queue."""
        for generation in self.within(Phase.RUNNING):
            generation.retract()

    def doom(self, generations: Iterable[Generation]) -> None:
        """Have generations end, aborted, at the next `end_doomed`."""
        for generation in generations:
            generation.doomed = True

    def end_doomed(self) -> None:
        self.end([generation for generation in self._generations.values() if generation.doomed], "abort")

    def linger(self, generations: Iterable[Generation], ticks: int) -> None:
        """Have generations end, aborted, with the last of `ticks` from when they were first told to."""
        for generation in generations:
            if generation.abort_in is None:
                generation.abort_in = ticks

    def step(self) -> None:
        """A token for each that runs and is not aborted."""
        for generation in self.within(Phase.RUNNING):
            generation.advance(self.weights)
        self._forget_ended()

    def end(self, generations: Iterable[Generation], kind: str) -> None:
        """End generations before their time; those that have ended stay as they are."""
        for generation in generations:
            if generation.ending is None:
                generation.end(Ending(kind, queued=generation.phase is Phase.QUEUED))
        self._forget_ended()

    def _forget_ended(self) -> None:
        self._generations = {id: one for id, one in self._generations.items() if one.ending is None}
