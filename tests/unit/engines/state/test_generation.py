"""One generation: its tokens, its limit, its time."""

import pytest

from reference_server.engines.state.generation import Ending, Span
from reference_server.engines.state.machine import EngineState

from ....support.state_by_hand import begin, now, step


class TestGenerations:
    def test_a_token_a_tick_until_the_natural_end(self, state: EngineState) -> None:
        generation = begin(state)
        for count in range(8):
            assert len(now(generation).tokens) == count and now(generation).ending is None
            step(state)
        assert now(generation).ending == Ending("stop")
        step(state)
        assert len(now(generation).tokens) == 8
        assert state.in_flight == 0

    @pytest.mark.parametrize(
        ("limit", "ignore_end", "tokens", "kind"),
        [
            (3, False, 3, "length"),
            (8, False, 8, "length"),
            (9, False, 8, "stop"),
            (9, True, 9, "length"),
            (None, True, 8, "length"),
        ],
    )
    def test_the_limit(self, state: EngineState, limit: int | None, ignore_end: bool, tokens: int, kind: str) -> None:
        generation = begin(state, limit=limit, ignore_end=ignore_end)
        step(state, 20)
        assert len(now(generation).tokens) == tokens and now(generation).ending == Ending(kind)

    def test_no_tokens_wanted_is_over_at_once(self, state: EngineState) -> None:
        done = now(begin(state, limit=0))
        assert done.ending == Ending("length") and done.spans == (Span("1", 0, 0),)
        assert state.in_flight == 0

    def test_seconds_since_the_arrival(self) -> None:
        times = iter([10.0, 12.5])
        state = EngineState("step-1", clock=lambda: next(times))
        assert state.results([begin(state, limit=0)])[0].seconds == 2.5
