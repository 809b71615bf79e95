"""The generations of one engine: what is taken in."""

import pytest

from reference_server.engines.state.batch import DuplicateRequest
from reference_server.engines.state.generation import Wanted
from reference_server.engines.state.machine import EngineState
from reference_server.engines.state.weights import encode

from ....support.state_by_hand import PROMPT, begin, step


class TestGenerations:
    def test_two_of_one_id_are_refused_and_nothing_is_taken_in(self, state: EngineState) -> None:
        begin(state, "a")
        for ids in ("ba", "bb"):
            with pytest.raises(DuplicateRequest) as caught:
                state.arrive([Wanted(id, encode(PROMPT)) for id in ids])
            assert caught.value.id == ids[1]
        assert state.in_flight == 1
        step(state, 8)
        begin(state, "a")
