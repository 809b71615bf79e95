"""The state of an engine: pauses, aborts, refits, flushes, memory, and who waits; time passes by hand."""

import pytest

from reference_server.engines.state.generation import Ending, Phase, Span
from reference_server.engines.state.machine import CallerGone, EngineState, EngineStopped, Flush, Refit
from reference_server.engines.state.traits import PAUSE_MODES

from ....support.aside import Aside
from ....support.state_by_hand import answer, answer_of, begin, now, step, wait_for_change


class TestPause:
    @pytest.mark.parametrize("mode", PAUSE_MODES)
    def test_who_arrives_in_a_pause_is_parked_until_the_end_of_it(self, state: EngineState, mode: str) -> None:
        state.pause(mode)
        first, second = begin(state, "first"), begin(state, "second")
        step(state, 3)
        assert state.count(Phase.PARKED) == 2 and state.in_flight == 0
        assert not now(first).tokens and not now(second).tokens
        state.resume()
        step(state)
        assert len(now(first).tokens) == len(now(second).tokens) == 1

    def test_the_parked_come_in_by_order_of_arrival(self, state: EngineState) -> None:
        state.pause("abort")
        first, second = begin(state, "first"), begin(state, "second")
        state.resume()
        # The second finds in the cache what the first has computed.
        assert (now(first).cached_tokens, now(second).cached_tokens) == (0, 2)

    def test_the_retracted_come_before_the_parked(self, state: EngineState) -> None:
        begin(state, "retracted")
        state.pause("retract")
        parked = begin(state, "parked")
        state.flush()
        state.resume()
        assert now(parked).cached_tokens == 2

    @pytest.mark.parametrize("mode", PAUSE_MODES)
    def test_again_and_again(self, state: EngineState, mode: str) -> None:
        state.pause(mode)
        state.pause(mode)
        assert state.pause_mode == mode
        state.resume()
        state.resume()
        assert not state.paused
        assert len(answer(state)) == 8

    def test_abort_ends_what_is_in_flight_with_what_it_has(self, state: EngineState) -> None:
        generation = begin(state)
        step(state, 3)
        state.pause("abort")
        assert now(generation).ending == Ending("abort") and len(now(generation).tokens) == 3
        assert state.in_flight == 0

    def test_retract_lets_it_go_on_with_the_new_weights(self, state: EngineState) -> None:
        generation = begin(state)
        step(state, 3)
        state.pause("retract")
        assert (state.count(Phase.QUEUED), state.in_flight) == (1, 1)
        step(state, 5)
        assert state.refit("step-2", "2") is Refit.DONE
        state.resume()
        step(state, 5)
        done = now(generation)
        assert done.ending == Ending("stop") and done.retractions == 1
        assert done.spans == (Span("1", 0, 3), Span("2", 3, 8))
        assert done.tokens == answer_of("step-1", "1")[:3] + answer_of("step-2", "2")[3:]

    def test_in_place_freezes_and_goes_on_upon_the_old_cache(self, state: EngineState) -> None:
        generation = begin(state)
        step(state, 3)
        state.pause("in_place")
        step(state, 5)
        assert len(now(generation).tokens) == 3
        assert state.flush() is Flush.BUSY
        assert state.refit("step-2", "2") is Refit.NOT_FLUSHED
        state.resume()
        step(state, 5)
        done = now(generation)
        assert done.spans == (Span("1", 0, 3), Span("2", 3, 8)) and done.retractions == 0
        assert done.tokens[:3] == answer_of("step-1", "1")[:3]
        assert done.tokens[3:] != answer_of("step-2", "2")[3:]

    def test_in_place_and_then_retract(self, state: EngineState) -> None:
        begin(state)
        state.pause("in_place")
        state.pause("retract")
        assert state.count(Phase.QUEUED) == 1
        assert state.flush() is Flush.DONE

    def test_retract_and_then_abort(self, state: EngineState) -> None:
        generation = begin(state)
        state.pause("retract")
        state.pause("abort")
        assert now(generation).ending == Ending("abort", queued=True)


