"""The kinds of engines there are."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Protocol

from ..httpd.messages import Reply
from .fastapi.routing import Call
from .options import EngineOptions
from .sglang.routes import SGLang
from .state.machine import EngineState
from .state.traits import SGLANG, Traits
from .tokenspeed import routes as tokenspeed
from .vllm import routes as vllm


class Dialect(Protocol):
    """What translates between HTTP and an engine's state."""

    def answer(self, call: Call) -> Reply: ...


@dataclass(frozen=True)
class Kind:
    """A kind of engine: the `version` it has unless told otherwise, and its `traits` in a version."""

    version: str
    dialect: Callable[[EngineOptions, EngineState, int], Dialect]
    traits: Callable[[str], Traits] = lambda version: SGLANG


DIALECTS: Mapping[str, Kind] = {
    "sglang": Kind("0.5.23", SGLang),
    "vllm": Kind("0.33.0", vllm.VLLM, vllm.traits),
    "tokenspeed": Kind("0.1.0", tokenspeed.TokenSpeed, tokenspeed.traits),
}
