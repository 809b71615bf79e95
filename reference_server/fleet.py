"""A whole fleet for a test: mock engines, a gateway that knows them, a client."""

import itertools
import random
import threading
import time
from collections.abc import Mapping
from contextlib import ExitStack
from types import TracebackType
from typing import TYPE_CHECKING, Protocol, cast

from .engines import MockEngine
from .engines.faults import checks
from .engines.kinds import Counts
from .engines.settings import EngineSettings
from .gateway import Gateway
from .httpd.messages import Reply, Request
from .registry import Ids
from .settings import GatewaySettings

if TYPE_CHECKING:
    from typing_extensions import Unpack

    from smg.rl import RL

_START_MS = 1_800_000_000_000
_REGISTER_SECONDS = 10.0
_POLL_SECONDS = 0.05


class Fleet:
    """Mock engines behind a gateway::

        with Fleet(sglang=2, vllm=1) as fleet:
            fleet.rl.fanout("pause_generation", {}, selector="engine=sglang")
            assert [engine.state for engine in fleet.engines] == ["paused", "paused", "running"]

    The last keywords name how many engines of each kind there are; `engines` are some of
    your own making, which come first. `labels` are set on every worker, `engine` are options
    of every engine that is made here, `gateway` are settings of the gateway (an RL control
    plane without health checks, unless they say otherwise). Worker ids depend on `seed`
    alone. As a context manager it starts and stops. Raises `ValueError` for an unknown kind.
    """

    def __init__(
        self,
        *engines: MockEngine,
        seed: int = 0,
        labels: Mapping[str, str] | None = None,
        engine: EngineSettings | None = None,
        gateway: GatewaySettings | None = None,
        **kinds: "Unpack[Counts]",
    ) -> None:
        asked = cast("Mapping[str, int]", kinds)
        made = [MockEngine(kind, **(engine or {})) for kind, count in asked.items() for _ in range(count)]
        self.engines = [*engines, *made]
        clock = itertools.count(_START_MS)
        ids = Ids(lambda: next(clock), random.Random(seed))
        self._ids_of_workers, self._slowness = ids, Slowness()
        self._settings: GatewaySettings = {"enable_rl": True, "health_check": False, "drain_secs": 0.0}
        self._settings.update(gateway or {})
        self._failures: list[Exception] = []
        self.gateway = self._new_gateway()
        self._labels = dict(labels or {})
        self._ids: dict[str, MockEngine] = {}
        self._stack = ExitStack()

    @property
    def url(self) -> str:
        """Where the gateway answers."""
        return self.gateway.url

    @property
    def rl(self) -> "RL":
        """A client of the gateway that verifies: a test is to notice an engine that lies about its pause."""
        from smg.rl import RL

        return RL(self.url, api_key=self.gateway.config.api_key, timeout=30, verify=True)

    def start(self) -> "Fleet":
        """Start everything; returns when every engine is registered."""
        try:
            for engine in self.engines:
                self._stack.enter_context(engine)
            self._stack.callback(lambda: self.gateway.stop())
            self.gateway.start()
            self._register(self.engines)
        except BaseException:
            self.stop()
            raise
        return self

    def stop(self) -> None:
        """Stop everything, at once."""
        self._stack.close()

    def engine(self, worker_id: str) -> MockEngine:
        """The engine behind a worker id; raises `KeyError` for an unknown one."""
        return self._ids[worker_id]

    def worker_id(self, engine: MockEngine) -> str:
        """The id under which an engine is registered now; raises `KeyError` when it is not."""
        for worker in self.gateway.registry.all():
            if worker.base_url == engine.url:
                return worker.id
        raise KeyError(engine.url)

    def drop(self, engine: MockEngine) -> None:
        """The gateway forgets an engine, which goes on as it is."""
        self.gateway.registry.remove([self.worker_id(engine)])

    def register_anew(self, *engines: MockEngine) -> None:
        """The gateway forgets engines (all, when none is named) and knows them again under new
        ids, as after its restart."""
        chosen = list(engines) or self.engines
        known = {worker.base_url: worker.id for worker in self.gateway.registry.all()}
        self.gateway.registry.remove([known[e.url] for e in chosen if e.url in known])
        self._register(chosen)

    def restart_gateway(self, *engines: MockEngine) -> None:
        """Another gateway at the same URL, which knows engines (all, when none is named) under
        new ids. Calls that were running are cut off."""
        self.gateway.stop()
        self._failures += self.gateway.failures
        self.gateway = self._new_gateway(port=int(self.url.rpartition(":")[2]))
        self.gateway.start()
        self._register(list(engines) or self.engines)

    def slow(self, seconds: float) -> None:
        """From now on the gateway thinks for `seconds` before it takes up a request of the control
        plane; 0 ends that, for those who wait too."""
        self._slowness.set(seconds)

    def check(self, *, refits_repeated: bool = False) -> None:
        """Raise what went wrong in a thread of a server, or `AssertionError` for what is left behind.

        That is an engine that is paused, asleep, or dead though nobody crashed it; a refit that
        came to it twice, in path, query and body, without a resume between and since it started;
        a fault that was planned and never used, unless chance decides. The error names the
        engine's URL and what to do. `refits_repeated`: those that came so far are meant, for
        later checks too; `MockEngine.clear_faults` forgives faults, `crash` a death.
        """
        for failure in [*self._failures, *self.gateway.failures]:
            raise failure
        for engine in self.engines:
            engine.check()
        left = [one for engine in self.engines for one in engine.leftovers(refits_repeated=refits_repeated)]
        if left:
            raise AssertionError("\n".join(left))

    def _new_gateway(self, port: int | None = None) -> Gateway:
        settings = self._settings.copy()
        if port is not None:
            settings["port"] = port
        return Gateway(ids=self._ids_of_workers, keep_log=True, interceptor=self._slowness, **settings)

    def _register(self, engines: "list[MockEngine]") -> None:
        tries = [self.gateway.register(engine.url, runtime=engine.kind, labels=self._labels) for engine in engines]
        for engine, (worker_id, tried) in zip(engines, tries, strict=True):
            if not tried.wait(_REGISTER_SECONDS):
                raise TimeoutError(f"{engine!r} did not answer its registration")
            self._ids[worker_id] = engine

    def __enter__(self) -> "Fleet":
        return self.start()

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.stop()

    def __repr__(self) -> str:
        return f"Fleet({self.gateway!r}, {', '.join(map(repr, self.engines))})"


