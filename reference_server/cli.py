"""`smg launch`, which is `python -m reference_server`: SMG's flags -> Config -> a running gateway."""

import argparse
import json
import os
import sys
from collections.abc import Sequence
from contextlib import AbstractContextManager, nullcontext
from typing import TYPE_CHECKING, NoReturn

from smg import __version__

from .auth import ControlKey
from .breaker import BreakerPolicy
from .config import REQUEST_ID_HEADERS, Config, ConfigError, open_to_all
from .gateway import Gateway
from .health import HealthPolicy
from .logs import LEVELS, stop_writing, write_to_stderr
from .metrics import BUCKETS
from .oidc import JwtPolicy
from .process import Termination, ready_file

if TYPE_CHECKING:
    from .mocks import Mocks

# Flags of SMG that tune what this gateway does not have: taken as typed, without effect.
_WITHOUT_EFFECT = {
    1: """assignment-mode balance-abs-threshold balance-rel-threshold block-size cache-threshold
        cb-success-threshold cb-window-duration-secs
        eviction-interval-secs job-queue-capacity job-queue-concurrency load-monitor-interval
        log-dir max-concurrent-requests max-idle-secs max-tree-size policy queue-size
        queue-timeout-secs rate-limit-tokens-per-second retry-backoff-multiplier
        retry-initial-backoff-ms retry-jitter-factor retry-max-backoff-ms retry-max-retries
        tokenizer-path upstream-pool-idle-timeout-secs worker-startup-check-interval""",
    0: "disable-load-monitoring disable-retries disable-tokenizer-autoload enable-igw",
}


_OPEN = (
    "anyone who can reach this port can pause engines and load weights into them; "
    "close it with --control-plane-api-keys or --api-key, or with --host 127.0.0.1"
)


def main(argv: Sequence[str] | None = None, prog: str = "smg launch", termination: Termination | None = None) -> int:
    """Run a gateway until SIGTERM or Ctrl-C. Exit 0 then; 1 for a refused value, 2 for a wrong flag.

    A caller that takes the signals itself passes its `termination`.
    """
    arguments = parser(prog).parse_args(argv)
    handler = write_to_stderr(arguments.log_level, as_json=arguments.log_json)
    try:
        with _mocks(arguments) as mocks:
            gateway = Gateway(config_of(arguments), interceptor=mocks.interceptor if mocks else None)
            return _serve(prog, gateway, mocks, arguments.ready_file, termination)
    except ConfigError as problem:
        return _fail(prog, str(problem))
    finally:
        stop_writing(handler)


def parser(prog: str) -> argparse.ArgumentParser:
    """The flags, under SMG's names."""
    p = argparse.ArgumentParser(prog=prog, description="Run a reference gateway for the SMG RL control plane.")
    p.add_argument("--version", action="version", version=__version__)
    p.add_argument("--host", default="127.0.0.1", help="address to bind (default 127.0.0.1)")
    p.add_argument("--port", type=int, default=30000, help="port to bind, 0 for a free one (default 30000)")
    p.add_argument("--worker-urls", nargs="*", default=[], metavar="URL", help="engines to register")
    p.add_argument("--mock", type=_kinds, default=[], metavar="KIND=N", help="start mock engines too: sglang=2")
    p.add_argument("--control", action="store_true", help="let anyone control the mock engines under /_mock/")
    p.add_argument("--ready-file", metavar="FILE", help="holds the first line of the output while the gateway answers")
    p.add_argument("--dp-aware", action="store_true", help="register each data-parallel rank as a worker")
    _add_control_flags(p.add_argument_group("RL control plane"))
    _add_auth_flags(p.add_argument_group("authentication"))
    _add_health_flags(p.add_argument_group("health and time"))
    _add_telemetry_flags(p.add_argument_group("metrics and logs"))
    p.add_argument("--max-payload-size", type=int, default=512 << 20, metavar="BYTES", help="largest request body")
    p.add_argument("--request-id-headers", nargs="*", default=list(REQUEST_ID_HEADERS), metavar="NAME")
    p.add_argument("--ca-cert-paths", nargs="*", default=[], metavar="FILE", help="CAs for https:// engines")
    for values, names in _WITHOUT_EFFECT.items():
        for name in names.split():
            p.add_argument(f"--{name}", action="store" if values else "store_true", help=argparse.SUPPRESS)
    return p


def _add_control_flags(group: "argparse._ArgumentGroup") -> None:
    group.add_argument("--enable-rl", action="store_true", help="mount /v1/rl")
    group.add_argument("--rl-control-timeout-secs", type=int, default=600, metavar="S", help="deadline of one call")
    group.add_argument("--rl-fanout-concurrency", type=int, default=32, metavar="N", help="calls in flight a fan-out")


def _add_auth_flags(group: "argparse._ArgumentGroup") -> None:
    group.add_argument("--api-key", metavar="KEY", help="key of this gateway and of the engines in --worker-urls")
    group.add_argument("--control-plane-api-keys", nargs="*", default=[], metavar="ID:NAME:ROLE:KEY")
    group.add_argument("--tenant-api-key", "--tenant-api-keys", nargs="*", default=[], metavar="[TENANT:]KEY")
    group.add_argument("--jwt-issuer", metavar="URL", help="identity provider whose tokens are accepted (smg[jwt])")
    group.add_argument("--jwt-audience", default="", metavar="TEXT", help="for whom those tokens must be made out")
    group.add_argument("--jwt-jwks-uri", metavar="URL", help="its keys (default: from its discovery document)")
    group.add_argument("--jwt-role-mapping", nargs="*", default=[], metavar="THEIRS=OURS")
    group.add_argument("--control-plane-audit-enabled", action="store_true", help="log who used the control plane")


