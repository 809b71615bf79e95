"""Public reports about refits, versions and modes, and what peers' code does (rows F, G), by row."""

import pytest

from reference_server import Fleet, ManualTicks, faults
from smg.rl import SGLANG, VLLM, FanoutError, PauseRoutes, RlConnectionError, RlTimeoutError, WeightVersionError, paused

from ..support.aside import Aside
from ..support.asking import ask
from ..support.fleets import fleet_of

ALL, VLLMS = "engine=sglang", "engine=vllm"
PAUSE, RESUME, REFIT = "pause_generation", "continue_generation", "update_weights_from_disk"
STEP = {"model_path": "/ckpt/step-42", "weight_version": "42"}
RELOAD = {"method": "reload_weights", "kwargs": {"weights_path": "/ckpt/step-42"}}
PROMPT = {"text": "hello", "sampling_params": {"max_new_tokens": 4}}
COMPLETION = {"model": "mock-model", "prompt": "hello", "max_tokens": 2}


@pytest.mark.parametrize(("more", "ending"), [({}, "abort"), ({"abort_all_requests": False}, "length")])
def test_f1_a_new_label_ends_what_is_in_flight_unless_told_otherwise(
    aside: Aside, more: dict[str, object], ending: str
) -> None:
    ticks = ManualTicks()
    with Fleet(sglang=1, engine={"ticks": ticks}) as fleet:
        engine = fleet.engines[0]
        asked = aside(fleet.rl.fanout, "generate", PROMPT, selector=ALL)
        engine.wait_until(lambda: engine.in_flight == 1)
        ticks.step(1)
        fleet.rl.fanout("update_weight_version", {"new_version": "42", **more}, selector=ALL)
        ticks.step(4)
        (answer,) = asked.result(10).results.values()
        assert answer.body["meta_info"]["finish_reason"]["type"] == ending
        assert engine.weight_version == "42"


@pytest.mark.parametrize(
    ("kind", "routes", "mode"),
    [("sglang", SGLANG, "keep"), ("sglang", SGLANG, "wait"), ("vllm", VLLM, "retract"), ("vllm", VLLM, "in_place")],
)
def test_f2_a_mode_that_an_engine_does_not_have_is_refused_and_not_translated(
    kind: str, routes: PauseRoutes, mode: str
) -> None:
    with fleet_of(kind, 1) as fleet:
        with pytest.raises(ValueError, match=f"cannot pause with mode '{mode}'"):
            with paused(fleet.rl, f"engine={kind}", mode=mode, routes=routes, check=True):
                pytest.fail("the block ran")
        with pytest.raises(FanoutError, match="HTTP 4"):
            with paused(fleet.rl, f"engine={kind}", mode=mode, routes=routes):
                pytest.fail("the block ran")
        assert fleet.engines[0].state == "running"


def test_f4_an_engine_that_dies_of_a_refit_in_its_sleep_is_unreachable() -> None:
    with Fleet(vllm=2) as fleet:
        asleep, rl = fleet.engines[0], fleet.rl
        assert rl.call(fleet.worker_id(asleep), "sleep", params={"level": 1}).ok
        result = rl.fanout("collective_rpc", RELOAD, selector=VLLMS, allow_partial=True, timeout=5)
        assert [(one.url, one.error) for one in result.failed] == [(asleep.url, "upstream_unreachable")]
        assert asleep.state == "dead" and result.succeeded == 1


def test_f5_an_engine_that_is_half_awake_is_still_paused() -> None:
    with Fleet(vllm=1) as fleet:
        engine, rl = fleet.engines[0], fleet.rl
        id = fleet.worker_id(engine)
        with paused(rl, VLLMS, mode="wait", routes=VLLM):
            rl.call(id, "sleep", params={"level": 1})
            rl.call(id, "wake_up", params={"tags": "weights"})
            assert rl.call(id, "is_paused", method="GET").body == {"is_paused": True}
            rl.call(id, "wake_up", params={"tags": "kv_cache"})
            # The end of the sleep is the end of the pause, whoever has asked for that.
            assert rl.call(id, "is_paused", method="GET").body == {"is_paused": False}
        assert rl.call(id, "v1/completions", COMPLETION).ok


