"""The state of an engine, driven by hand: what arrives, each step, and what came of it."""

from collections.abc import Callable

from reference_server.engines.state.generation import Generation, Progress, Wanted
from reference_server.engines.state.machine import EngineState
from reference_server.engines.state.weights import encode

PROMPT = "w1 w2 w3"


def begin(
    state: EngineState, id: str = "a", prompt: str = PROMPT, limit: int | None = None, *, ignore_end: bool = False
) -> Generation:
    return state.arrive([Wanted(id, encode(prompt), limit, ignore_end)])[0]


def step(state: EngineState, count: int = 1) -> None:
    for _ in range(count):
        state.step()


def now(generation: Generation) -> Progress:
    return generation.progress(0.0)


def answer(state: EngineState, prompt: str = PROMPT, id: str = "answer") -> tuple[int, ...]:
    """What a request gets if nobody interferes."""
    generation = begin(state, id, prompt)
    step(state, 8)
    return state.results([generation])[0].tokens


def answer_of(path: str, version: str, prompt: str = PROMPT) -> tuple[int, ...]:
    """What a new engine with these weights answers."""
    return answer(EngineState(path, version), prompt)


def wait_for_change(state: EngineState, condition: Callable[[], bool]) -> None:
    """Wait for something that another thread does to this state; nothing of it is seen by half."""
    with state.changed:
        assert state.changed.wait_for(condition, 10)