class TestAbort:
    def test_one(self, state: EngineState) -> None:
        one, other = begin(state, "one"), begin(state, "other")
        step(state)
        state.abort("one")
        state.abort("nobody")
        assert now(one).ending == Ending("abort") and now(other).ending is None

    def test_all_but_the_parked(self, state: EngineState) -> None:
        inside = begin(state, "inside")
        state.pause("retract")
        parked = begin(state, "parked")
        state.abort()
        state.abort("parked")
        assert now(inside).ending == Ending("abort", queued=True)
        state.resume()
        step(state, 8)
        assert now(parked).ending == Ending("stop")

    def test_the_frozen_end_when_the_engine_resumes(self, state: EngineState) -> None:
        generation = begin(state)
        step(state, 2)
        state.pause("in_place")
        state.abort()
        assert now(generation).ending is None and state.flush() is Flush.BUSY
        state.resume()
        assert now(generation).ending == Ending("abort") and len(now(generation).tokens) == 2


class TestFlush:
    def test_not_while_something_runs(self, state: EngineState) -> None:
        begin(state)
        assert state.flush() is Flush.BUSY and state.flushes == 0
        step(state, 8)
        assert state.flush() is Flush.DONE and state.flushes == 1

    def test_the_retracted_do_not_count_unless_it_waits(self, state: EngineState) -> None:
        begin(state)
        state.pause("retract")
        assert state.flush() is Flush.DONE
        assert state.flush(0.01) is Flush.TIMED_OUT and state.flushes == 1

    def test_it_waits(self, state: EngineState, aside: Aside) -> None:
        begin(state)
        flush = aside(state.flush, float("inf"))
        step(state, 8)
        assert flush.result(10) is Flush.DONE

    def test_what_runs_can_be_retracted_for_it(self, state: EngineState) -> None:
        generation = begin(state)
        step(state, 2)
        assert state.flush(retract=True) is Flush.DONE
        step(state, 6)
        assert now(generation).ending == Ending("stop") and now(generation).retractions == 1

    def test_in_a_pause_they_wait_for_its_end(self, state: EngineState) -> None:
        generation = begin(state)
        state.pause("in_place")
        assert state.flush(retract=True) is Flush.DONE
        assert generation.phase is Phase.QUEUED