def _add_telemetry_flags(group: "argparse._ArgumentGroup") -> None:
    group.add_argument("--prometheus-port", type=int, metavar="PORT", help="serve /metrics here (default: not at all)")
    group.add_argument("--prometheus-host", default="127.0.0.1", metavar="HOST")
    group.add_argument("--prometheus-duration-buckets", nargs="+", type=float, default=list(BUCKETS), metavar="S")
    group.add_argument("--log-level", choices=list(LEVELS), default="info")
    group.add_argument("--log-json", action="store_true")


def _add_health_flags(group: "argparse._ArgumentGroup") -> None:
    group.add_argument("--disable-health-check", action="store_true")
    group.add_argument("--health-check-interval-secs", type=int, default=60, metavar="S")
    group.add_argument("--health-check-timeout-secs", type=int, default=5, metavar="S")
    group.add_argument("--health-check-endpoint", default="/health", metavar="PATH")
    group.add_argument("--health-failure-threshold", type=int, default=3, metavar="N")
    group.add_argument("--health-success-threshold", type=int, default=2, metavar="N")
    group.add_argument("--disable-circuit-breaker", action="store_true")
    group.add_argument("--cb-failure-threshold", type=int, default=10, metavar="N")
    group.add_argument("--cb-timeout-duration-secs", type=int, default=60, metavar="S")
    group.add_argument("--request-timeout-secs", type=int, default=1800, metavar="S", help="deadline of inference")
    group.add_argument("--worker-startup-timeout-secs", type=int, default=1800, metavar="S")
    group.add_argument("--shutdown-grace-period-secs", type=int, default=180, metavar="S")


def _kinds(text: str) -> list[str]:
    from .mocks import kinds

    return kinds(text)


def _mocks(a: argparse.Namespace) -> "AbstractContextManager[Mocks | None]":
    if not a.mock:
        return nullcontext()
    from .mocks import Mocks

    return Mocks(a.mock, a.control)


def config_of(a: argparse.Namespace) -> Config:
    """The settings that the flags name; raises `ConfigError`."""
    try:
        keys = [ControlKey.parse(text) for text in a.control_plane_api_keys]
    except ValueError as problem:
        raise ConfigError(f"control_plane_api_keys: {problem}") from None
    if a.jwt_audience and not a.jwt_issuer:
        raise ConfigError(f"jwt_audience={a.jwt_audience!r}: needs jwt_issuer too")
    roles = dict(mapping.rpartition("=")[::2] for mapping in a.jwt_role_mapping)
    policy = HealthPolicy(
        a.health_check_interval_secs,
        a.health_check_timeout_secs,
        a.health_failure_threshold,
        a.health_success_threshold,
        a.health_check_endpoint,
    )
    same_name = (
        "host port worker_urls dp_aware enable_rl rl_control_timeout_secs rl_fanout_concurrency max_payload_size"
        " request_timeout_secs worker_startup_timeout_secs shutdown_grace_period_secs request_id_headers api_key"
        " control_plane_audit_enabled ca_cert_paths prometheus_port prometheus_host prometheus_duration_buckets"
    )
    return Config(
        **{name: getattr(a, name) for name in same_name.split()},
        control_plane_api_keys=keys,
        tenant_api_keys=[text.rpartition(":")[2] for text in a.tenant_api_key],
        jwt=JwtPolicy(a.jwt_issuer, a.jwt_audience, a.jwt_jwks_uri, roles) if a.jwt_issuer else None,
        health_check=not a.disable_health_check,
        health=policy,
        breaker=BreakerPolicy(a.cb_failure_threshold, a.cb_timeout_duration_secs, not a.disable_circuit_breaker),
    )


def _serve(prog: str, gateway: Gateway, mocks: "Mocks | None", path: str | None, given: Termination | None) -> int:
    with nullcontext(given) if given else Termination() as termination:
        try:
            gateway.start()
            engines = mocks.register(gateway) if mocks else {}
            ready = {"event": "ready", "url": gateway.url, "pid": os.getpid(), **engines}
            with ready_file(path, ready):
                print(json.dumps(ready), flush=True)
                if open_to_all(gateway.config):
                    print(f"{prog}: warning: {_OPEN}", file=sys.stderr)
                termination.wait()
        except OSError as problem:
            gateway.stop()
            return _fail(prog, problem.strerror or str(problem))
    gateway.stop(gateway.config.shutdown_grace_period_secs)
    return 0


def _fail(prog: str, problem: str) -> int:
    print(f"{prog}: {problem}", file=sys.stderr)
    return 1


def run() -> NoReturn:
    """The entry of `python -m reference_server`; an optional word `launch` is accepted."""
    argv = sys.argv[1:]
    sys.exit(main(argv[1:] if argv[:1] == ["launch"] else argv))
