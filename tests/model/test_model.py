"""All runs of a `paused` with up to two faults: nobody is left paused and unnamed, nothing is sent twice."""

import logging
import os
from collections.abc import Callable, Iterator
from concurrent.futures import ProcessPoolExecutor

import pytest

from smg.rl import FanoutResult, answers, pause, resume
from smg.rl.report import Pause, Target
from smg.rl.resume import Resume

from . import guarded
from .explore import Run, cases, explore, run, run_async
from .world import Fault

# Three are for by hand: `python -m tests.model 3`.
MOST = int(os.environ.get("SMG_MODEL_FAULTS", "2"))
MODES = [str(case) for case in cases() if case.options.get("mode") and len(case.options) == 1]


def broken(text: str, faults: int, run: Callable[..., Run] = run) -> tuple[int, str]:
    """How many runs a case has, and the first that breaks a law, whole."""
    (case,) = (case for case in cases() if str(case) == text)
    logging.disable(logging.CRITICAL)  # in a process of its own
    count = 0
    for one in explore(case, faults, run):
        count += 1
        if one.problems():
            return count, one.told()
    return count, ""


@pytest.fixture(scope="module")
def pool() -> Iterator[ProcessPoolExecutor]:
    with ProcessPoolExecutor(os.cpu_count()) as running:
        yield running


@pytest.mark.parametrize(("kind", "runs"), [("sglang", 37_000), ("vllm", 40_000), ("tokenspeed", 7_000)])
def test_nobody_is_left_paused_and_unnamed_whatever_happens_once_or_twice(
    kind: str, runs: int, pool: ProcessPoolExecutor
) -> None:
    names = [str(case) for case in cases() if case.kind == kind]
    names.sort(key=lambda text: "verify" not in text)  # the longest first
    assert every_run(pool, [(text, 1 if text in MODES else MOST, run) for text in names]) > runs or MOST < 2


def test_asyncio_keeps_it_too(pool: ProcessPoolExecutor) -> None:
    plain, *others = map(str, cases())
    assert every_run(pool, [(plain, MOST, run_async), *((text, 1, run_async) for text in others)]) > 5_000 or MOST < 2


def every_run(pool: ProcessPoolExecutor, asked: list[tuple[str, int, Callable[..., Run]]]) -> int:
    """How many there were of these cases with up to so many faults, none of which broke a law."""
    found = list(pool.map(broken, *zip(*asked, strict=True)))
    assert [counterexample for _, counterexample in found if counterexample] == []
    return sum(count for count, _ in found)


@pytest.mark.parametrize("text", MODES)
def test_a_mode_changes_nothing_but_what_the_pause_says(text: str) -> None:
    """So what holds for a pause without one, with two faults, holds for every mode."""
    (case,) = (case for case in cases() if str(case) == text)
    (plain,) = (one for one in cases() if str(one) == f"{case.kind} mode=None")
    logging.disable(logging.CRITICAL)
    try:
        runs = zip(explore(case, 1), explore(plain, 1), strict=True)
        assert all(one.world.trace == other.world.trace for one, other in runs)
    finally:
        logging.disable(logging.NOTSET)


@pytest.mark.parametrize("text", ["sglang mode=None", "vllm mode=None", "sglang quarantine=True"])
def test_a_guard_does_what_the_dead_has_left_undone(text: str) -> None:
    (case,) = (case for case in cases() if str(case) == text)
    logging.disable(logging.CRITICAL)
    try:
        found = [one for one in guarded.deaths(case, min(MOST, 1)) if one.problems()]
    finally:
        logging.disable(logging.NOTSET)
    assert [one.told() for one in found] == []


def test_a_counterexample_is_replayed_by_its_number() -> None:
    (case,) = (case for case in cases() if str(case) == "sglang mode=None")
    faults = [Fault(0, "engine late 3", 1), Fault(4, "garbled")]
    one = run(case, faults)
    assert one.number == "0:engine late 3:1,4:garbled"
    again = run(case, [Fault.parse(text) for text in one.number.split(",")])
    assert again.told() == one.told() and "late: pause_generation at engine 1" in again.told()


def nothing(*arguments: object, **options: object) -> None:
    """In place of a fix that is taken out."""


def believed(cls: type[Pause], result: FanoutResult) -> Pause:
    paused = [Target(key, answer.url) for key, answer in result.results.items() if 200 <= answer.status < 300]
    return Pause(result.results, result.failed, result.total, result.succeeded, paused=paused)


def hopeful(seen: str | None, late: bool, answered: bool, last: bool) -> str:
    return step(seen or "unknown", late, answered, last)


step = resume._step
MUTANTS: dict[str, tuple[object, str, object]] = {
    "late pauses are not watched": (Resume, "_watch", nothing),
    "a status that could not be read is believed": (resume, "_step", hopeful),
    "who is uncertain is not known": (Pause, "after", classmethod(believed)),
    "names are not learnt": (pause.Duty, "_learn_names", lambda duty: []),
    "a report that cannot be true is believed": (answers, "_untrue", lambda status, report: None),
    "an answer is believed": (pause.paused, "_verify_pause", nothing),
}


@pytest.mark.parametrize("name", MUTANTS)
def test_with_a_fix_taken_out_the_model_finds_a_counterexample(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(*MUTANTS[name])
    (case,) = (case for case in cases() if str(case) == "sglang verify=True")
    logging.disable(logging.CRITICAL)
    try:
        assert any(one.problems() for one in explore(case, 2))
    finally:
        logging.disable(logging.NOTSET)
