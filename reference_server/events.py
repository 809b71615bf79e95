"""What the control plane tells its observers (metrics, logs, tests)."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from .outcome import Outcome
from .registry import Worker


@dataclass(frozen=True)
class CallEnded:
    """One engine call has its outcome. Cancelled calls leave no event."""

    worker: Worker
    method: str
    path: str
    outcome: Outcome
    seconds: float


@dataclass(frozen=True)
class FanoutEnded:
    """One fan-out has resolved its targets and has all their outcomes."""

    path: str
    selector: str
    outcomes: Sequence[Outcome]
    seconds: float


Observer = Callable[[CallEnded | FanoutEnded], None]
