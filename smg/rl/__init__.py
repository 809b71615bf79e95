"""The client of the `/v1/rl` control plane: discover, call, fan out, pause, refit, resume."""

from .client import RL
from .errors import FanoutError, RlConnectionError, RlError, RlTimeoutError
from .pause import paused
from .results import CallResult, FanoutFailure, FanoutResult, Worker
from .selectors import Selector, SelectorError, Term

__all__ = [
    "RL",
    "CallResult",
    "FanoutError",
    "FanoutFailure",
    "FanoutResult",
    "RlConnectionError",
    "RlError",
    "RlTimeoutError",
    "Selector",
    "SelectorError",
    "Term",
    "Worker",
    "paused",
]
