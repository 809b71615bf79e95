"""Whose refit failed: learnt from every call of this process, so that a resume can leave those out.

What happened decides, not which client object sent it: all clients tell `began`, `ended` and
`lost`, and every watch that is open hears it.
"""

import threading
from collections.abc import Iterable
from typing import Protocol

from .engines import ENGINES
from .report import Target
from .results import CallResult, FanoutFailure

EVERYBODY = None
"""In place of a worker id: a fan-out, whose targets nobody knows before its report."""


def changes_weights(path: str) -> bool:
    """Whether a call of this engine path changes the weights of some kind of engine."""
    last = path.rstrip("/").rpartition("/")[2]
    return any(word in last for facts in ENGINES.values() for word in facts.refits)


class Watcher(Protocol):
    """Who hears of refits."""

    def began(self, base_url: str, worker_id: str | None) -> None:
        """One is about to be sent, through the gateway at `base_url`."""

    def ended(self, base_url: str, results: Iterable[CallResult], failed: Iterable[FanoutFailure]) -> None:
        """One was answered; each engine is in one of the two, or in both."""

    def lost(self, base_url: str, worker_id: str | None) -> None:
        """One got no answer: it may have been done, or half of it."""


_lock = threading.Lock()
_watchers: list[Watcher] = []


def watch(watcher: Watcher) -> None:
    """Let it hear of every refit of this process from now on."""
    with _lock:
        _watchers.append(watcher)


def unwatch(watcher: Watcher) -> None:
    """Let it hear no more; no matter if it did not."""
    with _lock:
        _watchers[:] = [one for one in _watchers if one is not watcher]


def watchers() -> list[Watcher]:
    """Who hears of a refit that happens now."""
    with _lock:
        return list(_watchers)


class RefitWatch:
    """The refits between `begin` and `end`, of the engines that a pause has to do with."""

    def __init__(self, base_url: str) -> None:
        self._base_url, self._lock = base_url, threading.Lock()
        self._concerned: list[Target] = []
        self._good: set[str] = set()
        self._bad: set[str] = set()

    @property
    def seen(self) -> bool:
        """Whether there was any refit."""
        with self._lock:
            return bool(self._good or self._bad)

    def begin(self, concerned: Iterable[Target]) -> None:
        self._concerned = list(concerned)
        watch(self)

    def end(self) -> list[Target]:
        """Those of the concerned whose last refit failed, or who had none while others had."""
        unwatch(self)
        with self._lock:
            if not self._good and not self._bad:
                return []  # nobody was refitted: nobody holds half of new weights
            return [one for one in self._concerned if not _names(one) & self._good]

    def began(self, base_url: str, worker_id: str | None) -> None:
        """Nothing is known before it has ended."""

    def ended(self, base_url: str, results: Iterable[CallResult], failed: Iterable[FanoutFailure]) -> None:
        lost = [Target.of(failure) for failure in failed]
        answered = [(Target.of(result), result.ok) for result in results]
        bad = {name for target in lost for name in _names(target)}
        with self._lock:
            for target, ok in answered:
                self._note(_names(target), ok and target.worker_id not in bad)
            self._note(bad, good=False)

    def lost(self, base_url: str, worker_id: str | None) -> None:
        if worker_id is EVERYBODY and base_url != self._base_url:
            return
        meant = [one for one in self._concerned if worker_id in (EVERYBODY, one.worker_id)]
        with self._lock:
            self._note({name for target in meant for name in _names(target)}, good=False)

    def _note(self, names: set[str], good: bool) -> None:
        # The last refit counts: a good one lifts what a bad one has done.
        (self._good if good else self._bad).update(names)
        (self._bad if good else self._good).difference_update(names)


def _names(target: Target) -> set[str]:
    """By what an engine is known again: ids change when a gateway restarts, addresses don't."""
    return {name for name in target if name}
