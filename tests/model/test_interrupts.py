"""An interrupt at every single bytecode of a `paused`: nobody is left paused and unnamed, no handler is left."""

import logging
import os
import signal
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from types import FrameType
from typing import Any

import pytest

import smg.rl
from smg.rl import RL, paused

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
    """Counts the bytecodes of the files under test, and rings at one of them."""

    def __init__(self, at: int) -> None:
        self.at, self.seen, self.where = at, 0, ""

    def __call__(self, frame: FrameType, event: str, argument: object) -> Callable[..., Any] | None:
        name = frame.f_code.co_filename
        # On 3.10 a handler that runs behind the block is told by its frame, which is not this one.
        block = name == HERE and frame.f_code.co_name == "step" and sys.version_info >= (3, 11)
        if name not in FILES and not block:
            return None
        frame.f_trace_opcodes = True
        if event == "opcode":
            self.seen += 1
            if self.seen == self.at:
                self.where = f"{frame.f_code.co_name}:{frame.f_lineno}"
                sys.settrace(None)
                signal.raise_signal(signal.SIGALRM)
        return self


def step(case: Case, world: World, rl: RL) -> None:
    with timeless(paused(rl, f"engine={case.kind}", routes=case.routes, **case.options), world):
        rl.fanout(REFIT[case.kind], {"model_path": "2"}, selector=f"engine={case.kind}")


def interrupted(case: Case, at: int) -> tuple[Run, Bytecodes]:
    """A run that is interrupted at one bytecode; without, when there are fewer."""
    world = World(case.kind, case.routes)
    rl, bytecodes = RL(GATEWAY, sender=world), Bytecodes(at)
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
    wrong = []
    for at in range(1, all_of_them.seen + 1):
        one, bytecodes = interrupted(case, at)
        handlers = [number for number in signal.valid_signals() if "HeldInterrupts" in repr(signal.getsignal(number))]
        left = signal.getsignal(signal.SIGALRM) is not ring
        signal.signal(signal.SIGALRM, ring)
        if one.problems() or left or handlers or (bytecodes.where and not isinstance(one.error, Alarm)):
            wrong.append((at, bytecodes.where, one.problems(), left, one.error))
    assert wrong == [], f"{len(wrong)} of {all_of_them.seen}"
