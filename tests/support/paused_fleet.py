"""What `paused` needs of a client: a fan-out that is written down, and fails as told."""

import threading
from collections.abc import Callable
from typing import Any, cast

import pytest

from smg.rl import RL, CallResult, FanoutResult, Worker, paused
from smg.rl.results import Json

IDS = ("w0", "w1")
PAUSE, RESUME = "pause_generation", "continue_generation"

Outcome = None | BaseException | Callable[[], object]


class Fleet:
    """`pause` and `resume`: an error to raise, something to do meanwhile, or None."""

    def __init__(self, *, pause: Outcome = None, resume: Outcome = None) -> None:
        self.outcomes = {PAUSE: pause, RESUME: resume}
        self.result = FanoutResult()
        self.calls: list[tuple[str, object, dict[str, Any]]] = []
        self.log: list[str] = []
        self.timeout, self.verify = 1.0, False

    @property
    def rl(self) -> RL:
        return cast(RL, self)

    def workers(self, **options: Any) -> list[Worker]:
        """Whoever a test names is there, and runs when it is asked."""
        rows = [{"id": one, "url": f"http://{one}:1", "engine": "sglang", "connection_mode": "http"} for one in IDS]
        return [Worker.of(cast("dict[str, Json]", row)) for row in rows]

    def match(self, selector: object, **options: Any) -> list[Worker]:
        return []

    def fanout(self, path: str, body: object = None, **options: Any) -> FanoutResult:
        if path == "ready":
            return FanoutResult({one: CallResult(one, f"http://{one}:1", 200, 1, "") for one in IDS}, [], 2, 2)
        self.calls.append((path, body, options))
        self.log.append(path)
        outcome = self.outcomes[path]
        if isinstance(outcome, BaseException):
            raise outcome
        if outcome is not None:
            outcome()
        return self.result


def chain(error: BaseException | None) -> list[BaseException]:
    """An error and the contexts behind it."""
    found: list[BaseException] = []
    while error is not None:
        assert not any(error is one for one in found), "the chain of contexts is a circle"
        found.append(error)
        error = error.__context__
    return found


def in_another_thread(work: Callable[[], object]) -> object:
    results: list[object] = []
    thread = threading.Thread(target=lambda: results.append(work()))
    thread.start()
    thread.join()
    return results[0]


# Signals come to the main thread alone, so the resume is not done the same way in both.
Run = Callable[[Callable[[], object]], object]
EVERY_THREAD = pytest.mark.parametrize("run", [lambda work: work(), in_another_thread], ids=["main", "another thread"])


def fail(error: BaseException) -> None:
    raise error


def leave(fleet: Fleet, block: Callable[[], object] = lambda: None) -> BaseException | None:
    """What comes out of a `paused` over this fleet."""
    try:
        with paused(fleet.rl, "a=b", settle=0):
            fleet.log.append("block")
            block()
    except BaseException as error:
        return error
    return None
