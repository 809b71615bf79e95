"""SGLang with its memory released, over HTTP: it takes requests in, says nothing of its sleep, and answers none."""

import pytest

from reference_server import MockEngine

from ..support.aside import Aside
from ..support.asking import ask
from ..support.generating import PROMPT
from ..support.sglang_calls import post

RELEASE, RESUME = "/release_memory_occupation", "/resume_memory_occupation"


@pytest.mark.parametrize("tag", ["weights", "kv_cache"])
def test_a_request_is_answered_when_the_memory_is_back(engine: MockEngine, aside: Aside, tag: str) -> None:
    assert post(engine, RELEASE, {"tags": [tag]}).status == 200
    asked = aside(post, engine, "/generate", PROMPT)
    engine.wait_until(lambda: engine.in_flight == 1)
    for path in ("/health", "/ready", "/model_info"):
        assert ask(engine, "GET", path).status == 200
    assert (engine.state, asked.done()) == ("running", False)
    post(engine, RESUME, {"tags": [tag]})
    assert len(asked.result(10).json["output_ids"]) == 8


def test_an_abort_answers_it_too(engine: MockEngine, aside: Aside) -> None:
    post(engine, RELEASE)
    asked = aside(post, engine, "/generate", PROMPT)
    engine.wait_until(lambda: engine.in_flight == 1)
    post(engine, "/pause_generation")
    assert asked.result(10).json["meta_info"]["finish_reason"]["type"] == "abort"


def test_health_that_asks_for_a_token_fails() -> None:
    with MockEngine("sglang", health_generation=True, health_timeout=0.01) as engine:
        post(engine, RELEASE)
        assert ask(engine, "GET", "/health").status == 503
        post(engine, RESUME)
        assert ask(engine, "GET", "/health").status == 200


@pytest.mark.parametrize(
    ("first", "path", "tags"),
    [
        (["kv_cache"], RELEASE, ["kv_cache"]),
        (["kv_cache"], RELEASE, None),
        (["kv_cache"], RESUME, ["weights"]),
        (["kv_cache"], RESUME, None),
    ],
)
def test_released_twice_or_resumed_unreleased_it_dies(
    engine: MockEngine, first: list[str], path: str, tags: list[str] | None
) -> None:
    post(engine, RELEASE, {"tags": first})
    with pytest.raises(ConnectionError):
        post(engine, path, {"tags": tags})
    assert engine.state == "dead"
