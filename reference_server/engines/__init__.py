"""Mock engines: they behave like the real ones, and tests can ask them."""

from .engine import MockEngine
from .ticks import ManualTicks

__all__ = ["ManualTicks", "MockEngine"]
