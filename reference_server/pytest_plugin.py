"""Fixtures for the tests of a trainer: `smg_fleet` and `smg_gateway`.

Loaded by pytest wherever this package is installed; nothing is imported before a test
asks for a fixture.
"""

from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from typing_extensions import Unpack

    from .engines import MockEngine
    from .engines.kinds import Counts
    from .engines.settings import EngineSettings
    from .fleet import Fleet, MakeFleet
    from .gateway import Gateway
    from .settings import GatewaySettings


@pytest.fixture
def smg_fleet() -> "Iterator[MakeFleet]":
    """A factory of running fleets: `fleet = smg_fleet(sglang=2)`.

    Every fleet is stopped and checked after the test: what `Fleet.check` raises is an error,
    be it an engine left paused or a fault that was never used.
    """
    from .fleet import Fleet

    fleets: list[Fleet] = []

    def make(
        *engines: "MockEngine",
        seed: int = 0,
        labels: "Mapping[str, str] | None" = None,
        engine: "EngineSettings | None" = None,
        gateway: "GatewaySettings | None" = None,
        **kinds: "Unpack[Counts]",
    ) -> "Fleet":
        fleet = Fleet(*engines, seed=seed, labels=labels, engine=engine, gateway=gateway, **kinds)
        fleets.append(fleet.start())
        return fleet

    yield make
    for fleet in fleets:
        fleet.stop()
    for fleet in fleets:
        fleet.check()


@pytest.fixture
def smg_gateway() -> "Iterator[Gateway]":
    """A running gateway without workers, with the control plane on."""
    from .gateway import Gateway

    with Gateway(enable_rl=True, health_check=False, keep_log=True) as gateway:
        yield gateway
    for failure in gateway.failures:
        raise failure
