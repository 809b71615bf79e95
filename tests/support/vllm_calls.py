"""A mock vLLM engine, what it is asked, and what it says."""

from concurrent.futures import Future
from functools import partial
from typing import Any

from reference_server import MockEngine

from .aside import Aside
from .asking import Answer, post

ASKED = {"model": "m", "prompt": "w1 w2 w3"}

start_vllm = partial(MockEngine, "vllm", model="m", model_path="step-1", checkpoints=("step-1", "step-2"))


def ok(engine: MockEngine, path: str, body: object = None) -> Any:
    answer = post(engine, path, body)
    assert (answer.status, answer.type) == (200, "application/json"), answer
    return answer.json


def text(engine: MockEngine, **fields: object) -> str:
    """What the engine says to `ASKED`."""
    return str(ok(engine, "/v1/completions", {**ASKED, **fields})["choices"][0]["text"])


def begun(engine: MockEngine, aside: Aside, **fields: object) -> "Future[Any]":
    """A generation in flight."""
    before = engine.in_flight
    future = aside(ok, engine, "/v1/completions", {**ASKED, "return_weight_versions": True, **fields})
    engine.wait_until(lambda: engine.in_flight == before + 1)
    return future


def message(answer: Answer, status: int, kind: str, param: str | None = None) -> str:
    """The sentence of a refusal."""
    assert (answer.status, answer.type) == (status, "application/json")
    error = answer.json["error"]
    assert (error["type"], error["param"], error["code"]) == (kind, param, status)
    return str(error["message"])
