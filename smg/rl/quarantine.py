"""Whose refit failed: learnt from the calls that go through a client, so that a resume can leave those out."""

import threading
from collections.abc import Iterable
from typing import TYPE_CHECKING

from .engines import ENGINES
from .report import Target
from .results import CallResult, FanoutFailure

if TYPE_CHECKING:
    from .client import RL


def changes_weights(path: str) -> bool:
    """Whether a call of this engine path changes the weights of some kind of engine."""
    return any(path.lstrip("/").startswith(facts.refits) for facts in ENGINES.values())


class RefitWatch:
    """Listens to a client between `begin` and `end`, in whatever thread it is used."""

    def __init__(self, rl: "RL") -> None:
        self._rl, self._lock = rl, threading.Lock()
        self._good: set[str] = set()
        self._bad: set[str] = set()

    def begin(self) -> None:
        self._rl.listeners.append(self._heard)

    def end(self, concerned: Iterable[Target]) -> list[Target]:
        """Those of the concerned whose refit failed, or who had none while others had."""
        if self._heard in self._rl.listeners:
            self._rl.listeners.remove(self._heard)
        with self._lock:
            if not self._good and not self._bad:
                return []  # nobody was refitted: nobody holds half of new weights
            return [t for t in concerned if t.worker_id in self._bad or t.worker_id not in self._good]

    def _heard(self, path: str, results: Iterable[CallResult], failed: Iterable[FanoutFailure]) -> None:
        if changes_weights(path):
            with self._lock:
                for result in results:
                    (self._good if result.ok else self._bad).add(result.worker_id)
                self._bad |= {failure.worker_id for failure in failed}
