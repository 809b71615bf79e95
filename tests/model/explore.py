"""Every run of a `paused` over a `World` with up to so many faults, and the laws that hold after each."""

import asyncio
import itertools
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

from smg.rl import RL, Pause, PauseRoutes, RlError, aio, paused
from smg.rl.engines import ENGINES
from smg.rl.resume import Resume

from .world import DEATHS, EVENTS, GATEWAY, OF_ENGINES, OF_REQUESTS, REFIT, Died, Engine, Fault, World

READS = ("workers", "ready", "model_info", "is_paused", "is_sleeping", "metrics")
SETTLE_SECONDS = 0.4
"""Four looks instead of ten: nothing else comes of the others, and all runs take a tenth of the time."""
NAMELESS_LOOKS = 4
"""Of so many listings of the workers in a row at least one is read for names."""
BROKEN_READS = ("not connected", "garbled", "restarted", "interrupted before")
"""What can happen to a request that changes nothing: everything else looks like one of these."""


@dataclass(frozen=True)
class Case:
    """One way to use `paused`."""

    kind: str
    routes: PauseRoutes
    options: dict[str, Any] = field(default_factory=dict)

    @property
    def keywords(self) -> dict[str, Any]:
        """Those of `paused`."""
        return {"settle": SETTLE_SECONDS, **self.options}

    def __str__(self) -> str:
        return " ".join([self.kind, *(f"{key}={value}" for key, value in self.options.items())])


@dataclass
class Run:
    """What became of one run."""

    case: Case
    world: World
    error: BaseException | None
    pause: Pause | None

    @property
    def number(self) -> str:
        """What replays it."""
        return ",".join(map(str, self.world.faults)) or "none"

    def problems(self) -> list[str]:
        """The laws it breaks."""
        named = set(getattr(self.error, "still_paused", ()))
        ids = {target.worker_id for target in named}
        urls = {target.address for target in named}
        selected = f"engine={self.case.kind}" in (getattr(self.error, "remedy", None) or "")
        left = [
            f"engine {engine.name} is left paused, and nobody is told"
            for engine in self.world.engines
            if engine.alive
            and engine.paused
            and not selected
            and not self._nobody_can_tell(engine)
            and engine.url not in urls
            and not any(worker_id.endswith(f"-{engine.name}") for worker_id in ids)
        ]
        return [*self.world.broken, *left]

    def _nobody_can_tell(self, engine: Engine) -> bool:
        """Whether it has lied about its resume, and can't be asked or was not to be; or was away
        when names were asked for, which the error says."""
        back = self.world.away_until.get(engine.name)
        looks = [n for n, path in self.world.at.items() if path.endswith("/workers") and n >= (back or 0)]
        notes = " ".join([str(self.error), *getattr(self.error, "__notes__", ())])
        if "no report says whom the pause reached" in notes and back is not None and len(looks) < NAMELESS_LOOKS:
            return True
        lies = [f for f in self.world.faults if f.kind == "engine lies" and f.engine == engine.name]
        asked = self.case.options.get("verify") and ENGINES[self.case.kind].status
        return bool(lies) and not asked

    def told(self) -> str:
        """The whole of it, for a counterexample."""
        lines = [f"case: {self.case}", f"faults: {self.number}", *self.world.trace, f"error: {self.error!r}"]
        return "\n".join([*lines, *(f"BROKEN: {problem}" for problem in self.problems())])


def run(case: Case, faults: Sequence[Fault]) -> Run:
    """One run: pause, a refit in the block, resume."""
    world = World(case.kind, case.routes, faults)
    rl = RL(GATEWAY, sender=world)
    selector = f"engine={case.kind}"
    error: BaseException | None = None
    pause: Pause | None = None
    try:
        with timeless(paused(rl, selector, routes=case.routes, **case.keywords), world) as pause:
            world.in_block = True
            if case.options.get("verify") and any(e.alive and e.pauses and not e.paused for e in world.engines):
                world.broken.append("the block runs, and an engine that was to be paused runs too")
            try:
                rl.fanout(REFIT[case.kind], {"model_path": "2"}, selector=selector)
            except Exception:
                if not case.options.get("quarantine"):
                    raise
            finally:
                world.in_block = False
    except BaseException as caught:
        error = caught
    world.finish_late_calls()
    return Run(case, world, error, pause)


def run_async(case: Case, faults: Sequence[Fault]) -> Run:
    """The same with `async with`; the client has threads then, one at a time."""
    world = World(case.kind, case.routes, faults)
    rl = aio.AsyncRL.of(RL(GATEWAY, sender=world))
    selector = f"engine={case.kind}"

    async def step() -> None:
        manager = aio.paused(rl, selector, routes=case.routes, **case.keywords)
        timeless(manager._pause, world)
        async with manager:
            world.in_block = True
            try:
                await rl.fanout(REFIT[case.kind], {"model_path": "2"}, selector=selector)
            finally:
                world.in_block = False

    error: BaseException | None = None
    try:
        asyncio.run(step())
    except BaseException as caught:
        error = caught
    world.finish_late_calls()
    return Run(case, world, error, None)


def timeless(manager: paused, world: World) -> paused:
    """The same `paused` by the clock of the world."""
    resume: Resume = manager._duty._resume
    resume._sleep, resume._clock = world.sleep, world.clock
    return manager


def explore(case: Case, faults: int, run: Callable[[Case, Sequence[Fault]], Run] = run) -> Iterator[Run]:
    """All runs with up to `faults` faults; a fault is tried at every request there is in a run."""
    first = run(case, ())
    yield first
    frontier = [first]
    for depth in range(1, faults + 1):
        following = []
        for before in frontier:
            last = max((fault.number for fault in before.world.faults), default=-1)
            for fault in possible(before, last):
                after = run(case, (*before.world.faults, fault))
                yield after
                if depth < faults:  # nothing is built on the others, and they are many
                    following.append(after)
        frontier = following


def possible(before: Run, last: int) -> Iterator[Fault]:
    """The faults that may be added to a run, behind the last one it has.

    Engines are alike: a second engine is struck only where the first was struck before.
    """
    struck = {fault.engine for fault in before.world.faults if fault.kind not in OF_REQUESTS}
    engines = sorted(struck | {min({0, 1, 2} - struck)})
    for number in range(last + 1, before.world.asked):
        reads = before.world.at[number].rpartition("/")[2] in READS
        for kind in BROKEN_READS if reads else OF_REQUESTS:
            if kind not in DEATHS:
                yield Fault(number, kind)
        if not reads:
            for kind, engine in itertools.product(OF_ENGINES, engines):
                if kind != "well":
                    yield Fault(number, kind, engine)
        if not reads or before.world.at[number].endswith("/workers"):
            for kind, engine in itertools.product(EVENTS, engines):
                yield Fault(number, kind, engine)


def cases() -> list[Case]:
    """Every kind with its routes and modes, and every option of `paused`."""
    by_kind = {kind: facts.pause for kind, facts in ENGINES.items() if facts.pause and kind in REFIT}
    modes = [
        Case(kind, routes, {"mode": mode})
        for kind, routes in by_kind.items()
        for mode in (None, *ENGINES[kind].capabilities.pause_modes)
    ]
    options: list[dict[str, Any]] = [
        {"verify": True},
        {"verify": False},
        {"resume_retries": 2},
        {"quarantine": True},
        {"settle": 3.0},
        {"check": True, "mode": "abort"},
    ]
    return [*modes, *(Case(kind, by_kind[kind], dict(one)) for kind in ("sglang", "vllm") for one in options)]


__all__ = ["Case", "Died", "RlError", "Run", "cases", "explore", "run", "run_async"]
