"""Circuit breakers: an engine that keeps failing inference gets a rest.

Only inference counts and only inference is held back: control calls neither open a
breaker nor stop at one.
"""

import threading
import time
from collections.abc import Callable
from dataclasses import dataclass

from .flags import documented, setting


@documented
@dataclass(frozen=True)
class BreakerPolicy:
    """When an engine gets a rest from inference: `BreakerPolicy(failures=3, seconds=10)`."""

    failures: int = setting(
        10,
        "failed inference requests in a row that open the breaker of an engine",
        flags=["cb-failure-threshold"],
        metavar="N",
    )
    seconds: float = setting(
        60,
        "seconds that a breaker is open before a request may try again",
        flags=["cb-timeout-duration-secs"],
        parse=int,
        metavar="S",
    )
    enabled: bool = setting(
        True, "give an engine that keeps failing inference a rest", flags=["disable-circuit-breaker"]
    )


@dataclass
class _State:
    failures: int = 0
    open_until: float = 0.0


class Breakers:
    """One breaker for each worker id. Safe to use from any thread."""

    def __init__(self, policy: BreakerPolicy, clock: Callable[[], float] = time.monotonic) -> None:
        self._policy, self._clock = policy, clock
        self._lock = threading.Lock()
        self._states: dict[str, _State] = {}

    def allows(self, worker_id: str) -> bool:
        """Whether this worker may be sent a request now."""
        with self._lock:
            state = self._states.get(worker_id)
            return state is None or state.open_until <= self._clock()

    def note(self, worker_id: str, good: bool) -> None:
        """Count the outcome of a request that this worker was sent."""
        if not self._policy.enabled:
            return
        with self._lock:
            if good:
                self._states.pop(worker_id, None)
                return
            state = self._states.setdefault(worker_id, _State())
            state.failures += 1
            if state.failures >= self._policy.failures:
                state.open_until = self._clock() + self._policy.seconds
