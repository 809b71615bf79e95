"""MockEngine: an engine's state, a dialect and a log behind an HTTP server."""

import threading
from collections.abc import Callable, Collection, Generator
from dataclasses import replace
from types import TracebackType
from typing import Protocol

from ..http import HttpServer
from ..wire import BodyTooLarge, Reply, Request
from .base import EngineState
from .generations import Phase
from ..arrivals import Entry, Log
from .options import EngineOptions
from .routing import Call
from .serving import CallerGone, EngineStopped
from .sglang import SGLang
from .ticks import RealTicks, Ticks


class Dialect(Protocol):
    """What translates between HTTP and an engine's state."""

    def answer(self, call: Call) -> Reply: ...


DIALECTS: dict[str, Callable[[EngineOptions, EngineState, int], Dialect]] = {"sglang": SGLang}

_MAX_BODY = 1 << 30
_NO_ANSWER = Reply(0)


class MockEngine:
    """An engine on 127.0.0.1 that behaves like a real one and can be asked what it did.

    Use it as a context manager, or `start` and `stop` it. The keywords are those of
    `EngineOptions`; `ticks` replaces the clock, with `ManualTicks` for one by hand.
    An engine that was stopped starts again as new, on the same port, with its log kept.
    """

    def __init__(
        self,
        kind: str,
        *,
        port: int = 0,
        model: str = "mock-model",
        model_path: str | None = None,
        weight_version: str = "default",
        version: str = "0.5.23",
        tp_size: int = 1,
        dp_size: int = 1,
        pp_size: int = 1,
        api_key: str | None = None,
        checkpoints: Collection[str] | None = None,
        generation_ticks: int = 8,
        tick_seconds: float = 0.0,
        health_generation: bool = False,
        health_timeout: float = 1.0,
        ticks: Ticks | None = None,
    ) -> None:
        if kind not in DIALECTS:
            raise ValueError(f"unknown kind of engine {kind!r}; known: {', '.join(DIALECTS)}")
        self.kind = kind
        self._options = EngineOptions(
            model=model,
            model_path=model if model_path is None else model_path,
            weight_version=weight_version,
            version=version,
            tp_size=tp_size,
            dp_size=dp_size,
            pp_size=pp_size,
            api_key=api_key,
            checkpoints=checkpoints,
            generation_ticks=generation_ticks,
            tick_seconds=tick_seconds,
            health_generation=health_generation,
            health_timeout=health_timeout,
            port=port,
        )
        self._port = port
        self._ticks = RealTicks(tick_seconds) if ticks is None else ticks
        self._server: HttpServer | None = None
        self._dialect: Dialect
        self._failures: list[Exception] = []
        self._changed = threading.Condition()
        self._log = Log(self._changed)
        self._state = self._new_state()
        self._started = False

    def start(self) -> "MockEngine":
        """Listen; returns when the engine answers."""
        if self._server is None:
            if self._started:
                self._state = self._new_state()
            self._started = True
            self._server = HttpServer(self._answer, port=self._port)
            self._port = self._server.port
            self._dialect = DIALECTS[self.kind](self._options, self._state, self._port)
            self._ticks.start(self._state)
            self._server.start()
        return self

    def stop(self) -> None:
        """Cut off every request, at once; no thread is left."""
        if self._server is not None:
            server, self._server = self._server, None
            self._state.stop()
            self._ticks.stop(self._state)
            server.stop()
            self._failures += server.failures

    def __enter__(self) -> "MockEngine":
        return self.start()

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.stop()

    def __repr__(self) -> str:
        where = self.url if self._port else "not started"
        return (
            f"<MockEngine {self.kind} {where} {self.state}, "
            f"weight_version={self.weight_version!r}, in_flight={self.in_flight}>"
        )

    @property
    def url(self) -> str:
        """`http://127.0.0.1:PORT`; known when the engine was started, or its port was given."""
        if not self._port:
            raise RuntimeError("the engine has no port before it is started")
        return f"http://127.0.0.1:{self._port}"

    @property
    def state(self) -> str:
        """`running`, `paused`, or `dead` after a call that kills a real engine."""
        if self._state.crashed is not None:
            return "dead"
        return "paused" if self._state.paused else "running"

    @property
    def pause_mode(self) -> str | None:
        """`abort`, `retract` or `in_place`; None when not paused."""
        return self._state.pause_mode

    @property
    def weight_version(self) -> str:
        """The version of the weights that serve."""
        return self._state.weights.version

    @property
    def model_path(self) -> str:
        """The path of the weights that serve."""
        return self._state.weights.path

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

    def wait_until(self, condition: Callable[[], bool], timeout: float = 10.0) -> None:
        """Wait for something to be true of the engine; raises `TimeoutError` after `timeout` seconds.

        `condition` is asked again after each change of the engine's state or log.
        """
        with self._changed:
            if not self._changed.wait_for(condition, timeout):
                raise TimeoutError(f"not true within {timeout:g} s; {self!r}")

    def check(self) -> None:
        """Raise the first exception that a thread of the engine met with and should not have."""
        failures = [*self._failures, *self._ticks.failures, *(self._server.failures if self._server else ())]
        if failures:
            raise failures[0]

    def _new_state(self) -> EngineState:
        return EngineState(
            self._options.model_path,
            self._options.weight_version,
            checkpoints=self._options.checkpoints,
            generation_ticks=self._options.generation_ticks,
            changed=self._changed,
        )

    def _answer(self, request: Request) -> Reply:
        try:
            body = request.body.read(_MAX_BODY)
        except (BodyTooLarge, ValueError):
            return Reply(400)
        number = self._log.arrived(request.method, request.path, request.query, request.headers, body)
        reply = self._reply(Call(request, body))
        if reply.stream is None:
            self._log.answered(number, reply.status, hung_up=request.caller.gone())
            return reply
        stream = self._logged(number, reply.status, reply.stream)
        next(stream)
        return replace(reply, stream=stream)

    def _reply(self, call: Call) -> Reply:
        if self._state.stopped:
            return _NO_ANSWER
        try:
            return self._dialect.answer(call)
        except (EngineStopped, CallerGone):
            return _NO_ANSWER
        except Exception as failure:
            self._failures.append(failure)
            return Reply.of_text(500, "Internal Server Error")

    def _logged(self, number: int, status: int, stream: Generator[bytes, None, None]) -> Generator[bytes, None, None]:
        self._log.answered(number, status, hung_up=False)
        hung_up = True
        try:
            # Begun before the answer is sent, so that `finally` runs even if nothing of it can be.
            yield b""
            yield from stream
            hung_up = False
        except EngineStopped:
            hung_up = False
            raise ConnectionAbortedError from None
        except CallerGone:
            raise ConnectionAbortedError from None
        except Exception as failure:
            hung_up = False
            self._failures.append(failure)
            raise ConnectionAbortedError from None
        finally:
            stream.close()
            if hung_up:
                self._log.answered(number, status, hung_up=True)