class Slowness:
    """What makes a gateway late: it sees every request first."""

    def __init__(self) -> None:
        self._changed = threading.Condition()
        self._seconds = 0.0

    def set(self, seconds: float) -> None:
        """Be so late for all that come from now on, and let go of those who wait."""
        checks.seconds("seconds", seconds)
        with self._changed:
            self._seconds = seconds
            self._changed.notify_all()

    def __call__(self, request: Request) -> Reply | None:
        """Wait, if it is a request of the control plane; whoever hangs up meanwhile is not served."""
        with self._changed:
            seconds = self._seconds
        end = time.monotonic() + (seconds if request.path.startswith("/v1/rl/") else 0.0)
        while (left := end - time.monotonic()) > 0:
            with self._changed:
                if self._changed.wait_for(lambda: self._seconds != seconds, min(left, _POLL_SECONDS)):
                    return None
            if request.caller.gone():
                return Reply.hang_up()
        return None


class MakeFleet(Protocol):
    """What the fixture `smg_fleet` gives: takes the arguments of `Fleet`, gives a running one."""

    def __call__(
        self,
        *engines: MockEngine,
        seed: int = 0,
        labels: Mapping[str, str] | None = None,
        engine: EngineSettings | None = None,
        gateway: GatewaySettings | None = None,
        **kinds: "Unpack[Counts]",
    ) -> Fleet: ...
