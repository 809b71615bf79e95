"""What the commands say in their help, and what their flags become."""

import argparse
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from reference_server import Config, ConfigError, cli
from reference_server.auth import ControlKey
from reference_server.breaker import BreakerPolicy
from reference_server.engines import __main__ as engine
from reference_server.flags import shown
from reference_server.health import HealthPolicy
from reference_server.oidc import JwtPolicy
from smg import serve

PARSERS = {"launch": cli.parser("smg launch"), "serve": serve.parser(), "engine": engine.parser()}
GATEWAY_PAGE = Path(__file__).parents[3] / "docs" / "gateway.md"


def launch(flags: str) -> Config:
    return cli.config_of(cli.parser("smg launch").parse_args(flags.split()))


def told(parser: argparse.ArgumentParser) -> Iterator[argparse.Action]:
    """What `--help` lists, without what ends the command at once."""
    for action in parser._actions:
        if action.help != argparse.SUPPRESS and action.default != argparse.SUPPRESS:
            yield action


# -- help


@pytest.mark.parametrize("command", PARSERS)
def test_help_tells_every_default(command: str) -> None:
    for action in told(PARSERS[command]):
        assert action.help, action.option_strings
        if action.option_strings and action.nargs != 0 and not action.required:
            text = action.help % {"default": action.default}
            assert text.endswith(" " + shown(action.default)), action.option_strings


def test_the_page_of_the_gateway_tells_every_flag_and_its_default() -> None:
    rows = re.findall(r"^\| (`--.*?) \| (.*?) ?\|", GATEWAY_PAGE.read_text(encoding="utf-8"), re.MULTILINE)
    page: dict[str, str] = {}
    for flags, defaults in rows:
        names = re.findall(r"`(--[a-z-]+)", flags)
        page |= dict(zip(names, defaults.split(", ") if defaults else ["none"] * len(names), strict=True))
    assert page == {action.option_strings[-1]: as_on_the_page(action) for action in told(PARSERS["launch"])}


def as_on_the_page(action: argparse.Action) -> str:
    if action.nargs == 0:
        return "off"
    words = shown(action.default)[len("(default ") : -1].split()
    return " ".join(words if len(words) < 10 else [words[0], "…", words[-1]])


# -- flags


def test_without_flags_all_is_as_documented() -> None:
    assert launch("") == Config(port=30000)


FLAGS: list[tuple[str, dict[str, Any]]] = [
    ("--host 0.0.0.0", {"host": "0.0.0.0"}),
    ("--port 1", {"port": 1}),
    ("--worker-urls http://a:1 http://b:2", {"worker_urls": ("http://a:1", "http://b:2")}),
    ("--worker-urls", {"worker_urls": ()}),
    ("--enable-rl", {"enable_rl": True}),
    ("--rl-control-timeout-secs 7", {"rl_control_timeout_secs": 7}),
    ("--rl-fanout-concurrency 7", {"rl_fanout_concurrency": 7}),
    ("--max-payload-size 7", {"max_payload_size": 7}),
    ("--request-timeout-secs 7", {"request_timeout_secs": 7}),
    ("--shutdown-grace-period-secs 7", {"shutdown_grace_period_secs": 7}),
    ("--worker-startup-timeout-secs 7", {"worker_startup_timeout_secs": 7}),
    ("--dp-aware", {"dp_aware": True}),
    ("--disable-health-check", {"health_check": False}),
    ("--health-check-interval-secs 7", {"health": HealthPolicy(interval=7)}),
    ("--health-check-timeout-secs 7", {"health": HealthPolicy(timeout=7)}),
    ("--health-failure-threshold 7", {"health": HealthPolicy(failure_threshold=7)}),
    ("--health-success-threshold 7", {"health": HealthPolicy(success_threshold=7)}),
    ("--health-check-endpoint /up", {"health": HealthPolicy(endpoint="/up")}),
    ("--cb-failure-threshold 7", {"breaker": BreakerPolicy(failures=7)}),
    ("--cb-timeout-duration-secs 7", {"breaker": BreakerPolicy(seconds=7)}),
    ("--disable-circuit-breaker", {"breaker": BreakerPolicy(enabled=False)}),
    ("--request-id-headers x-a x-b", {"request_id_headers": ("x-a", "x-b")}),
    ("--api-key k", {"api_key": "k"}),
    (
        "--control-plane-api-keys a:b:admin:c:d e:f:User:g",
        {"control_plane_api_keys": (ControlKey("a", "b", "admin", "c:d"), ControlKey("e", "f", "user", "g"))},
    ),
    ("--tenant-api-key k t:l", {"tenant_api_keys": ("k", "l")}),
    ("--tenant-api-keys k", {"tenant_api_keys": ("k",)}),
    ("--control-plane-audit-enabled", {"control_plane_audit_enabled": True}),
    ("--ca-cert-paths a b", {"ca_cert_paths": ("a", "b")}),
    ("--prometheus-port 0", {"prometheus_port": 0}),
    ("--prometheus-host 0.0.0.0", {"prometheus_host": "0.0.0.0"}),
    ("--prometheus-duration-buckets 1 2.5", {"prometheus_duration_buckets": (1.0, 2.5)}),
    ("--policy cache_aware --max-concurrent-requests 8 --disable-retries", {}),
]
JWT = "--jwt-issuer https://i --jwt-audience smg"
JWT_FLAGS: list[tuple[str, JwtPolicy | None]] = [
    (JWT, JwtPolicy("https://i", "smg")),
    (f"{JWT} --jwt-jwks-uri https://k", JwtPolicy("https://i", "smg", "https://k")),
    (f"{JWT} --jwt-role-mapping a=b=admin c=user", JwtPolicy("https://i", "smg", roles={"a=b": "admin", "c": "user"})),
    ("--jwt-jwks-uri https://k --jwt-role-mapping a=admin", None),
]


@pytest.mark.parametrize(("flags", "settings"), FLAGS, ids=[flags for flags, _ in FLAGS])
def test_a_flag_becomes_its_setting(flags: str, settings: dict[str, Any]) -> None:
    assert launch(flags) == Config(**{"port": 30000, **settings})


@pytest.mark.parametrize(("flags", "policy"), JWT_FLAGS, ids=[flags for flags, _ in JWT_FLAGS])
def test_flags_of_an_identity_provider_are_one_setting(
    flags: str, policy: JwtPolicy | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("reference_server.config.available", lambda: True)
    assert launch(flags) == Config(port=30000, jwt=policy)


def test_every_flag_of_the_gateway_is_in_these_tables() -> None:
    own = {"--mock", "--control", "--ready-file", "--log-level", "--log-json"}
    tried = set(re.findall("--[a-z-]+", " ".join([flags for flags, _ in (*FLAGS, *JWT_FLAGS)])))
    assert {flag for action in told(PARSERS["launch"]) for flag in action.option_strings} - own <= tried


@pytest.mark.parametrize(
    ("flags", "says"),
    [
        ("--jwt-audience smg", "jwt_audience='smg': needs jwt_issuer too"),
        ("--jwt-issuer https://i", "jwt_issuer='https://i': needs jwt_audience too"),
        ("--control-plane-api-keys a:b:hush", "control_plane_api_keys: expected id:name:role:key"),
        ("--port -1", "port=-1: must be 0 to 65535"),
    ],
)
def test_a_refused_value_is_told_with_its_setting(flags: str, says: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("reference_server.config.available", lambda: True)
    with pytest.raises(ConfigError) as refused:
        launch(flags)
    assert str(refused.value).startswith(says)