def test_f5_lists_are_repeated_keys_and_booleans_are_lower_case() -> None:
    with Fleet(vllm=1) as fleet:
        engine, rl = fleet.engines[0], fleet.rl
        rl.fanout("sleep", selector=VLLMS, params={"level": 1})
        rl.fanout("wake_up", selector=VLLMS, params={"tags": ["weights", "kv_cache"]})
        rl.fanout("pause", selector=VLLMS, params={"clear_cache": True})
        rl.fanout("resume", selector=VLLMS)
        assert engine.calls("wake_up")[0].query == "tags=weights&tags=kv_cache"
        assert engine.calls("pause")[0].query == "clear_cache=true"


def test_f6_a_request_to_a_sleeping_engine_kills_it_behind_the_gateway_too() -> None:
    with Fleet(vllm=1) as fleet:
        engine = fleet.engines[0]
        fleet.rl.fanout("sleep", selector=VLLMS, params={"level": "1", "mode": "keep"})
        fleet.rl.fanout("resume", selector=VLLMS)  # it does not look whether the memory is there
        assert ask(fleet.url, "POST", "/v1/completions", COMPLETION).status >= 500
        assert engine.state == "dead"


def test_f7_a_refit_without_a_pause_waits_for_what_is_in_flight_no_longer_than_told(aside: Aside) -> None:
    ticks = ManualTicks()
    with Fleet(sglang=1, engine={"ticks": ticks}) as fleet:
        engine, rl = fleet.engines[0], fleet.rl
        asked = aside(rl.fanout, "generate", PROMPT, selector=ALL)
        engine.wait_until(lambda: engine.in_flight == 1)
        with pytest.raises(RlTimeoutError, match="may still be running"):
            rl.fanout(REFIT, STEP, selector=ALL, timeout=0.4)
        assert engine.weight_version == "default"
        ticks.step(4)
        assert asked.result(10).succeeded == 1
        engine.wait_until(lambda: engine.weight_version == "42")
        with paused(rl, ALL):
            assert rl.fanout(REFIT, STEP, selector=ALL, timeout=5).succeeded == 1


@pytest.mark.parametrize(("path", "status"), [("/ckpt/step-42", 200), ("/nowhere", 400)])
def test_f8_the_ranks_of_an_engine_answer_as_one(path: str, status: int) -> None:
    with Fleet(sglang=1, engine={"dp_size": 2, "checkpoints": ["/ckpt/step-42"]}) as fleet:
        answer = fleet.rl.call(fleet.worker_id(fleet.engines[0]), REFIT, {**STEP, "model_path": path})
        assert isinstance(answer.body, dict)
        assert (answer.status, answer.ok, answer.body["success"]) == (status, status == 200, status == 200)
        assert str(answer.body["message"]).count(" | ") == 1
        assert answer.body["num_paused_requests"] == [0, 0]


def test_f9_a_200_of_an_engine_that_loaded_nothing_is_found_out() -> None:
    with Fleet(sglang=2) as fleet:
        liar = fleet.engines[1]
        liar.fail(REFIT, faults.Lie(), times=1)
        with paused(fleet.rl, ALL):
            assert fleet.rl.fanout(REFIT, STEP, selector=ALL).succeeded == 2
        with pytest.raises(WeightVersionError, match=f"{fleet.worker_id(liar)}.*has 'default'"):
            fleet.rl.expect_weight_version(ALL, "42")


def test_f11_a_503_of_a_paused_engine_is_passed_on() -> None:
    with Fleet(vllm=1) as fleet:
        with paused(fleet.rl, VLLMS, mode="wait", routes=VLLM):
            assert ask(fleet.url, "POST", "/v1/completions", COMPLETION).status == 503
        assert ask(fleet.url, "POST", "/v1/completions", COMPLETION).status == 200


