"""A reference gateway for the `/v1/rl` contract, and mock engines: what tests may use."""

import importlib
from typing import TYPE_CHECKING

from .config import Config, ConfigError
from .gateway import Gateway

if TYPE_CHECKING:
    from .engines import MockEngine, faults
    from .fleet import Fleet

__all__ = ["Config", "ConfigError", "Fleet", "Gateway", "MockEngine", "faults"]


def __getattr__(name: str) -> object:
    # A gateway without mock engines starts a quarter faster without loading them.
    modules = {"Fleet": ".fleet", "MockEngine": ".engines", "faults": ".engines"}
    if name not in modules:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(importlib.import_module(modules[name], __name__), name)
