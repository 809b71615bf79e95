"""Which of the things planned for an engine's requests meets which request."""

import random
import threading
from dataclasses import dataclass, replace
from typing import Generic, TypeVar

from . import checks

T = TypeVar("T")


@dataclass(frozen=True)
class Rule(Generic[T]):
    """A `plan` and the requests it is for; raises `ValueError` for what no request can meet.

    `path` is a path, its first slash optional, or `*`; `method` None for any; `times` how
    many requests meet it, None for all until it is removed; `probability` that one of its
    requests meets it, drawn in their order from `random.Random(seed)`.
    """

    plan: T
    path: str
    times: int | None = None
    method: str | None = None
    probability: float = 1.0
    seed: int = 0

    def __post_init__(self) -> None:
        checks.text("path", self.path)
        if self.times is not None:
            checks.whole("times", self.times, 1)
        if self.method is not None:
            checks.text("method", self.method)
        chance = self.probability
        valid = checks.real(chance) and 0 < chance <= 1
        checks.require(valid, f"probability must be more than 0 and at most 1, not {chance!r}")
        checks.whole("seed", self.seed, 0)

    def concerns(self, method: str, path: str) -> bool:
        """Whether a request is one of its own."""
        here = self.path == "*" or "/" + self.path.lstrip("/") == path
        return here and (self.method is None or self.method.upper() == method.upper())


class Schedule(Generic[T]):
    """Rules in the order they were added. Every method may be called from any thread.

    A request meets one plan at most: of the rules it concerns, the first that is not used
    up and whose draw is lucky.
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._entries: list[_Entry[T]] = []

    @property
    def rules(self) -> tuple[Rule[T], ...]:
        """The rules that are not used up, with the `times` that are left."""
        with self._lock:
            return tuple(entry.rest for entry in self._entries)

    @property
    def unused(self) -> tuple[Rule[T], ...]:
        """The rules that no request has met, but for those where chance decides."""
        with self._lock:
            return tuple(one.rule for one in self._entries if not one.used and one.rule.probability == 1)

    def add(self, rule: Rule[T]) -> None:
        """Put a rule after those that are there."""
        with self._lock:
            self._entries.append(_Entry(rule, random.Random(rule.seed), rule.times))

    def take(self, method: str, path: str) -> T | None:
        """The plan that a request meets, which is used up by one."""
        with self._lock:
            for entry in self._entries:
                if entry.rule.concerns(method, path) and entry.lucky():
                    entry.use()
                    self._entries = [one for one in self._entries if one.left != 0]
                    return entry.rule.plan
            return None

    def remove(self, plan: T) -> None:
        """Take out the rules of one plan."""
        with self._lock:
            self._entries = [entry for entry in self._entries if entry.rule.plan is not plan]

    def clear(self) -> None:
        """Take out every rule."""
        with self._lock:
            self._entries = []


@dataclass
class _Entry(Generic[T]):
    rule: Rule[T]
    random: random.Random
    left: int | None
    used: bool = False

    @property
    def rest(self) -> Rule[T]:
        return replace(self.rule, times=self.left)

    def lucky(self) -> bool:
        return self.random.random() < self.rule.probability

    def use(self) -> None:
        self.used = True
        if self.left is not None:
            self.left -= 1