class TestRefit:
    def test_new_weights_at_once_on_a_paused_engine(self, state: EngineState) -> None:
        state.pause("abort")
        assert state.refit("step-2", "2") is Refit.DONE
        assert (state.weights.path, state.weights.version, state.flushes) == ("step-2", "2", 1)
        assert state.reported == state.weights
        state.resume()
        assert answer(state) == answer_of("step-2", "2")

    def test_without_a_version_it_stays(self, state: EngineState) -> None:
        state.refit("step-2")
        assert state.weights.version == "1"

    def test_what_does_not_load_changes_nothing(self) -> None:
        state = EngineState("step-1", "1", checkpoints=["step-2"])
        assert state.refit("step-3", "3") is Refit.NO_CHECKPOINT
        assert (state.weights.path, state.weights.version, state.flushes) == ("step-1", "1", 0)
        assert state.refit("step-2", "2") is Refit.DONE

    def test_not_flushed_is_reported_as_the_old_weights(self, state: EngineState) -> None:
        begin(state)
        state.pause("in_place")
        state.refit("step-2", "2")
        assert (state.weights.version, state.reported.version, state.reported.path) == ("2", "1", "step-1")
        state.rename("3", abort=False)
        assert (state.weights.version, state.reported.version, state.reported.path) == ("3", "3", "step-1")

    def test_a_cache_that_was_not_flushed_gives_wrong_answers(self, state: EngineState) -> None:
        answer(state)
        assert state.refit("step-2", "2", flush=False) is Refit.DONE and state.flushes == 0
        assert answer(state) != answer_of("step-2", "2")
        assert answer(state, "w9 w8") == answer_of("step-2", "2", "w9 w8")
        assert state.flush() is Flush.DONE
        assert answer(state) == answer_of("step-2", "2")

    def test_the_same_weights_again_need_no_flush(self, state: EngineState) -> None:
        answer(state)
        state.refit("step-1", "1", flush=False)
        assert answer(state) == answer_of("step-1", "1")

    def test_a_new_name_needs_no_flush(self, state: EngineState) -> None:
        answer(state)
        state.rename("2")
        assert answer(state) == answer_of("step-1", "2")
        assert (state.weights.path, state.weights.version) == ("step-1", "2")

    def test_a_new_name_ends_what_is_in_flight(self, state: EngineState) -> None:
        generation = begin(state)
        state.rename("2")
        assert now(generation).ending == Ending("abort")

    def test_a_new_name_spares_what_is_in_flight_if_told_so(self, state: EngineState) -> None:
        generation = begin(state)
        step(state, 2)
        state.rename("2", abort=False)
        step(state, 6)
        assert now(generation).spans == (Span("1", 0, 2), Span("2", 2, 8))

    def test_unpaused_it_waits_and_keeps_the_door_shut(self, state: EngineState, aside: Aside) -> None:
        before = begin(state, "before")
        refit = aside(state.refit, "step-2", "2")
        # What arrives is parked as soon as the refit waits.
        names = iter(range(1000))
        wait_for_change(state, lambda: begin(state, str(next(names)), limit=0).phase is Phase.PARKED)
        after = begin(state, "after")
        step(state, 7)
        assert not refit.done() and after.phase is Phase.PARKED
        step(state)
        assert refit.result(10) is Refit.DONE
        assert now(before).spans == (Span("1", 0, 8),)
        step(state, 8)
        assert now(after).spans == (Span("2", 0, 8),) and now(after).tokens == answer_of("step-2", "2")

    def test_unpaused_it_does_not_wait_if_it_aborts(self, state: EngineState) -> None:
        generation = begin(state)
        assert state.refit("step-2", "2", abort=True) is Refit.DONE
        assert now(generation).ending == Ending("abort")

    def test_at_once_amid_what_is_in_flight(self, state: EngineState) -> None:
        generation = begin(state)
        step(state, 3)
        assert state.refit("step-2", "2", flush=False, at_once=True) is Refit.DONE
        step(state, 5)
        assert now(generation).spans == (Span("1", 0, 3), Span("2", 3, 8))

    def test_at_once_it_cannot_flush(self, state: EngineState) -> None:
        begin(state)
        assert state.refit("step-2", "2", at_once=True) is Refit.NOT_FLUSHED


class TestMemory:
    def test_sleep_and_wake_in_parts(self, state: EngineState) -> None:
        state.sleep(frozenset({"weights"}))
        assert state.flushes == 0
        state.sleep(frozenset({"weights", "kv_cache"}))
        assert state.flushes == 1
        state.wake(frozenset({"weights"}))
        assert state.asleep == {"kv_cache"} and state.crashed is None

    def test_sleep_under_a_running_request_is_death(self, state: EngineState) -> None:
        begin(state)
        with pytest.raises(EngineStopped):
            state.sleep(frozenset({"kv_cache"}))
        assert state.crashed is not None
        with pytest.raises(EngineStopped):
            state.resume()

    def test_sleep_under_a_retracted_request_is_none(self, state: EngineState) -> None:
        begin(state)
        state.pause("retract")
        state.sleep(frozenset({"kv_cache"}))
        assert state.crashed is None

    def test_wake_of_what_is_awake_is_death(self, state: EngineState) -> None:
        state.sleep(frozenset({"kv_cache"}))
        with pytest.raises(EngineStopped):
            state.wake(frozenset({"kv_cache", "weights"}))
        assert state.crashed is not None and state.stopped


