"""What is to go wrong with an engine, and who is held: the script that its requests play."""

import contextlib
import math
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager
from typing import Protocol

from ...httpd.messages import Reply
from ..fastapi.routing import Call
from ..state.machine import CallerGone, EngineStopped
from .fault import Fault
from .routes import Routes
from .schedule import Rule, Schedule

_POLL_SECONDS = 0.05


class Actor(Protocol):
    """The engine of a script, from its start to its stop."""

    @property
    def kind(self) -> str: ...

    @property
    def stopped(self) -> bool: ...

    def answer(self, call: Call) -> Reply: ...

    def rehearse(self, call: Call) -> Reply: ...

    def failure(self, path: str, message: str) -> object: ...

    def crash(self, restart: bool) -> None: ...


class HeldRequests:
    """Requests that are held before they have any effect, until `release`. Released, they go on,
    even if their caller has gone away."""

    def __init__(self, path: str, changed: threading.Condition) -> None:
        self.path, self._changed = path, changed
        self.released = False
        self._entered = self._left = 0

    @property
    def entered(self) -> int:
        """How many requests have been held so far."""
        return self._entered

    def wait_entered(self, timeout: float = 10.0, *, count: int = 1) -> None:
        """Wait until `count` requests have come; raises `TimeoutError` after `timeout` seconds."""
        self._wait(lambda: self._entered >= count, timeout, "nobody called")

    def wait_hung_up(self, timeout: float = 10.0, *, count: int = 1) -> None:
        """Wait until `count` callers of those held have gone away; raises `TimeoutError`."""
        self._wait(lambda: self._left >= count, timeout, "nobody hung up on")

    def release(self) -> None:
        """Let those that are held go on, and hold nobody else."""
        with self._changed:
            self.released = True
            self._changed.notify_all()

    def hold(self, stopped: Callable[[], bool], gone: Callable[[], bool]) -> None:
        """Be a request that is held; raises `EngineStopped`."""
        left = False
        with self._changed:
            self._entered += 1
            self._changed.notify_all()
        while not self.released:
            if not left and gone():
                left = True
                with self._changed:
                    self._left += 1
                    self._changed.notify_all()
            with self._changed:
                self._changed.wait_for(lambda: self.released or stopped(), _POLL_SECONDS)
            if stopped():
                raise EngineStopped

    def _wait(self, condition: Callable[[], bool], timeout: float, what: str) -> None:
        with self._changed:
            if not self._changed.wait_for(condition, timeout):
                raise TimeoutError(f"{what} {self.path} within {timeout:g} s")


class Script:
    """The faults and holds of an engine; `changed` is its condition, `routes` what they can be
    for. Every method may be called from any thread."""

    def __init__(self, changed: threading.Condition, routes: Routes) -> None:
        self._changed, self._routes = changed, routes
        self._faults = Schedule[Fault]()
        self._holds = Schedule[HeldRequests]()
        self._clearings = 0

    @property
    def faults(self) -> tuple[Rule[Fault], ...]:
        """What is still to go wrong."""
        return self._faults.rules

    @property
    def unused(self) -> tuple[Rule[Fault], ...]:
        """What was to go wrong, and did not because nobody called."""
        return self._faults.unused

    def fail(self, rule: Rule[Fault]) -> None:
        """Let a fault happen to the requests of a rule; raises `ValueError` for a path that is no route."""
        self._routes.check(rule.path)
        self._faults.add(rule)

    def clear(self) -> None:
        """Let nothing go wrong any more; who waits because of a fault waits no longer."""
        with self._changed:
            self._faults.clear()
            self._clearings += 1
            self._changed.notify_all()

    def hold(self, path: str, times: int | None, method: str | None) -> AbstractContextManager[HeldRequests]:
        """Hold requests until the block ends; raises `ValueError`, before it begins, for a path that is no route."""
        self._routes.check(path)
        held = HeldRequests(path, self._changed)
        return self._holding(held, Rule(held, path, times, method))

    @contextlib.contextmanager
    def _holding(self, held: HeldRequests, rule: Rule[HeldRequests]) -> Iterator[HeldRequests]:
        self._holds.add(rule)
        try:
            yield held
        finally:
            self._holds.remove(held)
            held.release()

    def play(self, call: Call, actor: Actor) -> Reply:
        """Answer a request, after what is planned for it."""
        method, path = call.request.method, call.path
        held = self._holds.take(method, path)
        if held is not None:
            held.hold(lambda: actor.stopped, call.gone)
        with self._changed:
            fault, clearing = self._faults.take(method, path), self._clearings
        if fault is None:
            return actor.answer(call)
        return fault.play(_Request(call, actor, self._changed, lambda: self._clearings > clearing))


class _Request:
    """The stage of a fault; see `faults.Stage`."""

    def __init__(self, call: Call, actor: Actor, changed: threading.Condition, cleared: Callable[[], bool]) -> None:
        self._call, self._actor, self._changed, self._cleared = call, actor, changed, cleared
        self.kind, self.path = actor.kind, call.path

    def answer(self) -> Reply:
        return self._actor.answer(self._call)

    def rehearse(self) -> Reply:
        return self._actor.rehearse(self._call)

    def failure(self, message: str) -> object:
        return self._actor.failure(self.path, message)

    def wait(self, seconds: float, *, alone: bool = False) -> None:
        end = time.monotonic() + seconds
        while (left := end - time.monotonic()) > 0 and not self._cleared():
            with self._changed:
                self._changed.wait_for(lambda: self._cleared() or self._actor.stopped, min(left, _POLL_SECONDS))
            if self._actor.stopped:
                raise EngineStopped
            if not alone and self._call.gone():
                raise CallerGone

    def crash(self, restart: bool) -> None:
        self._actor.crash(restart)
        self.wait(math.inf, alone=True)