def test_f11_and_opens_no_breaker() -> None:
    with Fleet(vllm=1) as fleet:
        with paused(fleet.rl, VLLMS, mode="wait", routes=VLLM):
            for _ in range(12):
                assert ask(fleet.url, "POST", "/v1/completions", COMPLETION).status == 503
        assert ask(fleet.url, "POST", "/v1/completions", COMPLETION).status == 200


def test_f11_an_older_engine_keeps_it_and_serves_it_with_the_weights_after(aside: Aside) -> None:
    with Fleet(vllm=1, engine={"version": "0.32.0"}) as fleet:
        engine = fleet.engines[0]
        with paused(fleet.rl, VLLMS, mode="wait", routes=VLLM):
            asked = aside(ask, fleet.url, "POST", "/v1/completions", COMPLETION)
            engine.wait_until(lambda: engine.parked == 1)
        assert asked.result(10).status == 200


def test_f12_an_engine_that_died_unannounced_is_told_each_time() -> None:
    with Fleet(sglang=2) as fleet:
        fleet.engines[1].crash()
        for _ in range(3):
            result = fleet.rl.fanout("flush_cache", {}, selector=ALL, allow_partial=True, timeout=5)
            assert (result.succeeded, [one.error for one in result.failed]) == (1, ["upstream_unreachable"])


def test_f13_a_refit_that_goes_on_after_the_resume_shows_in_the_log(aside: Aside) -> None:
    with Fleet(sglang=1) as fleet:
        engine = fleet.engines[0]
        with engine.hold(REFIT) as held:
            with paused(fleet.rl, ALL):
                refit = aside(fleet.rl.fanout, REFIT, STEP, selector=ALL)
                held.wait_entered()
            log = [(entry.path, entry.status) for entry in engine.log if entry.path[1:] in (PAUSE, REFIT, RESUME)]
            assert log == [("/" + PAUSE, 200), ("/" + REFIT, None), ("/" + RESUME, 200)]
        assert refit.result(10).succeeded == 1


def test_f14_a_route_that_an_address_does_not_have_is_a_clear_404() -> None:
    with Fleet(vllm=1) as fleet:
        answer = fleet.rl.call(fleet.worker_id(fleet.engines[0]), PAUSE, {})
        assert (answer.status, answer.url, answer.ok) == (404, fleet.engines[0].url, False)


def test_g1_a_version_check_that_fails_while_paused_leaves_nobody_paused() -> None:
    with Fleet(sglang=2) as fleet:
        rl = fleet.rl
        fleet.engines[1].fail(REFIT, faults.Lie(), times=1)
        with pytest.raises(WeightVersionError, match="expected '42'"), paused(rl, ALL):
            rl.fanout("flush_cache", {}, selector=ALL)
            rl.fanout(REFIT, STEP, selector=ALL)
            rl.expect_weight_version(ALL, "42")
        fleet.check()


def test_g2_one_refusal_is_enough_to_raise_unless_that_is_asked_for() -> None:
    with Fleet(sglang=3) as fleet:
        fleet.engines[1].fail(PAUSE, faults.Status(500), times=2)
        with pytest.raises(FanoutError, match="1 of 3 workers failed"), paused(fleet.rl, ALL):
            pytest.fail("the block ran")
        assert fleet.rl.fanout(PAUSE, {}, selector=ALL, allow_partial=True).succeeded == 2
        fleet.rl.fanout(RESUME, {}, selector=ALL)
        fleet.check()


def test_g3_the_version_is_what_engines_say_and_not_what_they_were_sent() -> None:
    with Fleet(sglang=1) as fleet:
        fleet.engines[0].fail(REFIT, faults.Status(500), times=1)
        with pytest.raises(FanoutError):
            fleet.rl.fanout(REFIT, STEP, selector=ALL)
        assert list(fleet.rl.weight_versions(ALL).values()) == ["default"]


