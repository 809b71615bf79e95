"""Mock engines: they behave like the real ones, and tests can ask them."""

from . import faults
from .engine import MockEngine
from .state.clock import ManualTicks

__all__ = ["ManualTicks", "MockEngine", "faults"]
