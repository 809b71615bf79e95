"""What a test can ask of a mock engine, and wait for."""

import threading
from collections.abc import Callable

from ..httpd.request_log import Entry, Log
from .state.generation import Phase
from .state.machine import EngineState


class Observed:
    """An engine's state and log, read only."""

    _changed: threading.Condition
    _log: Log
    _state: EngineState

    @property
    def state(self) -> str:
        """`running`, `paused`, or `dead` after a call that kills a real engine."""
        if self._state.crashed is not None:
            return "dead"
        return "paused" if self._state.paused else "running"

    @property
    def pause_mode(self) -> str | None:
        """How it was paused, in the engine's own word; None when not paused."""
        return self._state.pause_mode

    @property
    def weight_version(self) -> str:
        """The version of the weights that serve."""
        return self._state.weights.version

    @property
    def model_path(self) -> str:
        """The path of the weights that serve; empty after a sleep that kept nothing of them."""
        return self._state.weights.path

    @property
    def asleep(self) -> frozenset[str]:
        """What memory is given back: `weights`, `kv_cache`."""
        return self._state.asleep

    @property
    def flushes(self) -> int:
        """How often the prefix cache was emptied, by a refit too."""
        return self._state.flushes

    @property
    def in_flight(self) -> int:
        """How many generations have begun and not ended."""
        return self._state.in_flight

    @property
    def parked(self) -> int:
        """How many generations wait for the engine to take them in."""
        return self._state.count(Phase.PARKED)

    @property
    def log(self) -> tuple[Entry, ...]:
        """What arrived so far, in order."""
        return self._log.entries

    def calls(self, path: str) -> tuple[Entry, ...]:
        """What arrived for one path, such as `pause_generation`."""
        return self._log.calls(path)

    def join(self, timeout: float = 10.0) -> None:
        """Be the trainer for whom the engine waits, to be handed weights, or will within `timeout` seconds.

        Raises `TimeoutError` if it does not.
        """
        if not self._state.join(timeout):
            raise TimeoutError(f"waited for no trainer within {timeout:g} s; {self!r}")

    def wait_until(self, condition: Callable[[], bool], timeout: float = 10.0) -> None:
        """Wait for something to be true of the engine; raises `TimeoutError` after `timeout` seconds.

        `condition` is asked again after each change of the engine's state or log.
        """
        with self._changed:
            if not self._changed.wait_for(condition, timeout):
                raise TimeoutError(f"not true within {timeout:g} s; {self!r}")
