"""A kind of engine: everything in which a mock engine differs from one of another kind."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Protocol

from smg.rl.engines import EngineFacts

from ..httpd.messages import Reply
from .fastapi.routing import Call, Endpoints
from .options import EngineOptions
from .state.machine import EngineState
from .state.traits import DEFAULT, Traits


class Dialect(Protocol):
    """What translates between HTTP and an engine's state."""

    @property
    def routes(self) -> Endpoints:
        """Every path it answers."""

    def answer(self, call: Call) -> Reply: ...


def unsuccessful(path: str, message: str) -> object:
    """What most engines answer, with 200, when they did not do what `path` asks."""
    return {"success": False, "message": message}


def same_traits(version: str) -> Traits:
    """Every version behaves alike, and as SGLang does."""
    return DEFAULT


@dataclass(frozen=True)
class Kind:
    """One kind of engine; a dialect's package makes one, and `kinds` lists it.

    `facts` is its row of the table that client and gateway read (`smg.rl.engines`):
    pause, version and weight routes, capabilities, what a registration asks. `version` is
    what it looks like unless told otherwise. `dialect` makes the translator from options,
    state and port; `traits` tells how a version behaves beneath its routes. `failure` makes
    the answer, of status 200, that says that a path did not do it. `rehearsals` has what is
    answered on paths that succeed only after other calls, or with a trainer's help.
    """

    name: str
    facts: EngineFacts
    version: str
    dialect: Callable[[EngineOptions, EngineState, int], Dialect]
    traits: Callable[[str], Traits] = same_traits
    failure: Callable[[str, str], object] = unsuccessful
    rehearsals: Mapping[str, object] = field(default_factory=dict)
