"""Public reports about pause and resume (rows A, E7, E9), each as a test named after its row."""

import asyncio
import threading
import traceback

import pytest

from reference_server import Fleet, MockEngine, faults
from reference_server.health import HealthPolicy
from smg.rl import SGLANG, VLLM, FanoutError, PauseRoutes, Target, WeightVersionError, aio, paused

from ..support.fleets import fleet_of, states
from ..support.waiting import wait_until

ALL = "engine=sglang"
PAUSE, RESUME, REFIT = "pause_generation", "continue_generation", "update_weights_from_disk"
STEP = {"model_path": "/ckpt/step-42", "weight_version": "42"}
PROMPT = {"text": "hello", "sampling_params": {"max_new_tokens": 2}}


def target(fleet: Fleet, engine: MockEngine) -> Target:
    return Target(fleet.worker_id(engine), engine.url)


def test_a1_a_pause_refused_by_one_engine_leaves_none_paused() -> None:
    with Fleet(sglang=2) as fleet:
        good, bad = fleet.engines
        bad.fail(PAUSE, faults.Status(500), times=1)
        with pytest.raises(FanoutError, match=bad.url) as failed, paused(fleet.rl, ALL):
            pytest.fail("the block ran")
        assert [one.url for one in failed.value.result.failed] == [bad.url]
        assert len(good.calls(RESUME)) == 1
        assert states(fleet) == ["running", "running"]


def test_a2_a_pause_that_hangs_on_one_engine_ends_and_both_are_asked_to_resume() -> None:
    with Fleet(sglang=2, gateway={"rl_control_timeout_secs": 0.4}) as fleet:
        fleet.engines[1].fail(PAUSE, faults.Hang(effect=True), times=1)
        with pytest.raises(FanoutError) as failed, paused(fleet.rl, ALL, timeout=5):
            pytest.fail("the block ran")
        assert [(one.url, one.error) for one in failed.value.result.failed] == [
            (fleet.engines[1].url, "upstream_timeout")
        ]
        assert [len(engine.calls(RESUME)) for engine in fleet.engines] == [1, 1]
        assert states(fleet) == ["running", "running"]


def test_a3_an_error_of_the_block_comes_out_unchanged_after_the_resume() -> None:
    with Fleet(sglang=2) as fleet:
        mine = RuntimeError("refit failed", 7)
        with pytest.raises(RuntimeError) as caught, paused(fleet.rl, ALL):
            raise mine
        assert caught.value is mine
        assert (mine.args, mine.__cause__, mine.__context__) == (("refit failed", 7), None, None)
        assert caught.traceback[-1].name.startswith("test_a3")
        assert states(fleet) == ["running", "running"]


def test_a4_an_engine_whose_pause_was_carried_out_unanswered_is_resumed() -> None:
    with Fleet(sglang=2) as fleet:
        fleet.engines[1].fail(PAUSE, faults.CloseBefore(effect=True), times=1)
        with pytest.raises(FanoutError, match="upstream_unreachable"), paused(fleet.rl, ALL):
            pytest.fail("the block ran")
        assert states(fleet) == ["running", "running"]


def test_a4_and_when_its_resume_fails_too_it_is_resumed_again() -> None:
    with Fleet(sglang=2) as fleet:
        lost = fleet.engines[1]
        lost.fail(PAUSE, faults.CloseBefore(effect=True), times=1)
        lost.fail(RESUME, faults.Reset(), times=1)
        with pytest.raises(FanoutError, match=PAUSE) as failed, paused(fleet.rl, ALL):
            pytest.fail("the block ran")
        assert failed.value.still_paused == [] and len(lost.calls(PAUSE)) == 1
        assert states(fleet) == ["running", "running"]


