"""A reference gateway for the `/v1/rl` contract, and mock engines: what tests may use."""

from typing import TYPE_CHECKING

from .config import Config, ConfigError
from .gateway import Gateway

if TYPE_CHECKING:
    from .engines import MockEngine

__all__ = ["Config", "ConfigError", "Gateway", "MockEngine"]


def __getattr__(name: str) -> object:
    # A gateway without mock engines starts a quarter faster without loading them.
    if name == "MockEngine":
        from .engines import MockEngine

        return MockEngine
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
