"""Settings are told once: each documented for its class, each typed keyword the field of its name."""

import dataclasses
import inspect
import re
import typing
from typing import Any

import pytest

from reference_server import Config
from reference_server.breaker import BreakerPolicy
from reference_server.engines.options import EngineOptions
from reference_server.health import HealthPolicy
from reference_server.oidc import JwtPolicy
from reference_server.registration import Spec
from reference_server.settings import GatewaySettings, Registration

KINDS = [Config, HealthPolicy, BreakerPolicy, JwtPolicy, EngineOptions]
UNITS = {"sec|interval|timeout|buckets": "seconds", "payload_size": "bytes"}


@pytest.mark.parametrize(
    ("kind", "name"), [(kind, one.name) for kind in KINDS for one in dataclasses.fields(kind)], ids=str
)
def test_every_setting_is_documented_for_its_class(kind: type[Any], name: str) -> None:
    help = next(one.metadata["help"] for one in dataclasses.fields(kind) if one.name == name)
    assert len(help.split()) >= 3
    assert f"\n{name}: {help}" in str(inspect.getdoc(kind))
    assert all(unit in help for names, unit in UNITS.items() if re.search(names, name))


def types_of(kind: type[Any]) -> dict[str, Any]:
    return typing.get_type_hints(kind)


def test_the_typed_keywords_are_the_fields() -> None:
    assert types_of(GatewaySettings) == types_of(Config)
    assert types_of(Registration) == {name: type_ for name, type_ in types_of(Spec).items() if name != "url"}
