"""The gateway: composes its parts, starts and stops them."""

import dataclasses
import random
import threading
from collections.abc import Sequence
from types import TracebackType
from typing import TYPE_CHECKING

from .auth import Authenticate, admins, everybody, holders_of, key_authenticator, nobody
from .breaker import Breakers
from .config import Config
from .control import Control
from .dialer import PROBE_SECONDS, Dialer
from .events import CallEnded, FanoutEnded, Observer
from .fanout import Window, thread_pool
from .health import HealthChecks
from .httpd.request_log import Entry, Log
from .httpd.router import BodyReader, Guard, Interceptor, Router
from .httpd.server import HttpServer
from .inference import Inference
from .logs import log_audit, log_event
from .metrics import Metrics
from .oidc import JwtAuthenticator
from .readiness import Readiness
from .registration import Registrar, Spec
from .registry import Ids, Registry
from .routes import control_routes, other_routes
from .workers import Workers

if TYPE_CHECKING:
    from typing_extensions import Unpack

    from .settings import GatewaySettings, Registration


class Gateway:
    """A gateway that speaks the `/v1/rl` contract.

    `Gateway(worker_urls=[…], enable_rl=True, …)` takes the fields of `Config` as
    keywords and raises `ConfigError` for a value that is refused. As a context
    manager it starts and stops; `url` is where it answers. `observers` hear of every
    call and fan-out, `ids` makes the worker ids, `keep_log` keeps what arrives in `log`,
    `interceptor` sees each request before the routes do.
    """

    def __init__(
        self,
        config: Config | None = None,
        *,
        observers: Sequence[Observer] = (),
        ids: Ids | None = None,
        keep_log: bool = False,
        interceptor: Interceptor | None = None,
        **settings: "Unpack[GatewaySettings]",
    ) -> None:
        self.config = dataclasses.replace(config or Config(), **settings)
        self.registry = Registry()
        self.metrics = Metrics(self.config.prometheus_duration_buckets)
        self._observers: tuple[Observer, ...] = (self.metrics, log_event, *observers)
        self._log = Log(threading.Condition()) if keep_log else None
        self._interceptor = interceptor
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
        config = self.config
        read_body = BodyReader(config.max_payload_size)
        admin = self._admin_guard()
        routes = control_routes(self._control(read_body), admin) if config.enable_rl else []
        workers = Workers(self.registry, self._registrar, read_body)
        readiness = Readiness(self.registry, self._stopping)
        routes += other_routes(workers, self._inference(read_body), readiness, admin, self._data_guard())
        return Router(routes, read_body, config.request_id_headers, random.Random(), self._log, self._interceptor)

    def _control(self, read_body: BodyReader) -> Control:
        config = self.config
        window = Window(self._pool, config.rl_fanout_concurrency, config.rl_control_timeout_secs)
        return Control(self.registry, window, self._dialer.call, read_body, self._observe)

    def _inference(self, read_body: BodyReader) -> Inference:
        window = Window(self._pool, 1, self.config.request_timeout_secs)
        breakers = Breakers(self.config.breaker)
        return Inference(self.registry, window, self._dialer.call_for_head, read_body, breakers)

    def _admin_guard(self) -> Guard:
        config = self.config
        authenticators: list[Authenticate] = []
        if config.control_plane_api_keys:
            authenticators.append(key_authenticator(config.control_plane_api_keys))
        if config.jwt:
            authenticators.append(JwtAuthenticator(config.jwt, self._dialer.fetch))
        if authenticators:
            return admins(authenticators, log_audit if config.control_plane_audit_enabled else None)
        if config.api_key:
            return holders_of([config.api_key])
        return nobody if config.tenant_api_keys else everybody

    def _data_guard(self) -> Guard:
        keys = [key for key in (self.config.api_key, *self.config.tenant_api_keys) if key]
        return holders_of(keys) if keys else everybody

    def _observe(self, event: CallEnded | FanoutEnded) -> None:
        for observer in self._observers:
            observer(event)
