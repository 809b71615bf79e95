"""In what engines differ: pauses that drain or keep, queues, sleep and wake-up, bad refits."""

import threading
from concurrent.futures import Future

import pytest

from reference_server.engines.state.clock import RealTicks
from reference_server.engines.state.generation import Ending, Phase, Span
from reference_server.engines.state.machine import EngineState, EngineStopped, Flush, NothingNew, Refit
from reference_server.engines.state.traits import Traits
from reference_server.engines.vllm.features import traits

from ....support.aside import Aside
from ....support.state_by_hand import answer, answer_of, begin, now, step, wait_for_change

NOTHING, KV, BOTH = frozenset[str](), frozenset({"kv_cache"}), frozenset({"weights", "kv_cache"})


def of(traits: Traits) -> EngineState:
    return EngineState("step-1", "1", checkpoints=["step-1", "step-2"], traits=traits)


@pytest.fixture
def queueing() -> EngineState:
    """An engine with a queue of its own, which needs its memory."""
    return of(Traits(queues=True, needs_memory=True, half_loads=True))


def draining(state: EngineState, aside: Aside) -> "Future[object]":
    """A pause that waits for what is in flight."""
    waiting = aside(state.pause, "wait")
    wait_for_change(state, lambda: state.paused)
    return waiting


class TestWait:
    def test_it_returns_when_those_that_ran_have_ended(self, state: EngineState, aside: Aside) -> None:
        inside = begin(state, "inside")
        waiting = draining(state, aside)
        parked = begin(state, "parked")
        assert (state.frozen, parked.phase) == (False, Phase.PARKED)
        step(state, 7)
        assert not waiting.done()
        step(state)
        waiting.result(10)
        assert now(inside).ending == Ending("stop")
        assert (state.frozen, state.pause_mode) == (True, "wait")
        step(state, 3)
        assert not now(parked).tokens

    def test_a_resume_meanwhile_ends_the_pause_but_not_the_waiting(self, state: EngineState, aside: Aside) -> None:
        begin(state, "inside")
        waiting = draining(state, aside)
        state.resume()
        assert begin(state, "new").phase is Phase.RUNNING
        step(state, 7)
        assert not waiting.done()
        step(state)
        waiting.result(10)
        assert not state.paused

    @pytest.mark.parametrize(("mode", "left"), [("abort", 0), ("keep", 1), ("in_place", 1)])
    def test_another_pause_ends_the_waiting(self, state: EngineState, aside: Aside, mode: str, left: int) -> None:
        begin(state)
        waiting = draining(state, aside)
        state.pause(mode)
        waiting.result(10)
        assert (state.in_flight, state.pause_mode, state.frozen) == (left, mode, True)

    def test_twice(self, state: EngineState, aside: Aside) -> None:
        begin(state)
        both = [draining(state, aside), aside(state.pause, "wait")]
        step(state, 8)
        for one in both:
            one.result(10)

    def test_what_was_frozen_before_stays_so(self, state: EngineState) -> None:
        generation = begin(state)
        state.pause("keep")
        state.pause("wait")
        step(state, 8)
        assert not now(generation).tokens and state.frozen

    def test_who_watches_is_told_of_the_pause_at_once(self, aside: Aside) -> None:
        class Told(threading.Condition):
            times = 0

            def notify_all(self) -> None:
                self.times += 1
                super().notify_all()

        changed = Told()
        state = EngineState("step-1", changed=changed)
        begin(state)
        before = changed.times
        waiting = draining(state, aside)
        assert changed.times == before + 1 and not waiting.done()
        state.stop()

    def test_a_clock_ticks_on(self, state: EngineState, aside: Aside) -> None:
        generation = begin(state)
        waiting = draining(state, aside)
        ticks = RealTicks(0.0)
        ticks.start(state)
        try:
            waiting.result(10)
        finally:
            state.stop()
            ticks.stop(state)
        assert now(generation).ending == Ending("stop")

    def test_a_stop_wakes_who_waits(self, state: EngineState, aside: Aside) -> None:
        begin(state)
        waiting = draining(state, aside)
        state.stop()
        with pytest.raises(EngineStopped):
            waiting.result(10)

    def test_a_refit_meanwhile_waits_too(self, state: EngineState, aside: Aside) -> None:
        generation = begin(state)
        waiting = draining(state, aside)
        refit = aside(state.refit, "step-2", "2")
        step(state, 8)
        waiting.result(10)
        assert refit.result(10) is Refit.DONE
        assert now(generation).spans == (Span("1", 0, 8),)


