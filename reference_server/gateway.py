"""The gateway: composes its parts, starts and stops them."""

import dataclasses
import random
import threading
from collections.abc import Sequence
from types import TracebackType
from typing import TYPE_CHECKING

from .auth import Authenticate, Guard, any_of, closed_door, control_guard, key_authenticator, open_door
from .breaker import Breakers
from .config import Config
from .control import Control
from .dialer import PROBE_SECONDS, Dialer
from .events import CallEnded, FanoutEnded, Observer
from .fanout import Window, thread_pool
from .health import HealthChecks
from .httpd.messages import Reply, Request
from .httpd.request_log import Entry, Log
from .httpd.router import BodyReader, First, Route, Router, route
from .httpd.server import HttpServer
from .inference import Inference
from .logs import log_audit, log_event
from .metrics import Metrics
from .oidc import JwtAuthenticator
from .registration import Registrar, Spec
from .registry import Ids, Registry
from .workers import Workers

if TYPE_CHECKING:
    from typing_extensions import Unpack

    from .settings import Registration, Settings


class Gateway:
    """A gateway that speaks the `/v1/rl` contract.

    `Gateway(worker_urls=[…], enable_rl=True, …)` takes the fields of `Config` as
    keywords and raises `ConfigError` for a value that is refused. As a context
    manager it starts and stops; `url` is where it answers. `observers` hear of every
    call and fan-out, `ids` makes the worker ids, `keep_log` keeps what arrives in `log`,
    `first` sees each request before the routes do.
    """

    def __init__(
        self,
        config: Config | None = None,
        *,
        observers: Sequence[Observer] = (),
        ids: Ids | None = None,
        keep_log: bool = False,
        first: First | None = None,
        **settings: "Unpack[Settings]",
    ) -> None:
        self.config = dataclasses.replace(config or Config(), **settings)
        self.registry = Registry()
        self.metrics = Metrics(self.config.prometheus_duration_buckets)
        self._observers: tuple[Observer, ...] = (self.metrics, log_event, *observers)
        self._log = Log(threading.Condition()) if keep_log else None
        self._first = first
        self._stopping = threading.Event()
        self._pool = thread_pool()
        self._dialer = Dialer(self._pool, self.config.ca_cert_paths, self._stopping)
        self._server: HttpServer | None = None
        self._metrics_server: HttpServer | None = None
        self._health: HealthChecks | None = None
        self._registrar = Registrar(
            self.registry,
            self._dialer.asker,
            ids or Ids(),
            dp_aware=self.config.dp_aware,
            startup_timeout=self.config.worker_startup_timeout_secs,
            drain_seconds=self.config.drain_secs,
        )

    @property
    def url(self) -> str:
        """Where the gateway answers, with the real port."""
        return self._running().url

    @property
    def metrics_url(self) -> str | None:
        """Where Prometheus may look, None without `prometheus_port`."""
        return f"{self._metrics_server.url}/metrics" if self._metrics_server else None

    @property
    def log(self) -> tuple[Entry, ...]:
        """What arrived so far on known routes, in order; empty without `keep_log`."""
        return self._log.entries if self._log else ()

    @property
    def failures(self) -> list[Exception]:
        """Faults of the gateway itself, each answered with a 500. Empty, or a bug."""
        return self._running().failures

    def start(self) -> "Gateway":
        """Answer requests; the given workers are registered in the background.

        Raises `OSError` when the port cannot be had.
        """
        try:
            self._listen()
        except BaseException:
            self.stop()
            raise
        self._registrar.start()
        self._tries = [self.register(url) for url in self.config.worker_urls]
        policy = self.config.health
        if self.config.health_check:
            self._health = HealthChecks(self.registry, policy, self._dialer.ask_health(policy))
        return self

    def _listen(self) -> None:
        self._server = HttpServer(self._router(), self.config.host, self.config.port)
        if self.config.prometheus_port is not None:
            host, port = self.config.prometheus_host, self.config.prometheus_port
            self._metrics_server = HttpServer(self.metrics.application, host, port)
            self._metrics_server.start()
        self._server.start()

    def register(self, url: str, **fields: "Unpack[Registration]") -> tuple[str, threading.Event]:
        """Register a worker: its id, and an event set after the first attempt to reach it.

        `fields` are those of `Spec`: `labels`, `api_key` (else the gateway's own), `runtime`, ….
        Raises `ValueError` for a URL that names no engine.
        """
        fields.setdefault("api_key", self.config.api_key)
        return self._registrar.add(Spec(url, **fields))

    def stop(self, grace: float = 0.0) -> None:
        """Stop listening, finish what runs within `grace` seconds, leave nothing behind."""
        self._stopping.set()
        if self._server:
            self._server.stop(grace, self._dialer.cut)
        if self._metrics_server:
            self._metrics_server.stop()
        if self._health:
            self._health.close()
        self._registrar.close()
        self._pool.shutdown(wait=True)

    def __enter__(self) -> "Gateway":
        self.start()
        for _, tried in self._tries:
            tried.wait(PROBE_SECONDS)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.stop()

    def __repr__(self) -> str:
        where = repr(self.url) if self._server else "not started"
        return f"Gateway({where}, workers={len(self.registry.all())})"

    def _running(self) -> HttpServer:
        if self._server is None:
            raise RuntimeError("the gateway is not started: use `with Gateway(…) as gateway` or call start()")
        return self._server

    # -- composition

    def _router(self) -> Router:
        read_body = BodyReader(self.config.max_payload_size)
        self._guard = self._control_guard()
        return Router(
            [*self._control_routes(read_body), *self._other_routes(read_body)],
            read_body,
            self.config.request_id_headers,
            random.Random(),
            log_audit if self.config.control_plane_audit_enabled else None,
            self._log,
            self._first,
        )

    def _control_routes(self, read_body: BodyReader) -> list[Route]:
        config = self.config
        if not config.enable_rl:
            return []
        window = Window(self._pool, config.rl_fanout_concurrency, config.rl_control_timeout_secs)
        control = Control(self.registry, window, self._dialer.call, read_body, self._observe)
        guard = self._guard
        one = r"/v1/rl/workers/([^/]*)"
        return [
            route(r"/v1/rl/workers", guard, GET=control.list_workers),
            route(r"/v1/rl/workers/([^/]+)", guard, GET=control.one_worker),
            route(rf"{one}/engine/(.+)", guard, GET=control.call, POST=control.call),
            route(r"/v1/rl/engine/(.+)", guard, GET=control.fan_out, POST=control.fan_out),
        ]

    def _other_routes(self, read_body: BodyReader) -> list[Route]:
        workers = Workers(self.registry, self._registrar, read_body)
        window = Window(self._pool, 1, self.config.request_timeout_secs)
        inference = Inference(
            self.registry, window, self._dialer.call_for_head, read_body, Breakers(self.config.breaker)
        )
        control = self._guard
        data = self._data_guard()
        generate = inference.pass_through
        return [
            route("/workers", control, GET=workers.list, POST=workers.add),
            route(
                "/workers/([^/]+)",
                control,
                GET=workers.one,
                PUT=workers.replace,
                PATCH=workers.patch,
                DELETE=workers.remove,
            ),
            route("/(?:health|liveness)", open_door, GET=lambda request: Reply.of_text(200, "OK")),
            route("/readiness", open_door, GET=self._readiness),
            route("/v1/models", open_door, GET=inference.models),
            route("/generate", data, id_prefix="gnt", POST=generate),
            route("/v1/chat/completions", data, id_prefix="chatcmpl", POST=generate),
            route("/v1/completions", data, id_prefix="cmpl", POST=generate),
            route("/v1/(?!rl(?:/|$)).+", data, POST=generate),
        ]

    def _control_guard(self) -> Guard:
        config = self.config
        authenticators: list[Authenticate] = []
        if config.control_plane_api_keys:
            authenticators.append(key_authenticator(config.control_plane_api_keys))
        if config.jwt:
            authenticators.append(JwtAuthenticator(config.jwt, self._dialer.fetch))
        if authenticators:
            return control_guard(authenticators)
        if config.api_key:
            return any_of([config.api_key])
        return closed_door if config.tenant_api_keys else open_door

    def _data_guard(self) -> Guard:
        keys = [key for key in (self.config.api_key, *self.config.tenant_api_keys) if key]
        return any_of(keys) if keys else open_door

    def _readiness(self, request: Request) -> Reply:
        workers = self.registry.all()
        ready = sum(worker.health == "ready" for worker in workers)
        if self._stopping.is_set() or not ready:
            reason = "shutting down" if self._stopping.is_set() else "insufficient healthy workers"
            return Reply.of_json(503, {"status": "not ready", "reason": reason})
        return Reply.of_json(200, {"status": "ready", "healthy_workers": ready, "total_workers": len(workers)})

    def _observe(self, event: CallEnded | FanoutEnded) -> None:
        for observer in self._observers:
            observer(event)
