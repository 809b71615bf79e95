"""Fixtures for the tests of a trainer: `smg_fleet` and `smg_gateway`.

Loaded by pytest wherever this package is installed; nothing is imported before a test
asks for a fixture.
"""

from collections.abc import Iterator
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from .fleet import Fleet, Make
    from .gateway import Gateway


@pytest.fixture
def smg_fleet() -> "Iterator[Make]":
    """A factory of running fleets: `fleet = smg_fleet(sglang=2)`.

    Every fleet is checked and stopped after the test: an engine left paused, or an
    exception in a thread of a server, is an error.
    """
    from .fleet import Fleet

    fleets: list[Fleet] = []

    def make(**arguments: object) -> "Fleet":
        fleet = Fleet(**arguments)  # type: ignore[arg-type]  # Fleet checks
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
