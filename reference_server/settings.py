"""What may be said of a gateway and of a worker, for type checkers and editors: typed keywords.

Fields and types are those of `Config` and of `Spec`, where each is explained.
"""

from collections.abc import Mapping, Sequence
from typing import TypedDict

from .auth import ControlKey
from .breaker import BreakerPolicy
from .health import HealthPolicy
from .oidc import JwtPolicy


class GatewaySettings(TypedDict, total=False):
    """The keywords of `Gateway`."""

    host: str
    port: int
    worker_urls: Sequence[str]
    enable_rl: bool
    rl_control_timeout_secs: float
    rl_fanout_concurrency: int
    max_payload_size: int
    request_timeout_secs: float
    shutdown_grace_period_secs: float
    worker_startup_timeout_secs: float
    drain_secs: float
    dp_aware: bool
    health_check: bool
    health: HealthPolicy
    breaker: BreakerPolicy
    request_id_headers: Sequence[str]
    api_key: str | None
    control_plane_api_keys: Sequence[ControlKey]
    tenant_api_keys: Sequence[str]
    jwt: JwtPolicy | None
    control_plane_audit_enabled: bool
    ca_cert_paths: Sequence[str]
    prometheus_port: int | None
    prometheus_host: str
    prometheus_duration_buckets: Sequence[float]


class Registration(TypedDict, total=False):
    """The keywords of `Gateway.register`."""

    labels: Mapping[str, str]
    api_key: str | None
    runtime: str | None
    worker_type: str
    priority: int
    cost: float
