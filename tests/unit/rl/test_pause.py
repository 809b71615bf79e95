"""`paused`: pause, run, always resume."""

import contextvars
import threading
from collections.abc import Iterator
from typing import Any

import pytest

from smg.rl import FanoutResult, RlError, Selector, paused

from ...support.paused_fleet import EVERY_THREAD, PAUSE, RESUME, Fleet, Run, fail, leave


@pytest.mark.parametrize(
    ("mode", "body"),
    [(None, {}), ("", {}), ("abort", {"mode": "abort"}), ("retract", {"mode": "retract"}), ("x", {"mode": "x"})],
)
def test_two_fan_outs_are_sent_the_mode_goes_with_the_first(mode: str | None, body: dict[str, str]) -> None:
    fleet = Fleet()
    with paused(fleet.rl, "a=b", mode=mode):
        assert fleet.calls == [(PAUSE, body, {"selector": "a=b", "timeout": None})]
    assert fleet.calls[1:] == [(RESUME, {}, {"selector": "a=b", "timeout": None})]


def test_selector_and_timeout_are_those_of_both_fan_outs() -> None:
    fleet, selector = Fleet(), Selector.parse("a=b")
    with paused(fleet.rl, selector, timeout=2.5):
        pass
    assert [options for _, _, options in fleet.calls] == [{"selector": selector, "timeout": 2.5}] * 2


def test_as_gives_the_result_of_the_pause() -> None:
    fleet = Fleet()
    with paused(fleet.rl, "a=b") as result:
        assert isinstance(result, FanoutResult)
        assert result.results is fleet.result.results


@EVERY_THREAD
def test_the_block_runs_between_pause_and_resume(run: Run) -> None:
    fleet = Fleet()
    assert run(lambda: leave(fleet)) is None
    assert fleet.log == [PAUSE, "block", RESUME]


def test_nothing_is_sent_before_the_with() -> None:
    fleet = Fleet()
    paused(fleet.rl, "a=b")
    assert fleet.log == []


@pytest.mark.parametrize(
    "options", [{}, {"pause": RlError("no")}, {"resume": RlError("no")}], ids=["well", "pause", "resume"]
)
def test_a_pause_is_for_one_with(options: dict[str, Any]) -> None:
    fleet = Fleet(**options)
    pause = paused(fleet.rl, "a=b")
    try:
        with pause:
            pass
    except RlError:
        assert options
    sent = list(fleet.log)
    with pytest.raises(RuntimeError, match="new one"), pause:
        pytest.fail("the block ran")
    assert fleet.log == sent


def test_a_pause_inside_itself_is_refused_and_resumes_once() -> None:
    fleet = Fleet()
    pause = paused(fleet.rl, "a=b")
    with pytest.raises(RuntimeError), pause, pause:
        pytest.fail("the block ran")
    assert fleet.log == [PAUSE, RESUME]


def test_pauses_nest() -> None:
    fleet = Fleet()
    with paused(fleet.rl, "a=b"), paused(fleet.rl, "c=d"):
        pass
    assert [(path, options["selector"]) for path, _, options in fleet.calls] == [
        *((PAUSE, "a=b"), (PAUSE, "c=d")),
        *((RESUME, "c=d"), (RESUME, "a=b")),
    ]


def test_a_generator_that_is_given_up_in_the_block_resumes() -> None:
    fleet = Fleet()

    def steps() -> Iterator[int]:
        with paused(fleet.rl, "a=b"):
            yield 1
            pytest.fail("it went on")

    generator = steps()
    assert next(generator) == 1
    generator.close()  # type: ignore[attr-defined]  # a generator, whatever its annotation
    assert fleet.log == [PAUSE, RESUME]


@EVERY_THREAD
def test_the_resume_runs_in_the_context_of_the_caller(run: Run) -> None:
    trace: contextvars.ContextVar[str] = contextvars.ContextVar("trace")
    seen: list[str] = []

    def work() -> None:
        trace.set("t1")  # as a tracing library does, for a `headers` function to read
        leave(Fleet(resume=lambda: seen.append(trace.get("none"))))

    run(work)
    assert seen == ["t1"]


def test_the_resume_needs_no_new_thread(monkeypatch: pytest.MonkeyPatch) -> None:
    def start(thread: threading.Thread) -> None:
        raise RuntimeError("can't start new thread")

    monkeypatch.setattr(threading.Thread, "start", start)
    fleet, error = Fleet(), ValueError("block")
    assert leave(fleet, lambda: fail(error)) is error
    assert fleet.log == [PAUSE, "block", RESUME]


def test_no_thread_is_left_behind() -> None:
    before = threading.active_count()
    for resume in (None, RlError("no")):
        leave(Fleet(resume=resume))
    assert threading.active_count() == before
