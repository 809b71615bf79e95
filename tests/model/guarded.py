"""Runs in which the caller dies: what its guard was told by then, and what the guard makes of it."""

import json
import os
import threading
from collections.abc import Iterator, Mapping, Sequence
from unittest import mock

from smg.rl import RL, RlError, paused, quarantine
from smg.rl.guard import Guard
from smg.rl.guardian import Heard

from .explore import Case, Run, explore, timeless
from .world import DEATHS, GATEWAY, REFIT, Fault, World

TRIES = 3
"""How often the guard tries; a real one does for minutes."""


class GuardInMemory(Guard):
    """Tells what a guard process would hear, as long as the caller lives."""

    def __init__(self, world: World, terms: Mapping[str, object]) -> None:
        self._base_url, self._owner, self._lock = GATEWAY, os.getpid(), threading.RLock()
        self._world, self.heard = world, Heard()
        self._tell("terms", {**terms, "trainer": 0, "born": None, "folder": None, "patience": 0})
        quarantine.watch(self)

    def release(self) -> None:
        quarantine.unwatch(self)
        self._tell("released")

    def _tell(self, *words: object) -> None:
        if not self._world.dead:
            self.heard.take(json.dumps(words).encode() + b"\n")


class Carried(RL):
    """A client whose arguments nobody needs: the guard of the model gets another one."""

    def carried(self) -> dict[str, object]:
        return {}


def run(case: Case, faults: Sequence[Fault]) -> Run:
    """One run with a guard; when the caller dies in it, the guard does what it has to."""
    world = World(case.kind, case.routes, faults)
    rl, selector = Carried(GATEWAY, sender=world), f"engine={case.kind}"
    guards: list[GuardInMemory] = []

    def start(base_url: str, terms: Mapping[str, object]) -> GuardInMemory:
        guards.append(GuardInMemory(world, terms))
        return guards[-1]

    error: BaseException | None = None
    try:
        with mock.patch("smg.rl.guard.Guard", start):
            manager = timeless(paused(rl, selector, routes=case.routes, guard=True, **case.keywords), world)
            with manager:
                rl.fanout(REFIT[case.kind], {"model_path": "2"}, selector=selector)
    except BaseException as caught:
        error = caught
    if world.dead and guards and not guards[0].heard.released:
        error = act(guards[0].heard, world)
    world.finish_late_calls()
    return Run(case, world, error, None)


def act(heard: Heard, world: World) -> RlError | None:
    """The duty of the dead, done by another process; an error that names who is left."""
    world.dead = False
    # It is deaf to signals, and nobody kills it too.
    world.faults = [one for one in world.faults if "interrupted" not in one.kind and one.kind not in DEATHS]
    world.trace.append("the caller is dead, its guard acts")
    duty = heard.duty(RL(GATEWAY, sender=world))
    duty._resume._sleep, duty._resume._clock = world.sleep, world.clock
    for _ in range(TRIES):
        try:
            duty.settle()
        except RlError as error:
            duty.name(error)
            told = error
        else:
            told = RlError("left paused: their refit was under way or had failed")
            duty.name(told)
            break
    return told


def deaths(case: Case, faults: int) -> Iterator[Run]:
    """Every run with up to `faults` faults, and a death at each of its requests."""
    for before in explore(case, faults):
        for number in range(before.world.asked):
            for kind in DEATHS:
                yield run(case, (*before.world.faults, Fault(number, kind)))
