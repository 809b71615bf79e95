"""The gateway's settings, under the names of SMG's flags. Refuses what makes no sense."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from .auth import ControlKey, is_loopback
from .breaker import BreakerPolicy
from .flags import documented, setting
from .health import HealthPolicy
from .metrics import BUCKETS
from .oidc import JwtPolicy, available, secure
from .registration import Spec

REQUEST_ID_HEADERS = ("x-request-id", "x-correlation-id", "x-trace-id", "request-id")


class ConfigError(ValueError):
    """A setting that is refused; the text says which, its value and the rule."""


_RL, _TIME, _AUTH, METRICS = "RL control plane", "health and time", "authentication", "metrics and logs"


def _control_keys(texts: Iterable[str]) -> tuple[ControlKey, ...]:
    return tuple(map(ControlKey.parse, texts))


def _tenant_keys(texts: Iterable[str]) -> tuple[str, ...]:
    return tuple(text.rpartition(":")[2] for text in texts)


@documented
@dataclass(frozen=True)
class Config:
    """Settings of one gateway: `Config(worker_urls=["http://rollout-0:30000"], enable_rl=True)`.

    Their flags have the same names and, where nothing else is said, the same defaults. Raises
    `ConfigError` for a value that is refused.
    """

    host: str = setting(
        "127.0.0.1", "address that the gateway binds; 0.0.0.0 opens it to other machines", metavar="HOST"
    )
    port: int = setting(0, "port that the gateway binds, 0 for a free one", launch=30000, metavar="PORT")
    worker_urls: Sequence[str] = setting(
        (), "engines to register, each tried until it answers", nargs="*", metavar="URL"
    )
    enable_rl: bool = setting(False, "serve the control plane under /v1/rl; all of it is 404 otherwise", group=_RL)
    rl_control_timeout_secs: float = setting(
        600,
        "deadline of one engine call in seconds, from connecting to the last byte",
        parse=int,
        group=_RL,
        metavar="S",
    )
    rl_fanout_concurrency: int = setting(32, "engine calls in flight in one fan-out, at most", group=_RL, metavar="N")
    max_payload_size: int = setting(512 << 20, "largest body of a request, in bytes", metavar="BYTES")
    request_timeout_secs: float = setting(
        1800, "seconds until the answer to an inference request begins", parse=int, group=_TIME, metavar="S"
    )
    shutdown_grace_period_secs: float = setting(
        180, "seconds that requests may still run after SIGTERM; for the command", parse=int, group=_TIME, metavar="S"
    )
    worker_startup_timeout_secs: float = setting(
        1800, "seconds that an engine is tried before its registration is given up", parse=int, group=_TIME, metavar="S"
    )
    drain_secs: float = setting(5, "seconds that a deleted worker drains before it is forgotten", flags=())
    dp_aware: bool = setting(False, "register each data-parallel rank of an engine as a worker")
    health_check: bool = setting(True, "check the health of workers", flags=["disable-health-check"], group=_TIME)
    health: HealthPolicy = setting(
        HealthPolicy(), "how the health of workers is checked", parts=HealthPolicy, group=_TIME
    )
    breaker: BreakerPolicy = setting(
        BreakerPolicy(), "when an engine gets a rest from inference", parts=BreakerPolicy, group=_TIME
    )
    request_id_headers: Sequence[str] = setting(
        REQUEST_ID_HEADERS,
        "headers that may hold the id of a request, the first that is there counts",
        nargs="*",
        metavar="NAME",
    )
    api_key: str | None = setting(
        None,
        "key that callers show, and that the engines of worker_urls are shown",
        secret=True,
        group=_AUTH,
        metavar="KEY",
    )
    control_plane_api_keys: Sequence[ControlKey] = setting(
        (),
        "keys for /v1/rl and /workers, each with a role: admin or user",
        nargs="*",
        read=_control_keys,
        group=_AUTH,
        metavar="ID:NAME:ROLE:KEY",
    )
    tenant_api_keys: Sequence[str] = setting(
        (),
        "keys for inference alone",
        secret=True,
        flags=["tenant-api-key", "tenant-api-keys"],
        nargs="*",
        read=_tenant_keys,
        group=_AUTH,
        metavar="[TENANT:]KEY",
    )
    jwt: JwtPolicy | None = setting(
        None, "identity provider whose tokens open the control plane", parts=JwtPolicy, group=_AUTH
    )
    control_plane_audit_enabled: bool = setting(False, "log who asked the control plane for what", group=_AUTH)
    ca_cert_paths: Sequence[str] = setting(
        (), "files of CAs for https:// engines, besides the system's", nargs="*", metavar="FILE"
    )
    prometheus_port: int | None = setting(
        None,
        "port that serves /metrics, 0 for a free one, none for no metrics",
        parse=int,
        group=METRICS,
        metavar="PORT",
    )
    prometheus_host: str = setting("127.0.0.1", "address of that port", group=METRICS, metavar="HOST")
    prometheus_duration_buckets: Sequence[float] = setting(
        BUCKETS, "upper bounds of the histograms, in seconds", nargs="+", parse=float, group=METRICS, metavar="S"
    )

    def __post_init__(self) -> None:
        if self.enable_rl:
            _at_least_one("rl_control_timeout_secs", self.rl_control_timeout_secs, exclusive=True)
            _at_least_one("rl_fanout_concurrency", self.rl_fanout_concurrency)
        for name, port in (("port", self.port), ("prometheus_port", self.prometheus_port or 0)):
            if not 0 <= port <= 65535:
                raise ConfigError(f"{name}={port}: must be 0 to 65535 (0 picks a free one)")
        buckets = list(self.prometheus_duration_buckets)
        if not buckets or buckets != sorted(set(buckets)):
            raise ConfigError(f"prometheus_duration_buckets={buckets}: must be one or more seconds, ascending")
        if self.max_payload_size < 0:
            raise ConfigError(f"max_payload_size={self.max_payload_size}: must be >= 0 bytes")
        if self.jwt:
            _check_jwt(self.jwt)
        for url in self.worker_urls:
            try:
                Spec(url)
            except ValueError as problem:
                raise ConfigError(f"worker_urls={url!r}: {problem}") from None


def open_to_all(config: Config) -> bool:
    """Whether the control plane takes anybody's word on an address that others can reach."""
    guarded = config.api_key or config.control_plane_api_keys or config.jwt or config.tenant_api_keys
    return not guarded and not is_loopback(config.host)


def _check_jwt(policy: JwtPolicy) -> None:
    if not policy.issuer:
        raise ConfigError(f"jwt_audience={policy.audience!r}: needs jwt_issuer too")
    if not available():
        raise ConfigError(f"jwt_issuer={policy.issuer!r}: needs PyJWT: pip install 'smg[jwt]'")
    if not policy.audience:
        raise ConfigError(f"jwt_issuer={policy.issuer!r}: needs jwt_audience too")
    for name, url in (("jwt_issuer", policy.issuer), ("jwt_jwks_uri", policy.jwks_uri)):
        if url is not None and not secure(url):
            raise ConfigError(f"{name}={url!r}: must be an https:// URL (http:// for this machine only)")
    for role in policy.roles.values():
        if role not in ("admin", "user"):
            raise ConfigError(f"jwt_role_mapping={role!r}: a gateway role is admin or user")


def _at_least_one(name: str, value: float, *, exclusive: bool = False) -> None:
    # A timeout below a second is for tests in process; SMG's flag takes whole seconds.
    if value <= 0 or (not exclusive and value < 1) or value >= 1 << 64:
        raise ConfigError(f"{name}={value}: must be >= 1 and below 2**64")
