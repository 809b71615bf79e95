"""Ctrl-C, which Python raises in the main thread wherever that is: `paused` resumes first.

A fan-out of these fleets sends the signal itself, so it arrives while that fan-out runs.
"""

import signal
import threading
from collections.abc import Callable, Iterator
from typing import cast

import pytest

from smg.rl import RlError, paused

from ...support.paused_fleet import PAUSE, RESUME, Fleet, chain, in_another_thread, leave


class Leaving:
    """Whether the block of `paused` has been left yet."""

    def __init__(self, control_c: Callable[[], None]) -> None:
        self.control_c = control_c
        self.left = threading.Event()
        self.early: list[bool] = []

    def resume(self, after: float = 0) -> None:
        """A resume that is interrupted, then gives a hasty exit the time to happen."""
        self.left.wait(after)
        self.control_c()
        # There is no event for "does not happen": this is how long it may take to go wrong.
        self.early.append(self.left.wait(0.1))

    def through(self, fleet: Fleet, block: Callable[[], object] = lambda: None) -> BaseException:
        with pytest.raises(KeyboardInterrupt) as caught:
            try:
                with paused(fleet.rl, "a=b", settle=0):
                    block()
            finally:
                self.left.set()
        return caught.value


@pytest.fixture
def leaving(control_c: Callable[[], None]) -> Iterator[Leaving]:
    before = threading.active_count()
    yield Leaving(control_c)
    assert threading.active_count() == before


def test_in_the_block_it_comes_out_after_the_resume(leaving: Leaving) -> None:
    fleet = Fleet()
    error = leaving.through(fleet, leaving.control_c)
    assert fleet.log == [PAUSE, RESUME]
    assert chain(error) == [error]


def test_during_the_pause_it_comes_out_after_a_resume(leaving: Leaving) -> None:
    fleet = Fleet(pause=leaving.control_c)
    leaving.through(fleet, lambda: pytest.fail("the block ran"))
    assert fleet.log == [PAUSE, RESUME]


@pytest.mark.parametrize("after", [0, 0.001, 0.1])
def test_during_the_resume_it_is_held_back_until_that_has_ended(leaving: Leaving, after: float) -> None:
    fleet = Fleet(resume=lambda: leaving.resume(after))
    error = leaving.through(fleet)
    assert leaving.early == [False]
    assert fleet.log == [PAUSE, RESUME]
    assert chain(error) == [error]


@pytest.mark.parametrize("resume", [None, RlError("no")], ids=["well", "failed"])
def test_afterwards_signals_are_handled_as_before(control_c: Callable[[], None], resume: RlError | None) -> None:
    def handler(number: int, frame: object) -> None:
        """A user's own."""

    signals = (signal.SIGINT, signal.SIGTERM)
    before = [signal.signal(number, handler) for number in signals]
    try:
        leave(Fleet(resume=resume))
        assert [signal.getsignal(number) for number in signals] == [handler, handler]
    finally:
        for number, old in zip(signals, before, strict=True):
            signal.signal(number, old)


@pytest.mark.parametrize("where", ["pause", "block"])
def test_during_a_resume_for_an_error_that_error_is_its_context(leaving: Leaving, where: str) -> None:
    first = ValueError("first")

    def fail() -> None:
        raise first

    fleet = Fleet(pause=first if where == "pause" else None, resume=leaving.resume)
    error = leaving.through(fleet, fail)
    assert leaving.early == [False]
    assert chain(error) == [error, first]


def test_during_a_resume_that_fails_its_error_is_not_lost(leaving: Leaving) -> None:
    second = RlError("second")

    def resume() -> None:
        leaving.resume()
        raise second

    error = leaving.through(Fleet(resume=resume))
    assert chain(error) == [error, second]


def test_nor_is_it_behind_an_error_of_the_block(leaving: Leaving) -> None:
    earlier, first, second = KeyError("earlier"), ValueError("first"), RlError("second")
    first.__context__ = earlier

    def fail() -> None:
        raise first

    def resume() -> None:
        leaving.resume()
        raise second

    error = leaving.through(Fleet(resume=resume), fail)
    assert set(chain(error)) == {error, first, second, earlier}
    assert chain(error)[0] is error


