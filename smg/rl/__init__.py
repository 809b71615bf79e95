"""The client of the `/v1/rl` control plane: discover, call, fan out, pause, refit, resume."""

# Not a constant of our own: editors would believe that it is false, and complete nothing.
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from .client import RL
    from .engines import SGLANG, VLLM, PauseRoutes
    from .errors import FanoutError, RlConnectionError, RlError, RlTimeoutError, WeightVersionError
    from .pause import paused
    from .report import Pause, Target
    from .results import CallResult, FanoutFailure, FanoutResult, Worker
    from .selectors import Selector, SelectorError, Term

# A name is loaded when it is asked for: the gateway takes the selectors from here, and
# would otherwise load a client with them.
_HOMES = {
    "client": ("RL",),
    "errors": ("FanoutError", "RlConnectionError", "RlError", "RlTimeoutError", "WeightVersionError"),
    "pause": ("paused",),
    "report": ("Pause", "Target"),
    "results": ("CallResult", "FanoutFailure", "FanoutResult", "Worker"),
    "engines": ("SGLANG", "VLLM", "PauseRoutes"),
    "selectors": ("Selector", "SelectorError", "Term"),
}

__all__ = [
    "RL",
    "SGLANG",
    "VLLM",
    "CallResult",
    "FanoutError",
    "FanoutFailure",
    "FanoutResult",
    "Pause",
    "PauseRoutes",
    "RlConnectionError",
    "RlError",
    "RlTimeoutError",
    "Selector",
    "SelectorError",
    "Target",
    "Term",
    "WeightVersionError",
    "Worker",
    "paused",
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