class TestWaiting:
    def test_results_wait_for_the_last(self, state: EngineState, aside: Aside) -> None:
        short, long = begin(state, "short", limit=1), begin(state, "long")
        results = aside(state.results, [short, long])
        step(state, 7)
        assert not results.done()
        step(state)
        results.result(10)

    def test_a_stream_has_each_token_once_and_the_ending_with_the_last(self, state: EngineState) -> None:
        generation = begin(state, limit=3)
        stream = state.stream([generation])
        step(state)
        assert len(next(stream)[1].tokens) == 1
        step(state, 2)
        moments = [progress for _, progress in stream]
        assert [len(moment.tokens) for moment in moments] == [2, 3]
        assert [moment.ending for moment in moments] == [None, Ending("length")]

    def test_a_stream_of_several(self, state: EngineState) -> None:
        stream = state.stream([begin(state, "a", limit=1), begin(state, "b", limit=2)])
        step(state, 2)
        seen = [(index, len(progress.tokens), progress.ending is not None) for index, progress in stream]
        assert seen == [(0, 1, True), (1, 1, False), (1, 2, True)]

    def test_each_moment_of_a_stream_has_the_version_of_its_token(self, state: EngineState) -> None:
        generation = begin(state, limit=2)
        step(state)
        state.rename("2", abort=False)
        step(state)
        assert [progress.weight_version for _, progress in state.stream([generation])] == ["1", "2"]

    def test_an_abort_comes_after_the_tokens_in_a_stream(self, state: EngineState) -> None:
        generation = begin(state)
        stream = state.stream([generation])
        step(state)
        next(stream)
        state.abort()
        last = [progress for _, progress in stream]
        assert [(len(one.tokens), one.ending) for one in last] == [(1, Ending("abort"))]

    @pytest.mark.parametrize("parked", [True, False])
    def test_a_caller_that_left_is_removed(self, state: EngineState, parked: bool) -> None:
        if parked:
            state.pause("abort")
        generation, other = begin(state, "gone"), begin(state, "other")
        with pytest.raises(CallerGone):
            state.results([generation], lambda: True)
        assert now(generation).ending == Ending("gone") and now(other).ending is None
        begin(state, "gone")

    def test_a_stop_wakes_all(self, state: EngineState, aside: Aside) -> None:
        generation = begin(state)
        waiting = [
            aside(state.results, [generation]),
            aside(lambda: list(state.stream([generation]))),
            aside(state.flush, 1000.0),
            aside(state.refit, "step-2"),
        ]
        state.stop()
        for one in waiting:
            with pytest.raises(EngineStopped):
                one.result(10)
        assert state.weights.path == "step-1"
        with pytest.raises(EngineStopped):
            begin(state, "late")

    def test_waiting_for_the_end_of_a_pause(self, state: EngineState, aside: Aside) -> None:
        assert state.wait_until_running(0.0)
        state.pause("abort")
        assert not state.wait_until_running(0.01)
        waiting = aside(state.wait_until_running, 1000.0)
        state.resume()
        assert waiting.result(10) is True


class TestTrainer:
    def test_they_wait_for_each_other(self, state: EngineState, aside: Aside) -> None:
        engine = aside(state.wait_for_trainer)
        assert state.join(10) is True
        engine.result(10)
        trainer = aside(state.join, 10)
        state.wait_for_trainer()
        assert trainer.result(10) is True

    def test_one_each(self, state: EngineState, aside: Aside) -> None:
        engines = [aside(state.wait_for_trainer), aside(state.wait_for_trainer)]
        assert state.join(10) and state.join(10) and not state.join(0.01)
        for one in engines:
            one.result(10)

    def test_nobody_comes(self, state: EngineState) -> None:
        assert state.join(0.01) is False
        with pytest.raises(CallerGone):
            state.wait_for_trainer(lambda: True)
        assert state.join(0.01) is False

    def test_a_stop_wakes_both(self, state: EngineState, aside: Aside) -> None:
        waiting = aside(state.wait_for_trainer)
        wait_for_change(state, lambda: bool(state._waiting_for_trainer))
        other = EngineState("step-1")
        joining = aside(other.join, 1000.0)
        state.stop()
        other.stop()
        for one in (waiting, joining):
            with pytest.raises(EngineStopped):
                one.result(10)
