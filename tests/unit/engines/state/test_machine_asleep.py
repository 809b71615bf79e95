"""An engine that does not die of a request while its memory is given back: the request waits for the memory."""

import pytest

from reference_server.engines.state.generation import Ending, Generation, Phase, Wanted
from reference_server.engines.state.machine import EngineState, EngineStopped, Flush
from reference_server.engines.state.weights import encode

KV, WEIGHTS = frozenset({"kv_cache"}), frozenset({"weights"})


@pytest.fixture
def state() -> EngineState:
    return EngineState("step-1", "1")


def begin(state: EngineState, id: str = "a", limit: int | None = None) -> Generation:
    return state.arrive([Wanted(id, encode("w1 w2"), limit)])[0]


def step(state: EngineState, count: int) -> None:
    for _ in range(count):
        state.step()


@pytest.mark.parametrize("tags", [KV, WEIGHTS, KV | WEIGHTS])
def test_who_arrives_waits_until_all_memory_is_back(state: EngineState, tags: frozenset[str]) -> None:
    state.release(tags)
    generation = begin(state)
    step(state, 8)
    assert (generation.tokens, generation.phase, state.in_flight) == ([], Phase.QUEUED, 1)
    for tag in sorted(tags):
        assert generation.phase is Phase.QUEUED
        state.wake(frozenset({tag}))
    step(state, 8)
    assert generation.ending == Ending("stop") and generation.retractions == 0


def test_not_even_who_wants_no_token_is_answered(state: EngineState) -> None:
    state.release(KV)
    assert begin(state, limit=0).ending is None


def test_a_resume_wakes_nobody_up(state: EngineState) -> None:
    state.pause("retract")
    state.release(KV)
    generation = begin(state)
    assert generation.phase is Phase.PARKED
    state.resume()
    step(state, 8)
    assert not generation.tokens
    state.wake(KV)
    step(state, 8)
    assert generation.ending == Ending("stop")


def test_memory_alone_resumes_nobody(state: EngineState) -> None:
    generation = begin(state)
    state.pause("retract")
    state.release(KV)
    state.wake(KV)
    assert generation.phase is Phase.QUEUED
    state.resume()
    step(state, 8)
    assert generation.ending == Ending("stop")


def test_who_waits_is_aborted_in_the_queue(state: EngineState) -> None:
    state.release(KV)
    generation = begin(state)
    state.pause("abort")
    assert generation.ending == Ending("abort", queued=True)


def test_who_waits_holds_on_to_no_cache(state: EngineState) -> None:
    state.release(WEIGHTS)
    begin(state)
    assert state.flush() is Flush.DONE


def test_it_is_not_running_for_who_asks_for_a_token(state: EngineState) -> None:
    state.release(KV)
    assert state.wait_until_running(0.01) is False
    state.wake(KV)
    assert state.wait_until_running(0.01) is True


def test_released_twice_is_its_death(state: EngineState) -> None:
    state.release(KV)
    with pytest.raises(EngineStopped):
        state.release(KV | WEIGHTS)
    assert state.crashed == "memory released twice"


def test_resumed_without_a_release_is_its_death(state: EngineState) -> None:
    state.release(KV)
    with pytest.raises(EngineStopped):
        state.wake(KV | WEIGHTS)
    assert state.crashed == "memory resumed that was not released"
