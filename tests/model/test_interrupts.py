"""An interrupt at every single bytecode of a `paused`: nobody is left paused and unnamed, no handler is left."""

import logging
import os
import signal
import sys
from collections.abc import Callable, Iterator
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path
from types import FrameType
from typing import Any

import pytest

import smg.rl
from smg.rl import RL, paused
from smg.rl.signals import _Through

from ..support.paused_fleet import chain
from .explore import Case, Run, cases, timeless
from .world import GATEWAY, REFIT, World

FILES = {str(Path(smg.rl.__file__).parent / name) for name in ("pause.py", "signals.py")}
HERE = __file__


class Alarm(Exception):
    """What the handler raises."""


def ring(number: int, frame: FrameType | None) -> None:
    raise Alarm


@pytest.fixture(autouse=True)
def alarm() -> Iterator[None]:
    before = signal.signal(signal.SIGALRM, ring)
    logging.disable(logging.CRITICAL)
    yield
    logging.disable(logging.NOTSET)
    signal.signal(signal.SIGALRM, before)


class Bytecodes:
    """Counts the bytecodes of the files under test, and rings at one of them; with a `gap`, again
    and again behind it until one of the interrupts comes through."""

    def __init__(self, at: int, gap: int = 0) -> None:
        self.at, self.gap, self.seen, self.where = at, gap, 0, ""

    def __call__(self, frame: FrameType, event: str, argument: object) -> Callable[..., Any] | None:
        name = frame.f_code.co_filename
        # On 3.10 a handler that runs behind the block is told by its frame, which is not this one.
        block = name == HERE and frame.f_code.co_name == "step" and sys.version_info >= (3, 11)
        if name not in FILES and not block:
            return None
        frame.f_trace_opcodes = True
        if event == "opcode":
            self.seen += 1
            again = self.gap and self.where and (self.seen - self.at) % self.gap == 0
            if self.seen == self.at or again:
                self.where = f"{frame.f_code.co_name}:{frame.f_lineno}"
                if not self.gap:
                    sys.settrace(None)
                signal.raise_signal(signal.SIGALRM)
        return self


def step(case: Case, world: World, rl: RL) -> None:
    with timeless(paused(rl, f"engine={case.kind}", routes=case.routes, **case.options), world):
        rl.fanout(REFIT[case.kind], {"model_path": "2"}, selector=f"engine={case.kind}")


def interrupted(case: Case, at: int, gap: int = 0) -> tuple[Run, Bytecodes]:
    """A run that is interrupted at one bytecode; without, when there are fewer."""
    world = World(case.kind, case.routes)
    rl, bytecodes = RL(GATEWAY, sender=world), Bytecodes(at, gap)
    error: BaseException | None = None
    here = sys._getframe()
    here.f_trace, here.f_trace_opcodes = bytecodes, True  # else 3.12 tells of no bytecode at all
    sys.settrace(bytecodes)
    try:
        step(case, world, rl)
    except BaseException as caught:
        error = caught
    finally:
        sys.settrace(None)
    world.finish_late_calls()
    return Run(case, world, error, None), bytecodes


# The others by hand: they take a minute.
@pytest.mark.parametrize("text", os.environ.get("SMG_INTERRUPTS", "sglang mode=None").split(","))
def test_at_every_bytecode(text: str) -> None:
    (case,) = (case for case in cases() if str(case) == text)
    _, all_of_them = interrupted(case, -1)
    assert all_of_them.seen > 500
    assert broken(case, range(1, all_of_them.seen + 1)) == []


@pytest.mark.parametrize("gap", [1, 7, 150])
def test_as_often_as_it_likes(gap: int) -> None:
    """A timer that rings on and on, an impatient finger: of three engines none is left without a word."""
    # In a process of its own: what is raised in a trace function stays the context of all that follows.
    with ProcessPoolExecutor(1) as pool:
        assert pool.submit(storms, gap).result() == []


def storms(gap: int) -> list[str]:
    """What goes wrong when it rings every `gap` bytecodes, from every fifth on."""
    signal.signal(signal.SIGALRM, ring)
    logging.disable(logging.CRITICAL)
    case = cases()[0]
    _, all_of_them = interrupted(case, -1)
    return list(map(str, broken(case, range(1, all_of_them.seen + 1, 5), gap)))


def broken(case: Case, places: range, gap: int = 0) -> list[object]:
    """What goes wrong in the runs that are interrupted at these bytecodes."""
    wrong: list[object] = []
    for at in places:
        one, bytecodes = interrupted(case, at, gap)
        handlers = [n for n in signal.valid_signals() if isinstance(signal.getsignal(n), _Through)]
        signal.signal(signal.SIGALRM, ring)
        # An interrupt that comes when all has been said has the one that says it behind it.
        said = [one, *(Run(case, one.world, error, None) for error in chain(one.error))]
        told = any(not run.problems() for run in said)
        if not told or handlers or (bytecodes.where and not isinstance(one.error, Alarm)):
            wrong.append((at, bytecodes.where, one.problems(), handlers, one.error))
    return wrong