def test_g4_what_is_asked_again_is_spaced_and_bounded_and_says_why() -> None:
    with Fleet(sglang=1) as fleet:
        engine = fleet.engines[0]
        engine.fail(RESUME, faults.Status(400, "not now"))
        with pytest.raises(FanoutError, match="not now"), paused(fleet.rl, ALL, resume_retries=60, timeout=2):
            pass
        # After 0.5 s, and after 1 s more; the next would come after the timeout.
        assert 2 <= len(engine.calls(RESUME)) <= 3


@pytest.mark.parametrize("name", ["http_proxy", "HTTP_PROXY", "all_proxy", "ALL_PROXY"])
def test_g6_a_proxy_of_the_environment_is_not_for_control_calls(monkeypatch: pytest.MonkeyPatch, name: str) -> None:
    monkeypatch.setenv(name, "http://127.0.0.1:9")
    with Fleet(sglang=1) as fleet:
        assert fleet.rl.fanout("flush_cache", {}, selector=ALL).succeeded == 1


TENSORS = "s3cret" * 1_800_000
TENSOR_REFIT = "update_weights_from_tensor"


def test_g7_an_error_does_not_repeat_ten_megabytes_that_were_sent() -> None:
    with Fleet(sglang=1) as fleet:
        fleet.engines[0].fail(TENSOR_REFIT, faults.Status(400, {"message": f"cannot load\n{TENSORS[:1000]}"}), times=1)
        with pytest.raises(FanoutError, match="cannot load") as failed:
            fleet.rl.fanout(TENSOR_REFIT, {"tensors": TENSORS}, selector=ALL)
        fleet.gateway.stop()
        with pytest.raises(RlConnectionError) as lost:
            fleet.rl.fanout(TENSOR_REFIT, {"tensors": TENSORS}, selector=ALL)
    for error in (failed.value, lost.value):
        assert len(str(error)) < 2000 and "s3cret" not in str(error)


def test_g7_not_even_when_the_engine_repeats_all_of_them() -> None:
    with Fleet(sglang=1) as fleet:
        fleet.engines[0].fail(TENSOR_REFIT, faults.Status(400, {"message": f"cannot load\n{TENSORS}"}), times=1)
        with pytest.raises(FanoutError) as failed:
            fleet.rl.fanout(TENSOR_REFIT, {"tensors": TENSORS}, selector=ALL)
        assert len(str(failed.value)) < 2000
        assert "s3cret" not in str(failed.value)


def test_g8_a_pause_that_fails_is_within_what_resumes() -> None:
    with Fleet(sglang=3) as fleet:
        fleet.engines[2].fail(PAUSE, faults.Reset(effect=True), times=1)
        with pytest.raises(FanoutError), paused(fleet.rl, ALL):
            pytest.fail("the block ran")
        fleet.check()


def test_g10_a_resume_that_waits_behind_a_slow_pause_is_sent_until_it_works() -> None:
    with Fleet(sglang=1, gateway={"rl_control_timeout_secs": 0.5}) as fleet:
        engine = fleet.engines[0]
        engine.fail(PAUSE, faults.Delay(before=0.8), times=1)  # it waits for a request to die, and pauses then
        engine.fail(RESUME, faults.Hang(), times=1)  # the lock that the pause holds
        with pytest.raises(FanoutError, match=f"{PAUSE}.*upstream_timeout"):
            with paused(fleet.rl, ALL, timeout=10, resume_retries=3):
                pytest.fail("the block ran")
        assert engine.state == "running" and engine.calls(PAUSE)[0].hung_up
        assert [entry.status for entry in engine.calls(RESUME)] == [0, 200]


def test_g12_engines_whose_model_has_another_name_after_the_refit_are_resumed() -> None:
    with Fleet(sglang=2) as fleet:
        with paused(fleet.rl, "model=mock-model") as pause:
            fleet.rl.fanout(REFIT, STEP, selector=ALL)
            fleet.register_anew()
            assert {worker.model_id for worker in fleet.rl.workers()} == {"/ckpt/step-42"}
        assert len(pause.missed) == len(pause.restarted) == 2
        fleet.check()