class TestKeep:
    def test_it_freezes_and_goes_on(self, state: EngineState) -> None:
        generation = begin(state)
        step(state, 3)
        state.pause("keep")
        step(state, 5)
        assert len(now(generation).tokens) == 3
        state.resume()
        step(state, 5)
        assert now(generation).ending == Ending("stop") and now(generation).tokens == answer_of("step-1", "1")

    def test_the_frozen_let_go_of_the_cache(self, state: EngineState) -> None:
        generation = begin(state)
        step(state, 3)
        state.pause("keep")
        assert state.refit("step-2", "2") is Refit.DONE
        assert state.flush() is Flush.DONE and state.flushes == 2
        state.resume()
        step(state, 5)
        assert now(generation).tokens == answer_of("step-1", "1")[:3] + answer_of("step-2", "2")[3:]

    def test_an_abort_ends_the_frozen_at_once(self, state: EngineState) -> None:
        generation = begin(state)
        step(state, 2)
        state.pause("keep")
        assert state.abort() == 1
        assert now(generation).ending == Ending("abort") and len(now(generation).tokens) == 2


class TestQueue:
    @pytest.mark.parametrize("again", [True, False])
    def test_an_abort_finds_what_waits_in_the_queue(self, queueing: EngineState, again: bool) -> None:
        queueing.pause("keep")
        first, second = begin(queueing, "first"), begin(queueing, "second")
        assert queueing.abort("first") == 1
        assert now(first).ending == Ending("abort") and now(second).ending is None
        if again:
            queueing.pause("abort")
        else:
            assert queueing.abort() == 1
        assert now(second).ending == Ending("abort")

    def test_how_many_were_meant(self, state: EngineState) -> None:
        begin(state, "a")
        begin(state, "b")
        assert (state.abort("nobody"), state.abort(), state.abort()) == (0, 2, 0)

    @pytest.mark.parametrize(("mode", "refused"), [("abort", True), ("wait", True), ("keep", False)])
    def test_some_pauses_refuse_what_is_new(self, mode: str, refused: bool) -> None:
        state = of(traits("0.33.0"))
        state.pause(mode)
        if refused:
            with pytest.raises(NothingNew):
                begin(state)
            assert state.count(Phase.PARKED) == 0
        else:
            assert begin(state).phase is Phase.PARKED
        state.resume()
        assert begin(state, "later").phase is Phase.RUNNING

    @pytest.mark.parametrize("mode", ["abort", "wait", "keep"])
    def test_older_engines_refuse_nothing(self, mode: str) -> None:
        state = of(traits("0.32.0"))
        state.pause(mode)
        assert begin(state).phase is Phase.PARKED


