"""Mock engines for the tests of this folder; each is whole when its test is over."""

from collections.abc import Callable, Iterator
from functools import partial

import pytest

from reference_server import ManualTicks, MockEngine

from ..support.aside import Aside


@pytest.fixture
def start() -> Callable[..., MockEngine]:
    """How `engine` and `slow` are started; a module about another kind has its own."""
    return partial(MockEngine, "sglang", model_path="step-1", weight_version="1")


@pytest.fixture
def engine(aside: Aside, start: Callable[..., MockEngine]) -> Iterator[MockEngine]:
    """An engine that answers as fast as it can."""
    with start() as engine:
        yield engine
        engine.check()


@pytest.fixture
def ticks() -> ManualTicks:
    return ManualTicks()


@pytest.fixture
def slow(aside: Aside, ticks: ManualTicks, start: Callable[..., MockEngine]) -> Iterator[MockEngine]:
    """An engine that generates only when `ticks` are stepped."""
    with start(ticks=ticks) as engine:
        yield engine
        engine.check()
