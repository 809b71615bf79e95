"""`paused`: pause, run, always resume, whatever fails; and which error the caller sees."""

import asyncio
import contextvars
import threading
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from smg.rl import (
    CallResult,
    FanoutError,
    FanoutFailure,
    FanoutResult,
    RlConnectionError,
    RlError,
    RlTimeoutError,
    Selector,
    paused,
)

from ...support.paused_fleet import EVERY_THREAD, PAUSE, RESUME, Fleet, Run, chain, fail, leave


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


FAILED = FanoutResult({}, [FanoutFailure("w1", "http://e1:1", 500, "upstream_error", "HTTP 500")], 2, 1)

ERRORS: dict[str, Callable[[], BaseException]] = {
    "partial": lambda: FanoutError("1 of 2 failed", 207, FAILED),
    "refused": lambda: RlError("nobody matches", 400, "no_workers_match"),
    "unreachable": lambda: RlConnectionError("the connection broke", 0, "bad_response"),
    "timed out": lambda: RlTimeoutError("no complete answer", 0, "client_timeout"),
    "a bug": lambda: ValueError("body"),
    "an interrupt": KeyboardInterrupt,
    "an exit": lambda: SystemExit(3),
    "a generator's end": GeneratorExit,
    "a cancelled task": asyncio.CancelledError,
    "an iterator's end": StopIteration,
}
EVERY_ERROR = pytest.mark.parametrize("make", ERRORS.values(), ids=ERRORS)


@EVERY_THREAD
@EVERY_ERROR
def test_a_pause_that_failed_in_any_way_is_followed_by_a_resume_and_no_block(
    run: Run, make: Callable[[], BaseException]
) -> None:
    error = make()
    fleet = Fleet(pause=error)
    fleet.result = FanoutResult({w: CallResult(w, f"http://{w}:1", 200, 1, {}) for w in ("w0", "w1")}, [], 2, 2)
    assert run(lambda: leave(fleet)) is error
    assert fleet.log == [PAUSE, RESUME]
    assert chain(error) == [error]


@EVERY_THREAD
@EVERY_ERROR
def test_the_error_of_the_block_comes_out_unchanged_after_the_resume(
    run: Run, make: Callable[[], BaseException]
) -> None:
    fleet, error, args = Fleet(), make(), make().args
    assert run(lambda: leave(fleet, lambda: fail(error))) is error
    assert fleet.log == [PAUSE, "block", RESUME]
    assert (error.args, error.__cause__, chain(error)) == (args, None, [error])


@EVERY_THREAD
@EVERY_ERROR
def test_only_the_resume_fails_then_its_error_comes_out(run: Run, make: Callable[[], BaseException]) -> None:
    error = make()
    assert run(lambda: leave(Fleet(resume=error))) is error
    assert chain(error) == [error]


@EVERY_THREAD
@pytest.mark.parametrize("where", ["pause", "block"])
def test_the_first_error_wins_the_one_of_the_resume_is_its_context(run: Run, where: str) -> None:
    earlier, first, second = KeyError("earlier"), ValueError("first"), ERRORS["partial"]()
    first.__context__ = earlier
    fleet = Fleet(resume=second, **({"pause": first} if where == "pause" else {}))
    assert run(lambda: leave(fleet, lambda: fail(first))) is first
    assert chain(first) == [first, second, earlier]


@EVERY_THREAD
def test_what_the_resume_failed_of_stays_behind_it(run: Run) -> None:
    earlier, first, second, reason = KeyError("earlier"), ValueError("first"), RlError("second"), OSError("reason")
    first.__context__ = earlier

    def resume() -> None:
        try:
            raise reason
        except OSError:
            raise second  # noqa: B904  # what is under test is the chain

    assert run(lambda: leave(Fleet(resume=resume), lambda: fail(first))) is first
    assert chain(first) == [first, second, reason, earlier]


@EVERY_THREAD
def test_an_error_that_is_raised_twice_is_no_circle(run: Run) -> None:
    error = RlError("gateway gone")  # a mock's side_effect is one object for every call
    assert run(lambda: leave(Fleet(pause=error, resume=error))) is error
    assert chain(error) == [error]


@EVERY_THREAD
def test_an_error_that_was_there_before_is_no_circle(run: Run) -> None:
    first, second = ValueError("first"), RlError("second")
    first.__context__ = second
    assert run(lambda: leave(Fleet(resume=second), lambda: fail(first))) is first
    assert chain(first) == [first, second]


def test_an_error_that_was_being_handled_already_is_no_circle() -> None:
    outer, first, second = KeyError("outer"), ValueError("first"), RlError("second")
    try:
        raise outer
    except KeyError:
        assert leave(Fleet(resume=second), lambda: fail(first)) is first
    assert chain(first) == [first, second, outer]


NOTES = [
    ("partial", "w1 (http://e1:1): upstream_error: HTTP 500"),
    ("refused", "nobody matches"),
    ("unreachable", "the connection broke"),
]


@EVERY_THREAD
@pytest.mark.parametrize(("name", "words"), NOTES, ids=[name for name, _ in NOTES])
def test_a_note_says_who_may_still_be_paused(run: Run, name: str, words: str) -> None:
    first, fleet = ValueError("first"), Fleet(resume=ERRORS[name]())
    fleet.result = FanoutResult({"w1": CallResult("w1", "http://e1:1", 200, 1, {})}, [], 1, 1)
    run(lambda: leave(fleet, lambda: fail(first)))
    said = "\n".join([str(first), *getattr(first, "__notes__", [])])
    assert f"The resume failed as well, engines may still be paused: {words}" in said
    assert "still paused: w1 (http://e1:1)" in said and "smg rl resume" in said


def test_no_alarm_when_nobody_was_paused() -> None:
    first = ValueError("first")
    leave(Fleet(resume=RlError("nobody matches", 400, "no_workers_match")), lambda: fail(first))
    assert not hasattr(first, "__notes__")


def test_no_note_when_the_resume_worked() -> None:
    first = ValueError("first")
    leave(Fleet(), lambda: fail(first))
    assert not hasattr(first, "__notes__")