class TestSleep:
    def test_in_parts_and_back(self, queueing: EngineState) -> None:
        queueing.pause("abort")
        queueing.sleep(BOTH)
        assert (queueing.asleep, queueing.flushes) == (BOTH, 1)
        assert queueing.rouse(frozenset({"weights", "unknown"})) is False
        assert (queueing.asleep, queueing.paused) == (KV, True)
        assert queueing.rouse(KV) is True
        assert (queueing.asleep, queueing.paused) == (NOTHING, False)
        assert answer(queueing) == answer_of("step-1", "1")

    def test_all_at_once(self, queueing: EngineState) -> None:
        queueing.pause("keep")
        queueing.sleep(BOTH)
        assert queueing.rouse() is True and not queueing.paused

    def test_a_wake_up_ends_any_pause(self, queueing: EngineState) -> None:
        queueing.pause("abort")
        assert queueing.rouse(KV) is True and not queueing.paused

    def test_the_kept_survive_it(self, queueing: EngineState) -> None:
        generation = begin(queueing)
        step(queueing, 3)
        queueing.pause("keep")
        queueing.sleep(BOTH)
        queueing.rouse()
        step(queueing, 5)
        assert now(generation).tokens == answer_of("step-1", "1")

    def test_discarded_weights_are_no_ones_until_the_next_refit(self, queueing: EngineState) -> None:
        queueing.pause("abort")
        queueing.sleep(BOTH, discard=True)
        assert (queueing.weights.path, queueing.weights.version) == ("", "1")
        assert queueing.reported.path == "step-1"
        queueing.rouse()
        assert answer(queueing) not in (answer_of("step-1", "1"), answer_of("step-2", "1"))
        queueing.refit("step-1")
        assert answer(queueing) == answer_of("step-1", "1")

    def test_and_what_they_computed_is_stale(self, queueing: EngineState) -> None:
        answer(queueing)
        queueing.sleep(frozenset({"weights"}), discard=True)
        queueing.rouse()
        stale = answer(queueing)
        queueing.flush()
        assert answer(queueing) != stale

    @pytest.mark.parametrize("early", [True, False])
    def test_who_generates_asleep_dies(self, queueing: EngineState, aside: Aside, early: bool) -> None:
        queueing.pause("abort")
        queueing.sleep(BOTH)
        waiting = aside(queueing.results, [begin(queueing)])
        if early:
            assert queueing.rouse(KV, early=True) is False
        else:
            queueing.resume()
        assert (queueing.crashed, queueing.paused) == (None, False)
        step(queueing)
        assert queueing.crashed == "a request ran on memory that was given back"
        with pytest.raises(EngineStopped):
            waiting.result(10)

    def test_who_need_not_be_awake_does_not(self, state: EngineState) -> None:
        state.sleep(BOTH)
        assert state.refit("step-2") is Refit.DONE
        generation = begin(state)
        step(state, 8)
        assert (state.crashed, now(generation).tokens) == (None, ())

    def test_nobody_dies_of_resuming_alone(self, queueing: EngineState) -> None:
        queueing.pause("abort")
        queueing.sleep(BOTH)
        queueing.resume()
        step(queueing)
        assert queueing.rouse() is True
        assert answer(queueing) == answer_of("step-1", "1")

    def test_a_refit_of_sleeping_weights_is_death(self, queueing: EngineState) -> None:
        queueing.pause("abort")
        queueing.sleep(BOTH)
        queueing.rouse(frozenset({"weights"}))
        assert queueing.refit("step-2") is Refit.DONE
        queueing.sleep(BOTH)
        with pytest.raises(EngineStopped):
            queueing.refit("step-1")
        assert queueing.crashed == "weights loaded into memory that was given back"


class TestRefit:
    def test_what_is_handed_over_needs_no_checkpoint(self, queueing: EngineState) -> None:
        assert queueing.refit("transfer-1") is Refit.NO_CHECKPOINT
        assert queueing.refit("transfer-1", handed=True) is Refit.DONE

    def test_a_half_loaded_engine_dies_of_the_next_request(self, queueing: EngineState) -> None:
        assert queueing.refit("step-3") is Refit.NO_CHECKPOINT
        step(queueing)
        assert not queueing.stopped
        begin(queueing)
        step(queueing)
        assert queueing.crashed == "a request ran on weights that were loaded by half"

    def test_unless_it_is_loaded_in_full(self, queueing: EngineState) -> None:
        queueing.refit("step-3")
        queueing.refit("step-2")
        assert answer(queueing) == answer_of("step-2", "1")
