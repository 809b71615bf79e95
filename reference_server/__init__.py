"""A reference gateway for the `/v1/rl` contract, and mock engines: what tests may use."""

# Not a constant of our own: editors would believe that it is false, and complete nothing.
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from .config import Config, ConfigError
    from .engines import ManualTicks, MockEngine, faults
    from .engines.settings import EngineSettings
    from .fleet import Fleet, MakeFleet
    from .gateway import Gateway
    from .settings import GatewaySettings

# A name is loaded when it is asked for: a gateway without mock engines starts a quarter
# faster without them, and an engine needs no gateway.
_HOMES = {
    "config": ("Config", "ConfigError"),
    "engines": ("ManualTicks", "MockEngine", "faults"),
    "engines.settings": ("EngineSettings",),
    "fleet": ("Fleet", "MakeFleet"),
    "gateway": ("Gateway",),
    "settings": ("GatewaySettings",),
}

__all__ = [
    "Config",
    "ConfigError",
    "EngineSettings",
    "Fleet",
    "Gateway",
    "GatewaySettings",
    "MakeFleet",
    "ManualTicks",
    "MockEngine",
    "faults",
]


def __getattr__(name: str) -> object:
    from importlib import import_module

    for home, names in _HOMES.items():
        if name in names:
            value: object = getattr(import_module(f"{__name__}.{home}"), name)
            globals()[name] = value
            return value
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
