"""Where ticks come from: a test's hand, or a clock."""

import threading

import pytest

from reference_server.engines.state.clock import ManualTicks, RealTicks
from reference_server.engines.state.machine import EngineState

from ....support.state_by_hand import begin, now


class TestTicks:
    def test_by_hand_for_several_engines(self) -> None:
        ticks, states = ManualTicks(), [EngineState("step-1"), EngineState("step-1")]
        generations = [begin(state) for state in states]
        for state in states:
            ticks.start(state)
        ticks.step(3)
        assert [len(now(one).tokens) for one in generations] == [3, 3]
        ticks.stop(states[0])
        ticks.stop(states[0])
        ticks.step()
        assert [len(now(one).tokens) for one in generations] == [3, 4]

    @pytest.mark.parametrize("seconds", [0.0, 0.001])
    def test_by_the_clock(self, state: EngineState, seconds: float) -> None:
        ticks, before = RealTicks(seconds), threading.active_count()
        ticks.start(state)
        try:
            for id in ("first", "second"):
                assert len(state.results([begin(state, id)])[0].tokens) == 8
        finally:
            state.stop()
            ticks.stop(state)
        assert threading.active_count() == before and not ticks.failures

    def test_a_stop_does_not_wait_for_the_tick(self, state: EngineState) -> None:
        ticks = RealTicks(10_000.0)
        ticks.start(state)
        begin(state)
        state.stop()
        ticks.stop(state)

    def test_a_failure_is_kept(self) -> None:
        class Broken:
            def step(self) -> None:
                raise ArithmeticError("broken")

            def wait_for_work(self) -> bool:
                return True

        ticks, broken = RealTicks(0.0), Broken()
        ticks.start(broken)
        while not ticks.failures:
            pass
        ticks.stop(broken)
        assert isinstance(ticks.failures[0], ArithmeticError)
