"""A mock vLLM between two states: a pause that is still in flight, and what memory sleeps."""

from concurrent.futures import Future
from typing import Any

import pytest

from reference_server import ManualTicks, MockEngine

from ..support.aside import Aside
from ..support.asking import ask, post

ASKED = {"prompt": "w1 w2 w3"}
SLEEP_STATES = ("awake", "weights_offloaded", "discard_all")


def pausing(engine: MockEngine, aside: Aside) -> "tuple[Future[Any], Future[Any]]":
    """A generation in flight, and a pause that waits for its end."""
    asked = aside(post, engine, "/v1/completions", ASKED)
    engine.wait_until(lambda: engine.in_flight == 1)
    pause = aside(post, engine, "/pause?mode=wait")
    engine.wait_until(lambda: engine.state == "paused")
    return asked, pause


class TestAPauseInFlight:
    def test_ranks_refuse_a_resume_until_it_has_ended(self, ticks: ManualTicks, aside: Aside) -> None:
        with MockEngine("vllm", dp_size=2, ticks=ticks) as engine:
            asked, pause = pausing(engine, aside)
            refused = post(engine, "/resume")
            assert refused.status == 500
            assert refused.json["error"].startswith("Failed to resume generation: ")
            assert engine.state == "paused" and not pause.done()
            ticks.step(8)
            assert pause.result(10).status == asked.result(10).status == 200
            assert post(engine, "/resume").status == 200
            assert engine.state == "running"

    def test_ranks_disagree_on_whether_they_are_paused(self, ticks: ManualTicks, aside: Aside) -> None:
        with MockEngine("vllm", dp_size=2, ticks=ticks) as engine:
            assert ask(engine, "GET", "/is_paused").json == {"is_paused": False}
            _, pause = pausing(engine, aside)
            answer = ask(engine, "GET", "/is_paused")
            assert answer.status == 500
            assert answer.json["error"].startswith("Failed to fetch pause status: Engines returned different ")
            answer = ask(engine, "GET", "/is_sleeping")
            assert (answer.status, answer.json["error"]["code"]) == (500, 500)
            ticks.step(8)
            pause.result(10)
            assert ask(engine, "GET", "/is_paused").json == {"is_paused": True}
            assert ask(engine, "GET", "/is_sleeping").json == {"is_sleeping": True}

    def test_a_single_engine_refuses_nothing(self, ticks: ManualTicks, aside: Aside) -> None:
        with MockEngine("vllm", ticks=ticks) as engine:
            _, pause = pausing(engine, aside)
            assert ask(engine, "GET", "/is_paused").json == {"is_paused": True}
            assert post(engine, "/resume").status == 200
            assert engine.state == "running"
            ticks.step(8)
            assert pause.result(10).status == 200
            assert engine.state == "running"

    def test_another_pause_that_ends_it(self, ticks: ManualTicks, aside: Aside) -> None:
        with MockEngine("vllm", dp_size=2, ticks=ticks) as engine:
            _, pause = pausing(engine, aside)
            assert post(engine, "/pause?mode=keep").status == 200
            assert pause.result(10).status == 200
            assert post(engine, "/resume").status == 200


def sleep_state(engine: MockEngine) -> str:
    """The one state that is 1.0 on the page."""
    answer = ask(engine, "GET", "/metrics")
    assert answer.status == 200 and (answer.type or "").startswith("text/plain")
    lines = [line for line in answer.body.decode().splitlines() if not line.startswith("#")]
    values = dict(line.split(" ") for line in lines)
    assert list(values) == [f'vllm:engine_sleep_state{{sleep_state="{name}"}}' for name in SLEEP_STATES]
    (state,) = (name for name, value in zip(SLEEP_STATES, values.values(), strict=True) if value == "1.0")
    assert sorted(values.values()) == ["0.0", "0.0", "1.0"]
    return state


class TestMetrics:
    @pytest.mark.parametrize(("level", "state"), [(0, "awake"), (1, "weights_offloaded"), (2, "discard_all")])
    def test_they_tell_asleep_from_paused(self, level: int, state: str) -> None:
        with MockEngine("vllm") as engine:
            assert sleep_state(engine) == "awake"
            post(engine, "/pause")
            assert sleep_state(engine) == "awake"
            post(engine, f"/sleep?level={level}")
            assert ask(engine, "GET", "/is_sleeping").json == {"is_sleeping": True}
            assert sleep_state(engine) == state
            post(engine, "/wake_up")
            assert sleep_state(engine) == "awake"

    def test_a_page_in_the_text_format(self) -> None:
        with MockEngine("vllm", dev_mode=False, api_key="k") as engine:
            page = ask(engine, "GET", "/metrics").body.decode()
            assert "# TYPE vllm:engine_sleep_state gauge\n" in page and page.endswith("\n")
