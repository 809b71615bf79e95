"""Health checks: each worker's health from a row of good or bad answers.

Contract, chapter "Discovery row" (`health`). Only inference looks at it; control
calls reach a worker of any health.
"""

import threading
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace

from .flags import documented, setting
from .outcome import Answered, Outcome
from .registry import Registry, Worker


@documented
@dataclass(frozen=True)
class HealthPolicy:
    """How workers are asked for their health: `HealthPolicy(interval=10, failure_threshold=1)`."""

    interval: float = setting(
        60, "seconds between two health checks", flags=["health-check-interval-secs"], parse=int, metavar="S"
    )
    timeout: float = setting(
        5, "seconds that an engine has to answer one", flags=["health-check-timeout-secs"], parse=int, metavar="S"
    )
    failure_threshold: int = setting(
        3, "failed checks in a row that make a worker not ready", flags=["health-failure-threshold"], metavar="N"
    )
    success_threshold: int = setting(
        2, "good checks in a row that make a worker ready again", flags=["health-success-threshold"], metavar="N"
    )
    endpoint: str = setting(
        "/health", "path of an engine that is asked", flags=["health-check-endpoint"], metavar="PATH"
    )


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
