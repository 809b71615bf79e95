"""LoRA adapters of an engine's state: loaded by name, chosen by a request, unloaded."""

from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor

import pytest

from reference_server.engines.state.generation import Adapter, Generation, Wanted
from reference_server.engines.state.machine import Adapted, EngineState, EngineStopped
from reference_server.engines.state.weights import encode

Aside = Callable[..., "Future[object]"]


@pytest.fixture
def state() -> EngineState:
    return EngineState("base", checkpoints=["base", "a-1", "a-2"])


@pytest.fixture
def aside() -> Iterator[Aside]:
    """Call something that waits, in another thread."""
    with ThreadPoolExecutor() as pool:
        yield pool.submit


def begin(state: EngineState, id: str, adapter: Adapter | None = None) -> Generation:
    return state.arrive([Wanted(id, encode("w1 w2"), adapter=adapter)])[0]


def answer(state: EngineState, adapter: Adapter | None = None) -> tuple[int, ...]:
    generation = begin(state, "answer", adapter)
    for _ in range(8):
        state.step()
    return state.results([generation])[0].tokens


def test_a_name_is_loaded_once_unless_in_place(state: EngineState) -> None:
    assert state.load_adapter("a", "a-1") is Adapted.DONE
    assert state.load_adapter("a", "a-2") is Adapted.TAKEN
    assert state.adapters == {"a": "a-1"}
    assert state.load_adapter("a", "a-2", in_place=True) is Adapted.DONE
    assert state.adapters == {"a": "a-2"}


def test_what_no_checkpoint_is_does_not_load(state: EngineState) -> None:
    assert state.load_adapter("a", "a-3") is Adapted.NO_CHECKPOINT
    assert state.adapters == {}
    assert EngineState("base").load_adapter("a", "anything") is Adapted.DONE


def test_an_adapter_decides_the_tokens(state: EngineState) -> None:
    state.load_adapter("a", "a-1")
    first = answer(state, state.adapter("a"))
    assert first != answer(state)
    state.load_adapter("a", "a-2", in_place=True)
    assert answer(state, state.adapter("a")) not in (first, answer(state))
    assert state.adapter("b") is None


def test_unloaded_it_is_gone_and_may_come_again(state: EngineState) -> None:
    state.load_adapter("a", "a-1")
    assert state.unload_adapter("a") is True
    assert state.unload_adapter("a") is False
    assert state.load_adapter("a", "a-2") is Adapted.DONE


def test_an_unload_waits_for_those_who_use_it_if_told_so(state: EngineState, aside: Aside) -> None:
    state.load_adapter("a", "a-1")
    begin(state, "user", state.adapter("a"))
    unload = aside(state.unload_adapter, "a", wait=True)
    with state.changed:
        assert state.changed.wait_for(lambda: not state.adapters, 10)
    for _ in range(7):
        state.step()
    begin(state, "other")
    assert not unload.done()
    state.step()
    assert unload.result(10) is True and state.in_flight == 1


def test_a_stop_wakes_who_unloads(state: EngineState, aside: Aside) -> None:
    state.load_adapter("a", "a-1")
    begin(state, "user", state.adapter("a"))
    unload = aside(state.unload_adapter, "a", wait=True)
    with state.changed:
        assert state.changed.wait_for(lambda: not state.adapters, 10)
    state.stop()
    with pytest.raises(EngineStopped):
        unload.result(10)


def test_a_twin_has_them_too(state: EngineState) -> None:
    state.load_adapter("a", "a-1")
    twin = state.twin()
    twin.unload_adapter("a")
    assert (state.adapters, twin.adapters) == ({"a": "a-1"}, {})
