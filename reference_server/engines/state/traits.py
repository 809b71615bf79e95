"""In what engines differ beneath their HTTP: pause modes, and what a pause, sleep or bad refit does to them."""

from collections.abc import Mapping
from dataclasses import dataclass


@dataclass(frozen=True)
class PauseMode:
    """What becomes of the generations in flight when the engine is paused; by default they are frozen.

    `ends`: they end, aborted. `retracts`: those that run go back to the queue. `drains`:
    they come to their end, and the pause returns then. `yields`: frozen, they let go of
    the prefix cache when something else wants it. `dooms`: frozen, they end only when
    the engine resumes, should they be aborted.
    """

    ends: bool = False
    retracts: bool = False
    drains: bool = False
    yields: bool = False
    dooms: bool = False


PAUSE_MODES: Mapping[str, PauseMode] = {
    "abort": PauseMode(ends=True, drains=True),
    "retract": PauseMode(retracts=True),
    "in_place": PauseMode(dooms=True),
    "wait": PauseMode(drains=True),
    "keep": PauseMode(yields=True),
}

RUNNING = PauseMode()
"""In place of a mode while the engine is not paused."""


@dataclass(frozen=True)
class Traits:
    """How one kind of engine differs from SGLang.

    `locks`: the pause modes that hold up resumes, other pauses and weights that are handed
    over, until nothing is in flight. `refuses`: the pause modes in which a new request is refused instead of parked.
    `queues`: what is parked is parked in the engine's own queue, where an abort finds it.
    `needs_memory`: who generates, or is refitted, while its memory is given back dies; without
    it, requests wait for the memory.
    `half_loads`: after a refit from where nothing is, who generates dies.
    """

    locks: frozenset[str] = frozenset({"abort"})
    refuses: frozenset[str] = frozenset()
    queues: bool = False
    needs_memory: bool = False
    half_loads: bool = False


DEFAULT = Traits()
"""How SGLang behaves."""