@pytest.mark.parametrize(("kind", "routes", "path"), [("sglang", SGLANG, "generate"), ("vllm", VLLM, "v1/completions")])
def test_a5_after_two_pauses_every_engine_generates(kind: str, routes: PauseRoutes, path: str) -> None:
    with fleet_of(kind, 2) as fleet:
        rl = fleet.rl
        for _ in range(2):
            with paused(rl, f"engine={kind}", routes=routes):
                pass
        for engine in fleet.engines:
            prompt = PROMPT if kind == "sglang" else {"model": "mock-model", "prompt": "hello", "max_tokens": 2}
            assert rl.call(fleet.worker_id(engine), path, prompt, timeout=5).status == 200
            assert [len(engine.calls(routes.pause)), len(engine.calls(routes.resume))] == [2, 2]


def test_a6_a_dropped_resume_is_sent_again_when_asked_for_and_a_refit_never() -> None:
    with Fleet(sglang=2) as fleet:
        flaky = fleet.engines[0]
        for path in (RESUME, REFIT):
            flaky.fail(path, faults.CloseBefore(), times=1)
        with paused(fleet.rl, ALL, resume_retries=2) as pause:
            with pytest.raises(FanoutError):
                fleet.rl.fanout(REFIT, STEP, selector=ALL)
        assert pause.still_paused == []
        assert states(fleet) == ["running", "running"]
        assert [len(flaky.calls(path)) for path in (RESUME, REFIT)] == [2, 1]


def test_a6_without_retries_the_engine_is_named() -> None:
    with Fleet(sglang=2) as fleet:
        flaky = fleet.engines[0]
        flaky.fail(RESUME, faults.CloseBefore(), times=1)
        with pytest.raises(FanoutError) as failed, paused(fleet.rl, ALL):
            pass
        assert failed.value.still_paused == [target(fleet, flaky)]


def test_a7_an_engine_that_came_back_with_its_first_weights_is_found_out() -> None:
    with Fleet(sglang=2) as fleet:
        lost = fleet.engines[1]
        with paused(fleet.rl, ALL) as pause:
            fleet.rl.fanout(REFIT, STEP, selector=ALL)
            lost.restart()
            fleet.register_anew(lost)
        assert pause.restarted == [target(fleet, lost)]
        with pytest.raises(WeightVersionError, match=f"{fleet.worker_id(lost)}.*has 'default'"):
            fleet.rl.expect_weight_version(ALL, "42")


def test_a8_engines_that_became_not_ready_while_paused_are_resumed() -> None:
    policy = HealthPolicy(interval=0.1, timeout=1.0, failure_threshold=1, success_threshold=1)
    with Fleet(
        sglang=2,
        engine={"health_generation": True, "health_timeout": 0.1},
        gateway={"health_check": True, "health": policy},
    ) as fleet:
        ready = f"{ALL},health=ready"
        with pytest.warns(UserWarning, match="health"), paused(fleet.rl, ready) as pause:
            wait_until(lambda: not fleet.rl.match(ready), "nobody is ready")
        assert len(pause.resumed) == 2 and pause.still_paused == []
        assert states(fleet) == ["running", "running"]


def test_a9_an_engine_that_joins_late_is_told_apart_and_has_not_the_refit() -> None:
    with Fleet(sglang=1) as fleet, MockEngine("sglang") as late:
        with paused(fleet.rl, ALL) as pause:
            fleet.rl.fanout(REFIT, STEP, selector=ALL)
            worker_id, tried = fleet.gateway.register(late.url)
            assert tried.wait(10)
        assert pause.joined == [Target(worker_id, late.url)]
        assert [entry.status for entry in late.calls(RESUME)] == [200]
        with pytest.raises(WeightVersionError, match=f"{worker_id}.*has 'default'"):
            fleet.rl.expect_weight_version(ALL, "42")


def test_a11_an_abort_reaches_the_living_although_one_is_dead() -> None:
    with Fleet(sglang=3) as fleet:
        fleet.engines[1].crash()
        result = fleet.rl.fanout("abort_request", {"abort_all": True}, selector=ALL, allow_partial=True)
        assert (result.succeeded, result.total) == (2, 3)
        assert [(one.url, one.error) for one in result.failed] == [(fleet.engines[1].url, "upstream_unreachable")]


