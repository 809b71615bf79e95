"""Generations of a mock engine by its route `/generate`, which SGLang and TokenSpeed have."""

from concurrent.futures import Future
from typing import Any

from reference_server import MockEngine

from .aside import Aside
from .asking import post

PROMPT = {"text": "w1 w2 w3"}


def generate(engine: MockEngine, **fields: object) -> Any:
    answer = post(engine, "/generate", {**PROMPT, **fields})
    assert answer.status == 200, answer
    return answer.json


def begun(engine: MockEngine, aside: Aside, count: int = 1, **fields: object) -> list["Future[Any]"]:
    """Generations in flight."""
    before = engine.in_flight
    futures = [aside(generate, engine, **fields) for _ in range(count)]
    engine.wait_until(lambda: engine.in_flight == before + count)
    return futures


def spans(*parts: tuple[str, int, int]) -> list[dict[str, object]]:
    """Which weights made which tokens, as every engine tells it."""
    return [{"version": version, "start": start, "end": end} for version, start, end in parts]
