"""MockEngine: an engine's state, a dialect and a log behind an HTTP server."""

import threading
from collections.abc import Callable, Collection, Generator
from contextlib import AbstractContextManager
from dataclasses import replace
from types import TracebackType

from ..httpd.messages import BodyTooLarge, Reply, Request
from ..httpd.request_log import Entry, Log
from ..httpd.server import HttpServer
from .fastapi.routing import Call
from .faults.fault import Fault
from .faults.routes import Routes
from .faults.schedule import Rule
from .faults.script import HeldRequests, Script
from .kind import Kind
from .kinds import kind_of
from .leftovers import Left, repeated_refits
from .live import LiveEngine
from .options import EngineOptions
from .remote import Remote
from .state.clock import RealTicks, Ticks
from .state.generation import Phase
from .state.machine import CallerGone, EngineState, EngineStopped

_MAX_BODY = 1 << 30
_TOLD = "it was told to crash"
_PARTING_SECONDS = 1.0
"""How long who tells an engine to crash may need to read that it was heard."""


class MockEngine:
    """An engine on 127.0.0.1 that behaves like a real one and can be asked what it did::

        with MockEngine("sglang", weight_version="41") as engine:
            engine.fail("update_weights_from_disk", faults.Status(503), times=1)
            trainer.refit([engine.url])
            assert (engine.state, engine.weight_version) == ("running", "42")
            assert len(engine.calls("update_weights_from_disk")) == 2

    `kind` is `sglang`, `vllm`, `tokenspeed`, or a `Kind` of your own. The other keywords are
    those of `EngineOptions`, which says what each means; `ticks` replaces the clock, with
    `ManualTicks` for one by hand; with `remote_control` it is controlled over HTTP too, by
    anyone, under `/_mock/`.

    Use it as a context manager, or `start` and `stop` it. An engine that was stopped starts
    again as new, on the same port, with its log kept. Raises `ValueError` for a kind or an
    option that cannot be.
    """

    def __init__(
        self,
        kind: str | Kind,
        *,
        port: int = 0,
        model: str = "mock-model",
        model_path: str | None = None,
        weight_version: str = "default",
        version: str | None = None,
        tp_size: int = 1,
        dp_size: int = 1,
        pp_size: int = 1,
        api_key: str | None = None,
        checkpoints: Collection[str] | None = None,
        generation_ticks: int = 8,
        abort_ticks: int = 0,
        tick_seconds: float = 0.0,
        health_generation: bool = False,
        health_timeout: float = 1.0,
        dev_mode: bool = True,
        control: bool = True,
        remote_control: bool = False,
        ticks: Ticks | None = None,
    ) -> None:
        self._kind = kind_of(kind)
        self._options = EngineOptions(
            model=model,
            model_path=model if model_path is None else model_path,
            weight_version=weight_version,
            version=self._kind.version if version is None else version,
            tp_size=tp_size,
            dp_size=dp_size,
            pp_size=pp_size,
            api_key=api_key,
            checkpoints=checkpoints,
            generation_ticks=generation_ticks,
            abort_ticks=abort_ticks,
            tick_seconds=tick_seconds,
            health_generation=health_generation,
            health_timeout=health_timeout,
            port=port,
            dev_mode=dev_mode,
            control=control,
        )
        self._port = port
        self._ticks = RealTicks(tick_seconds) if ticks is None else ticks
        self._server: HttpServer | None = None
        self._starting = threading.RLock()
        self._crashes: list[threading.Thread] = []
        self._live: LiveEngine
        self._failures: list[Exception] = []
        self._changed = threading.Condition()
        self._log = Log(self._changed)
        self._state = self._new_state()
        paths = self._kind.dialect(self._options, self._state, port).routes
        self._script = Script(self._changed, Routes(f"{self.kind} {self._options.version}", paths))
        self._remote = self._own_remote() if remote_control else None
        self._started = False
        self._refits_since = 0

    def start(self) -> "MockEngine":
        """Listen; returns when the engine answers."""
        with self._starting:
            if self._server is None:
                # Before anything else: who sees an engine that runs again can call it.
                self._server = server = HttpServer(self._answer, port=self._port)
                self._port = server.port
                with self._changed:
                    if self._started:
                        self._state = self._new_state()
                    self._started = True
                    self._refits_since = len(self._log.entries)
                    self._changed.notify_all()
                self._live = LiveEngine(
                    self._kind,
                    self._options,
                    self._state,
                    self._port,
                    lambda restart: self._crash_later(server, restart),
                )
                self._ticks.start(self._state)
                self._server.start()
        return self

    def stop(self) -> None:
        """Cut off every request, at once; no thread is left."""
        self._halt()
        for thread in self._crashes:
            thread.join()

    def crash(self) -> None:
        """Close every connection and refuse new ones, until `restart`; the state is `dead`.

        An engine that died is crashed too, so that its death counts as asked for.
        """
        self._crash_now()

    def restart(self) -> None:
        """Start as new on the same port, after a crash if the engine runs. Log and faults are kept."""
        with self._starting:
            self.crash()
            self.start()

    def fail(
        self,
        path: str,
        fault: Fault,
        *,
        times: int | None = None,
        method: str | None = None,
        probability: float = 1.0,
        seed: int = 0,
    ) -> None:
        """Let a fault happen to the next `times` requests for `path`, or to all until `clear_faults`.

        `path` is a path, its first slash optional, or `*` for every one, the gateway's own
        questions among them; `ValueError` for one that this engine does not have. `method`
        None is any. With a `probability` chance decides, from
        `seed`. Of several faults that fit, a request meets the first that was given.
        """
        self._script.fail(Rule(fault, path, times, method, probability, seed))

    def clear_faults(self) -> None:
        """Let nothing go wrong any more; what hangs is closed, what waits goes on."""
        self._script.clear()

    def hold(
        self, path: str, *, times: int | None = 1, method: str | None = None
    ) -> AbstractContextManager[HeldRequests]:
        """Within the `with`, hold the next `times` requests for `path` before they have any effect.

        They go on when they are released, at the latest when the block ends, and then meet
        the faults that are planned for them. `ValueError` for a path that this engine does not have.
        """
        return self._script.hold(path, times, method)

    def __enter__(self) -> "MockEngine":
        return self.start()

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.stop()

    def __repr__(self) -> str:
        return (
            f"<MockEngine {self.kind} {self._where} {self.state}, "
            f"weight_version={self.weight_version!r}, in_flight={self.in_flight}>"
        )

    @property
    def _where(self) -> str:
        return self.url if self._port else "not started"

    @property
    def url(self) -> str:
        """`http://127.0.0.1:PORT`; known when the engine was started, or its port was given."""
        if not self._port:
            raise RuntimeError("the engine has no port before it is started")
        return f"http://127.0.0.1:{self._port}"

    @property
    def kind(self) -> str:
        """The name of its kind."""
        return self._kind.name

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
    def adapters(self) -> dict[str, str]:
        """The LoRA adapters that are loaded: name -> path."""
        return self._state.adapters

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

    def check(self) -> None:
        """Raise the first exception that a thread of the engine met with and should not have."""
        failures = [*self._failures, *self._ticks.failures, *(self._server.failures if self._server else ())]
        if failures:
            raise failures[0]

    def leftovers(self, *, refits_repeated: bool = False) -> list[str]:
        """What a test should not leave behind, a sentence each; see `Fleet.check`, which raises them.

        With `refits_repeated` the refits that came so far may have come twice, for later calls too.
        """
        if refits_repeated:
            self._refits_since = len(self._log.entries)
        reason = self._state.crashed
        left = Left(
            self._where,
            self.state,
            None if reason == _TOLD else reason,
            self.asleep,
            repeated_refits(self._log.entries[self._refits_since :], self._kind.facts),
            self._script.unused,
        )
        return list(left.problems())

    def _new_state(self) -> EngineState:
        return EngineState(
            self._options.model_path,
            self._options.weight_version,
            checkpoints=self._options.checkpoints,
            generation_ticks=self._options.generation_ticks,
            abort_ticks=self._options.abort_ticks,
            changed=self._changed,
            traits=self._kind.traits(self._options.version),
        )

    def remote(self) -> Remote:
        """Its control over HTTP, to be served elsewhere."""
        return Remote(self, self._script, lambda restart: (self.restart if restart else self.crash)(), later=False)

    def _own_remote(self) -> Remote:
        return Remote(self, self._script, lambda restart: self._live.crash(restart), later=True)

    def _halt(self, grace: float = 0.0) -> None:
        with self._starting:
            if self._server is not None:
                server, self._server = self._server, None
                self._state.stop()
                self._ticks.stop(self._state)
                server.stop(grace)
                self._failures += server.failures

    def _crash_now(self, grace: float = 0.0) -> None:
        with self._starting:
            if self._server is not None:
                self._state.crash(_TOLD)
                self._halt(grace)

    def _crash_later(self, server: HttpServer, restart: bool) -> None:
        """Crash from a thread of its own: the request that asked for it must end before the engine can."""

        def crash() -> None:
            try:
                with self._starting:
                    if self._server is server:
                        self._crash_now(_PARTING_SECONDS)
                        if restart:
                            self.start()
            except OSError as failure:
                self._failures.append(failure)

        self._crashes.append(threading.Thread(target=crash, name="engine-crash", daemon=True))
        self._crashes[-1].start()

    def _answer(self, request: Request) -> Reply:
        if self._remote is not None and (reply := self._remote(request)):
            return reply
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
            return Reply.hang_up()
        try:
            return self._script.play(call, self._live)
        except (EngineStopped, CallerGone):
            return Reply.hang_up()
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
