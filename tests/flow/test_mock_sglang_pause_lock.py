"""SGLang's abort pause over HTTP: it answers when nothing is in flight, and a resume waits behind it."""

from collections.abc import Iterator

import pytest

from reference_server import Fleet, ManualTicks, MockEngine

from ..support.aside import Aside
from ..support.asking import ask
from ..support.generating import begun
from ..support.sglang_calls import post, refit

GROUP = {"master_address": "127.0.0.1", "master_port": 1, "rank_offset": 1, "world_size": 2}
TENSORS: dict[str, list[str]] = {"names": [], "dtypes": [], "shapes": []}


@pytest.fixture
def engine(aside: Aside, ticks: ManualTicks) -> Iterator[MockEngine]:
    """An engine in which an aborted request ends at the next step of the test's clock."""
    with MockEngine("sglang", ticks=ticks, abort_ticks=1) as engine:
        yield engine
        engine.check()


def test_a_pause_is_open_until_nothing_is_in_flight(engine: MockEngine, ticks: ManualTicks, aside: Aside) -> None:
    (asked,) = begun(engine, aside)
    ticks.step(3)
    pause = aside(post, engine, "/pause_generation")
    engine.wait_until(lambda: engine.state == "paused")
    assert ask(engine, "GET", "/ready").status == 503
    new = aside(post, engine, "/generate", {"text": "w9"})
    engine.wait_until(lambda: engine.parked == 1)
    resume = aside(post, engine, "/continue_generation")
    engine.wait_until(lambda: len(engine.calls("continue_generation")) == 1)
    assert not pause.done() and not resume.done() and engine.state == "paused"
    ticks.step()
    assert pause.result(10).status == resume.result(10).status == 200
    assert asked.result(10)["meta_info"]["finish_reason"]["type"] == "abort"
    assert len(asked.result(10)["output_ids"]) == 3
    assert engine.state == "running" and ask(engine, "GET", "/ready").status == 200
    ticks.step(8)
    assert new.result(10).status == 200


@pytest.mark.parametrize("mode", ["retract", "in_place"])
def test_the_other_modes_answer_at_once(engine: MockEngine, aside: Aside, mode: str) -> None:
    begun(engine, aside)
    assert post(engine, "/pause_generation", {"mode": mode}).status == 200
    assert engine.in_flight == 1


@pytest.mark.parametrize("path", ["/begin_weight_update", "/end_weight_update", "/update_weights_from_tensor"])
def test_weights_that_are_handed_over_wait_behind_it(
    engine: MockEngine, ticks: ManualTicks, aside: Aside, path: str
) -> None:
    begun(engine, aside)
    pause = aside(post, engine, "/pause_generation")
    engine.wait_until(lambda: engine.state == "paused")
    handed = aside(post, engine, path, {"serialized_named_tensors": []})
    engine.wait_until(lambda: len(engine.calls(path)) == 1)
    assert refit(engine, "step-2", "2", flush_cache=False).status == 200
    assert not pause.done() and not handed.done()
    ticks.step()
    assert pause.result(10).status == 200 and handed.result(10).status in (200, 400)


def test_a_broadcast_that_hangs_holds_up_the_resume(engine: MockEngine, aside: Aside) -> None:
    init = aside(post, engine, "/init_weights_update_group", GROUP)
    engine.join()
    assert init.result(10).status == 200
    post(engine, "/pause_generation")
    post(engine, "/begin_weight_update")
    broadcast = aside(post, engine, "/update_weights_from_distributed", TENSORS)
    engine.wait_until(lambda: len(engine.calls("update_weights_from_distributed")) == 1)
    engine.wait_until(lambda: bool(engine._state._waiting_for_trainer))
    resume = aside(post, engine, "/continue_generation")
    engine.wait_until(lambda: len(engine.calls("continue_generation")) == 1)
    assert engine.state == "paused" and not resume.done()
    engine.join()
    assert broadcast.result(10).status == resume.result(10).status == 200
    assert engine.state == "running"


def test_a_clock_of_its_own_ends_it(aside: Aside) -> None:
    with Fleet(sglang=1, engine={"abort_ticks": 2, "tick_seconds": 0.01, "generation_ticks": 100_000}) as fleet:
        engine = fleet.engines[0]
        (asked,) = begun(engine, aside)
        fleet.rl.fanout("pause_generation", {"mode": "abort"}, selector="engine=sglang")
        assert asked.result(10)["meta_info"]["finish_reason"]["type"] == "abort"
        fleet.rl.fanout("continue_generation", {}, selector="engine=sglang")
        fleet.check()
