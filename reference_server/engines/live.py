"""A mock engine from one start to the next stop: what its faults may ask of it."""

from collections.abc import Callable

from ..httpd.messages import Reply
from .fastapi.routing import Call
from .kind import Kind
from .options import EngineOptions
from .state.machine import EngineState
from .twin import rehearse


class LiveEngine:
    """The actor of a fault script (`faults.script.Actor`).

    `crash` crashes the engine, from a thread of its own, and starts it again if told so.
    """

    def __init__(
        self, kind: Kind, options: EngineOptions, state: EngineState, port: int, crash: Callable[[bool], None]
    ) -> None:
        self.kind, self.crash = kind.name, crash
        self._kind, self._options, self._state, self._port = kind, options, state, port
        self._dialect = kind.dialect(options, state, port)

    @property
    def stopped(self) -> bool:
        return self._state.stopped

    def answer(self, call: Call) -> Reply:
        return self._dialect.answer(call)

    def rehearse(self, call: Call) -> Reply:
        """The answer, without the effect."""
        return rehearse(self._kind, self._options, self._state, self._port, call)

    def failure(self, path: str, message: str) -> object:
        """What this kind says, with 200, when it did not do what `path` asks."""
        return self._kind.failure(path, message)
