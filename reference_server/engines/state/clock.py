"""Where an engine's ticks come from: a clock of its own, or a test's hand."""

import threading
from typing import Protocol


class Steps(Protocol):
    """What is stepped: an engine's state."""

    def step(self) -> None:
        """One tick: every running generation gets one token."""

    def wait_for_work(self) -> bool:
        """Block until something runs; False when the engine has stopped."""


class Ticks(Protocol):
    """A source of ticks."""

    @property
    def failures(self) -> list[Exception]: ...

    def start(self, engine: Steps) -> None: ...

    def stop(self, engine: Steps) -> None:
        """No tick reaches `engine` any more; it has been told to stop before."""


class RealTicks:
    """A tick every `seconds`, from a thread that sleeps while nothing runs."""

    def __init__(self, seconds: float) -> None:
        self._seconds = seconds
        self._stopped = threading.Event()
        self._thread: threading.Thread | None = None
        self.failures: list[Exception] = []

    def start(self, engine: Steps) -> None:
        self._stopped.clear()
        self._thread = threading.Thread(target=self._run, args=(engine,), daemon=True, name="engine-ticks")
        self._thread.start()

    def stop(self, engine: Steps) -> None:
        self._stopped.set()
        if self._thread is not None:
            self._thread.join()
            self._thread = None

    def _run(self, engine: Steps) -> None:
        try:
            while engine.wait_for_work() and not self._stopped.wait(self._seconds):
                engine.step()
        except Exception as error:
            self.failures.append(error)


class ManualTicks:
    """Ticks by hand, for any number of engines: time stands still until `step`.

    `MockEngine("sglang", ticks=ManualTicks())`; a tick is a token for each generation that runs.
    """

    def __init__(self) -> None:
        self._engines: list[Steps] = []
        self.failures: list[Exception] = []

    def start(self, engine: Steps) -> None:
        """Step this engine too; a `MockEngine` calls it when it starts."""
        self._engines.append(engine)

    def stop(self, engine: Steps) -> None:
        """Step this engine no more."""
        if engine in self._engines:
            self._engines.remove(engine)

    def step(self, count: int = 1) -> None:
        """Let `count` ticks pass on every engine."""
        for _ in range(count):
            for engine in self._engines:
                engine.step()