def test_a_second_one_during_the_resume_is_not_held_back(leaving: Leaving) -> None:
    count = [0]

    def twice(number: int, frame: object) -> None:
        # Signals that arrive together are one, so more are sent; only two count.
        count[0] += 1
        if count[0] <= 2:
            raise KeyboardInterrupt(count[0])

    def resume() -> None:
        while not leaving.left.wait(0.01):
            leaving.control_c()

    handler = signal.signal(signal.SIGINT, twice)
    try:
        error = leaving.through(Fleet(resume=resume))
        assert error.args == (2,)
    finally:
        signal.signal(signal.SIGINT, handler)


def terminate() -> None:
    signal.raise_signal(signal.SIGTERM)


def test_sigterm_is_an_exit_after_the_resume_for_those_who_ask() -> None:
    fleet, before = Fleet(), signal.getsignal(signal.SIGTERM)
    with pytest.raises(SystemExit) as caught, paused(fleet.rl, "a=b", sigterm=True):
        terminate()
    assert caught.value.code == 128 + signal.SIGTERM
    assert fleet.log == [PAUSE, RESUME]
    assert signal.getsignal(signal.SIGTERM) is before


def test_during_the_resume_it_is_held_back_as_well() -> None:
    fleet = Fleet(resume=terminate)
    with pytest.raises(SystemExit), paused(fleet.rl, "a=b", sigterm=True):
        pass
    assert fleet.log == [PAUSE, RESUME]


def test_another_thread_may_ask_for_it_in_vain() -> None:
    def pause() -> object:
        with paused(fleet.rl, "a=b", sigterm=True):
            return signal.getsignal(signal.SIGTERM)

    fleet, before = Fleet(), signal.getsignal(signal.SIGTERM)
    assert in_another_thread(pause) is before
    assert fleet.log == [PAUSE, RESUME]


def test_a_handler_that_was_saved_in_the_block_and_put_back_later_is_as_good_as_the_first(
    control_c: Callable[[], None],
) -> None:
    before = signal.getsignal(signal.SIGINT)
    try:
        with paused(Fleet().rl, "a=b"):
            saved = signal.getsignal(signal.SIGINT)
        signal.signal(signal.SIGINT, saved)
        for _ in range(2):
            with pytest.raises(KeyboardInterrupt):
                control_c()
    finally:
        signal.signal(signal.SIGINT, before)


def test_a_handler_of_the_block_that_calls_the_one_before_it_goes_on_doing_so(control_c: Callable[[], None]) -> None:
    before, called = signal.getsignal(signal.SIGINT), []
    fleet = Fleet(resume=control_c)

    def chained(number: int, frame: object) -> None:
        called.append(number)
        saved(number, frame)

    try:
        with pytest.raises(KeyboardInterrupt), paused(fleet.rl, "a=b"):
            saved = cast("Callable[[int, object], None]", signal.signal(signal.SIGINT, chained))
        assert fleet.log == [PAUSE, RESUME]
        assert signal.getsignal(signal.SIGINT) is chained
        with pytest.raises(KeyboardInterrupt):
            control_c()
        assert called == [signal.SIGINT] * 2
    finally:
        signal.signal(signal.SIGINT, before)


def test_two_that_end_in_the_order_they_began_leave_no_handler_either(control_c: Callable[[], None]) -> None:
    before, fleets = signal.getsignal(signal.SIGINT), [Fleet(), Fleet()]
    first, second = (paused(fleet.rl, "a=b") for fleet in fleets)
    first.__enter__()
    second.__enter__()
    first.__exit__(None, None, None)
    with pytest.raises(KeyboardInterrupt):
        control_c()
    second.__exit__(None, None, None)
    assert signal.getsignal(signal.SIGINT) is before
    assert [fleet.log for fleet in fleets] == [[PAUSE, RESUME]] * 2
