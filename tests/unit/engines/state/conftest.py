"""The engine that the tests of this folder begin with."""

import pytest

from reference_server.engines.state.machine import EngineState


@pytest.fixture
def state() -> EngineState:
    return EngineState("step-1", "1")
