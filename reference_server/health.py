"""Health checks: each worker's health from a row of good or bad answers.

Contract, chapter "Discovery row" (`health`). Only inference looks at it; control
calls reach a worker of any health.
"""

import threading
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace

from .outcome import Answered, Outcome
from .registry import Registry, Worker


@dataclass(frozen=True)
class HealthPolicy:
    """`interval` and `timeout` in seconds; how many answers in a row change the health."""

    interval: float = 60.0
    timeout: float = 5.0
    failure_threshold: int = 3
    success_threshold: int = 2
    endpoint: str = "/health"


@dataclass(frozen=True)
class Streak:
    """Equal answers in a row."""

    good: bool = True
    length: int = 0

    def then(self, good: bool) -> "Streak":
        return Streak(good, self.length + 1 if good == self.good else 1)

    def health(self, before: str, policy: HealthPolicy) -> str:
        """What this streak makes of a worker that was `ready` or `not_ready`."""
        enough = policy.success_threshold if self.good else policy.failure_threshold
        if self.length < enough:
            return before
        return "ready" if self.good else "not_ready"


class HealthChecks:
    """A thread that asks every worker once an interval, all of them at the same time.

    `ask` gives the outcomes, and gives up when the function it is handed says so.
    """

    def __init__(
        self,
        registry: Registry,
        policy: HealthPolicy,
        ask: Callable[[Sequence[Worker], Callable[[], bool]], Mapping[Worker, Outcome]],
    ) -> None:
        self._registry, self._policy, self._ask = registry, policy, ask
        self._streaks: dict[str, Streak] = {}
        self._closing = threading.Event()
        self._thread = threading.Thread(target=self._run, daemon=True, name="health")
        self._thread.start()

    def close(self) -> None:
        self._closing.set()
        self._thread.join()

    def _run(self) -> None:
        while not self._closing.wait(self._policy.interval):
            workers = [w for w in self._registry.all() if w.connection_mode == "http" and w.health != "draining"]
            for worker, outcome in self._ask(workers, self._closing.is_set).items():
                self._note(worker, isinstance(outcome, Answered) and outcome.succeeded)
            known = {worker.id for worker in workers}
            self._streaks = {id_: streak for id_, streak in self._streaks.items() if id_ in known}

    def _note(self, worker: Worker, good: bool) -> None:
        streak = self._streaks[worker.id] = self._streaks.get(worker.id, Streak()).then(good)
        self._registry.change(worker.id, lambda w: self._judged(w, streak))

    def _judged(self, worker: Worker, streak: Streak) -> Worker:
        # It may have begun to drain since it was asked.
        if worker.health == "draining":
            return worker
        return replace(worker, health=streak.health(worker.health, self._policy))
