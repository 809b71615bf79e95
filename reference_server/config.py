"""The gateway's settings, under the names of SMG's flags. Refuses what makes no sense."""

from collections.abc import Sequence
from dataclasses import dataclass, field

from .auth import ControlKey, is_loopback
from .breaker import BreakerPolicy
from .health import HealthPolicy
from .metrics import BUCKETS
from .oidc import JwtPolicy, available, secure
from .registration import Spec

REQUEST_ID_HEADERS = ("x-request-id", "x-correlation-id", "x-trace-id", "request-id")


class ConfigError(ValueError):
    """A setting that is refused; the text says which, its value and the rule."""


@dataclass(frozen=True)
class Config:
    """Settings of one gateway. Sizes are bytes, times seconds.

    Raises `ConfigError` for a value that is refused.
    """

    host: str = "127.0.0.1"
    port: int = 0
    worker_urls: Sequence[str] = ()
    enable_rl: bool = False
    rl_control_timeout_secs: float = 600
    rl_fanout_concurrency: int = 32
    max_payload_size: int = 512 << 20
    request_timeout_secs: float = 1800
    shutdown_grace_period_secs: float = 180
    worker_startup_timeout_secs: float = 1800
    drain_secs: float = 5
    dp_aware: bool = False
    health_check: bool = True
    health: HealthPolicy = HealthPolicy()
    breaker: BreakerPolicy = BreakerPolicy()
    request_id_headers: Sequence[str] = REQUEST_ID_HEADERS
    api_key: str | None = field(default=None, repr=False)
    control_plane_api_keys: Sequence[ControlKey] = ()
    tenant_api_keys: Sequence[str] = field(default=(), repr=False)
    jwt: JwtPolicy | None = None
    control_plane_audit_enabled: bool = False
    ca_cert_paths: Sequence[str] = ()
    prometheus_port: int | None = None
    prometheus_host: str = "127.0.0.1"
    prometheus_duration_buckets: Sequence[float] = BUCKETS

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
