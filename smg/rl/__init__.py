"""The client of the `/v1/rl` control plane: discover, call, fan out, pause, refit, resume."""

from .client import RL
from .errors import (
    FanoutError,
    RlConnectionError,
    RlError,
    RlTimeoutError,
    WeightVersionError,
)
from .pause import paused
from .pausing import Pause, Target
from .results import CallResult, FanoutFailure, FanoutResult, Worker
from .routes import SGLANG, VLLM, PauseRoutes
from .selectors import Selector, SelectorError, Term

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
