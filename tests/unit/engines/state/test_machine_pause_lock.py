"""An abort that takes time keeps the pause open, and who comes meanwhile behind it."""

from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor

import pytest

from reference_server.engines.state.generation import Ending, Generation, Phase, Wanted
from reference_server.engines.state.machine import EngineState, EngineStopped, Refit
from reference_server.engines.state.traits import Traits
from reference_server.engines.state.weights import encode

Aside = Callable[..., "Future[object]"]


@pytest.fixture
def aside() -> Iterator[Aside]:
    """Call something that waits, in another thread."""
    with ThreadPoolExecutor() as pool:
        yield pool.submit


@pytest.fixture
def state() -> EngineState:
    """An SGLang in which an aborted generation ends with the second tick."""
    return EngineState("step-1", "1", abort_ticks=2)


def begin(state: EngineState, id: str = "a") -> Generation:
    return state.arrive([Wanted(id, encode("w1 w2"))])[0]


def pausing(state: EngineState, aside: Aside) -> "Future[object]":
    """A pause that waits for what it aborts."""
    pause = aside(state.pause, "abort")
    wait_until(state, lambda: state.pausing)
    return pause


def wait_until(state: EngineState, condition: Callable[[], bool]) -> None:
    with state.changed:
        assert state.changed.wait_for(condition, 10)


def in_line(state: EngineState, count: int) -> None:
    """Wait until so many hold the pause lock or wait for it."""
    wait_until(state, lambda: len(state._line) == count)


def test_it_ends_with_its_tick_and_gets_no_token_meanwhile(state: EngineState, aside: Aside) -> None:
    generation = begin(state)
    state.step()
    pause = pausing(state, aside)
    assert state.paused and generation.phase is Phase.RUNNING
    assert begin(state, "new").phase is Phase.PARKED
    state.step()
    assert not pause.done()
    state.step()
    pause.result(10)
    assert (generation.ending, len(generation.tokens)) == (Ending("abort"), 1)
    assert state.frozen and state.count(Phase.PARKED) == 1


def test_an_abort_alone_takes_time_too_and_the_second_adds_none(state: EngineState) -> None:
    generation = begin(state)
    assert state.abort() == 1
    state.step()
    assert state.abort() == 1 and generation.ending is None
    state.step()
    assert generation.ending == Ending("abort")


def test_a_refit_that_aborts_waits_for_it(state: EngineState, aside: Aside) -> None:
    begin(state)
    refit = aside(state.refit, "step-2", "2", abort=True)
    wait_until(state, lambda: state._refits_waiting == 1)
    for _ in range(2):
        assert not refit.done()
        state.step()
    assert refit.result(10) is Refit.DONE


def test_a_resume_waits_behind_it_and_is_the_last_word(state: EngineState, aside: Aside) -> None:
    begin(state)
    pause = pausing(state, aside)
    resume = aside(state.resume)
    in_line(state, 2)
    state.step()
    assert not pause.done() and not resume.done() and state.paused
    state.step()
    pause.result(10)
    resume.result(10)
    assert not state.paused


@pytest.mark.parametrize("mode", ["abort", "retract", "in_place"])
def test_another_pause_waits_behind_it_in_its_turn(state: EngineState, aside: Aside, mode: str) -> None:
    begin(state)
    pause = pausing(state, aside)
    resume = aside(state.resume)
    in_line(state, 2)
    again = aside(state.pause, mode)
    in_line(state, 3)
    assert state.pause_mode == "abort" and not again.done()
    state.step()
    state.step()
    for one in (pause, resume, again):
        one.result(10)
    assert (state.paused, state.pause_mode) == (True, mode)


def test_a_refit_from_disk_does_not_wait(state: EngineState, aside: Aside) -> None:
    begin(state)
    pause = pausing(state, aside)
    assert state.refit("step-2", "2") is Refit.NOT_FLUSHED
    assert not pause.done() and state.weights.version == "2"
    state.stop()
    with pytest.raises(EngineStopped):
        pause.result(10)


@pytest.mark.parametrize("paused", [True, False])
def test_what_is_handed_over_in_a_pause_holds_up_the_resume(state: EngineState, aside: Aside, paused: bool) -> None:
    if paused:
        state.pause("abort")
    with state.handing_over():
        resume = aside(state.resume)
        if paused:
            in_line(state, 2)
            assert not resume.done()
        else:
            resume.result(10)
    resume.result(10)
    assert not state.paused


def test_what_is_handed_over_waits_behind_a_pause(state: EngineState, aside: Aside) -> None:
    def hand_over() -> bool:
        with state.handing_over():
            return state.frozen

    begin(state)
    pause = pausing(state, aside)
    handed = aside(hand_over)
    in_line(state, 2)
    state.step()
    state.step()
    pause.result(10)
    assert handed.result(10) is True


def test_a_stop_wakes_the_whole_line(state: EngineState, aside: Aside) -> None:
    begin(state)
    waiting = [pausing(state, aside), aside(state.resume), aside(state.pause, "retract")]
    in_line(state, 3)
    state.stop()
    for one in waiting:
        with pytest.raises(EngineStopped):
            one.result(10)


def test_an_engine_without_such_a_lock_is_resumed_at_once(aside: Aside) -> None:
    state = EngineState("step-1", abort_ticks=2, traits=Traits(locks=frozenset()))
    begin(state)
    pause = pausing(state, aside)
    state.resume()
    assert not state.paused
    state.step()
    state.step()
    pause.result(10)
    assert state.in_flight == 0


def test_what_was_frozen_before_ends_at_once(state: EngineState) -> None:
    generation = begin(state)
    state.pause("in_place")
    state.pause("abort")
    assert generation.ending == Ending("abort")


def test_by_default_it_takes_no_time() -> None:
    state = EngineState("step-1")
    generation = begin(state)
    state.pause("abort")
    assert generation.ending == Ending("abort") and state.frozen
