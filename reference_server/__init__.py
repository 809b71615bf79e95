"""A reference gateway for the `/v1/rl` contract, and mock engines: what tests may use."""

from .config import Config, ConfigError
from .engines import MockEngine
from .gateway import Gateway

__all__ = ["Config", "ConfigError", "Gateway", "MockEngine"]