def test_a12_an_engine_that_breaks_off_its_answer_has_failed() -> None:
    with Fleet(sglang=2) as fleet:
        broken = fleet.engines[1]
        broken.fail(REFIT, faults.CloseAfterHead(reset=True), times=1)
        result = fleet.rl.fanout(REFIT, STEP, selector=ALL, allow_partial=True)
        assert [one.error for one in result.failed] == ["upstream_unreachable"]
        assert list(result.results) == [fleet.worker_id(fleet.engines[0])]


@pytest.mark.parametrize(("quarantine", "state"), [(True, "paused"), (False, "running")])
def test_a13_an_engine_whose_refit_failed_stays_paused_on_request(quarantine: bool, state: str) -> None:
    with Fleet(sglang=2) as fleet:
        bad, rl = fleet.engines[1], fleet.rl
        bad.fail(REFIT, faults.Status(400, {"success": False, "message": "mixed tensors"}), times=1)
        with pytest.raises(FanoutError) as failed, paused(rl, ALL, quarantine=quarantine) as pause:
            rl.fanout(REFIT, STEP, selector=ALL)
        assert states(fleet) == ["running", state]
        named = [target(fleet, bad)] if quarantine else []
        assert pause.quarantined == failed.value.still_paused == named


def test_a14_a_failed_resume_hangs_on_the_error_of_the_block(caplog: pytest.LogCaptureFixture) -> None:
    with Fleet(sglang=2) as fleet:
        lost = fleet.engines[1]
        lost.fail(RESUME, faults.Status(500), times=1)
        with pytest.raises(RuntimeError, match="mine") as caught, paused(fleet.rl, ALL):
            raise RuntimeError("mine")
        assert isinstance(caught.value.__context__, FanoutError)
        shown = "".join(traceback.format_exception(caught.value))
        assert "mine" in shown and RESUME in shown and lost.url in shown
        notes = " ".join(getattr(caught.value, "__notes__", ["The resume failed as well, smg rl resume"]))
        assert "The resume failed as well" in notes and "smg rl resume" in notes
        logged = [(record.name, record.levelname, lost.url in record.getMessage()) for record in caplog.records]
        assert logged == [("smg.rl", "ERROR", True)]


def test_e7_the_end_of_an_inner_pause_resumes_also_what_the_outer_one_paused() -> None:
    with Fleet(sglang=2) as fleet:
        with paused(fleet.rl, ALL) as outer:
            with paused(fleet.rl, f"id={fleet.worker_id(fleet.engines[0])}"):
                pass
            assert states(fleet) == ["running", "paused"]
        assert len(outer.resumed) == 2
        fleet.check()


def test_e7_two_threads_that_pause_the_same_engines_leave_them_running() -> None:
    with Fleet(sglang=2) as fleet:
        both, results = threading.Barrier(2), list[int]()

        def step() -> None:
            with paused(fleet.rl, ALL) as pause:
                both.wait(10)
            results.append(len(pause.resumed))

        threads = [threading.Thread(target=step) for _ in range(2)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert results == [2, 2]
        fleet.check()


@pytest.mark.parametrize("error", [SystemExit(3), GeneratorExit(), asyncio.CancelledError()], ids=repr)
def test_e9_whatever_leaves_the_block_resumes_first(error: BaseException) -> None:
    with Fleet(sglang=1) as fleet:
        with pytest.raises(type(error)) as caught, paused(fleet.rl, ALL):
            raise error
        assert caught.value is error
        fleet.check()


def test_e9_a_task_that_is_cancelled_in_the_block_resumes_first() -> None:
    with Fleet(sglang=1) as fleet:

        async def job() -> None:
            async with aio.paused(aio.AsyncRL.of(fleet.rl), ALL):
                raise asyncio.CancelledError

        with pytest.raises(asyncio.CancelledError):
            asyncio.run(job())
        fleet.check()
