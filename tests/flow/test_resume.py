"""`paused` over a whole fleet that changes while it is paused: everybody runs again, or is named."""

import threading
import warnings
from collections.abc import Callable

import pytest

from reference_server import Fleet, MockEngine
from smg.rl import RL, FanoutError, Pause, RlError, Target, paused
from smg.rl.quarantine import watchers

from ..support.fleets import states

ALL = "engine=sglang"
STEP = {"model_path": "/ckpt/step-42", "weight_version": "42"}


def requests_of(fleet: Fleet) -> list[str]:
    """What the gateway was asked of the control plane, operations only."""
    return [entry.path.rpartition("/")[2] for entry in fleet.gateway.log if entry.path.startswith("/v1/rl")]


def targets(fleet: Fleet, *engines: MockEngine) -> list[Target]:
    return [Target(fleet.worker_id(engine), engine.url) for engine in engines]


def test_with_nothing_missed_the_wire_shows_the_contract_s_two_requests() -> None:
    with Fleet(sglang=3) as fleet:
        with paused(RL(fleet.url), ALL) as pause:
            assert pause.paused == targets(fleet, *fleet.engines)
            assert states(fleet) == ["paused"] * 3
        assert requests_of(fleet) == ["pause_generation", "continue_generation"]
        assert pause.resumed == pause.paused
        assert not any([pause.missed, pause.joined, pause.left, pause.restarted, pause.still_paused, pause.uncertain])
        fleet.check()


def test_a_worker_that_left_the_selector_is_resumed_by_its_id() -> None:
    with Fleet(sglang=2, labels={"role": "policy"}) as fleet:
        with paused(fleet.rl, "role=policy") as pause:
            gone = fleet.worker_id(fleet.engines[1])
            fleet.gateway.registry.change(gone, lambda worker: type(worker)(**{**vars(worker), "labels": {}}))
        assert states(fleet) == ["running", "running"]
        assert pause.missed == [Target(gone, fleet.engines[1].url)]
        assert pause.resumed == pause.paused


def test_a_selector_that_matches_nobody_any_more_is_no_error_when_all_run_again() -> None:
    with Fleet(sglang=2) as fleet:
        with paused(
            fleet.rl, f"id in ({fleet.worker_id(fleet.engines[0])},{fleet.worker_id(fleet.engines[1])})"
        ) as pause:
            fleet.register_anew()
        assert states(fleet) == ["running", "running"]
        assert [target.url for target in pause.missed] == [engine.url for engine in fleet.engines]
        assert [target.url for target in pause.restarted] == [engine.url for engine in fleet.engines]


def test_a_worker_with_a_new_id_is_found_again_by_its_url() -> None:
    with Fleet(sglang=2) as fleet:
        with paused(fleet.rl, ALL) as pause:
            fleet.register_anew(fleet.engines[0])
        assert states(fleet) == ["running", "running"]
        assert pause.restarted == targets(fleet, fleet.engines[0])
        assert pause.missed == []
        assert pause.still_paused == []


def test_a_health_term_is_warned_of_and_its_victims_are_resumed_by_id() -> None:
    with Fleet(sglang=2) as fleet:
        with pytest.warns(UserWarning, match="health"), paused(fleet.rl, f"{ALL},health=ready") as pause:
            for engine in fleet.engines:
                fleet.gateway.registry.set_health(fleet.worker_id(engine), "not_ready")
        assert states(fleet) == ["running", "running"]
        assert len(pause.missed) == 2


def test_a_worker_that_joins_late_is_resumed_harmlessly_and_reported() -> None:
    with Fleet(sglang=2) as fleet, MockEngine("sglang") as late:
        with paused(fleet.rl, ALL) as pause:
            _, tried = fleet.gateway.register(late.url)
            assert tried.wait(30)
        assert [target.url for target in pause.joined] == [late.url]
        assert late.state == "running"


def test_a_worker_the_gateway_forgot_is_named_with_what_frees_it() -> None:
    with Fleet(sglang=2) as fleet:
        lost = fleet.engines[1]
        with pytest.raises(RlError, match="still_paused") as stuck:
            with paused(fleet.rl, ALL) as pause:
                target = targets(fleet, lost)
                fleet.drop(lost)
        assert (stuck.value.code, stuck.value.still_paused) == ("still_paused", target)
        assert pause.left == pause.still_paused == target
        assert states(fleet) == ["running", "paused"]
        assert f"smg rl resume --engine-url {lost.url}" in str(stuck.value.remedy)
        fleet.register_anew(lost)
        fleet.rl.fanout("continue_generation", {}, selector=ALL)


def test_an_engine_that_died_is_named_and_no_command_resumes_it() -> None:
    with Fleet(sglang=2) as fleet:
        dead = fleet.engines[0]
        worker_id = fleet.worker_id(dead)
        with pytest.raises(FanoutError) as stuck:
            with paused(fleet.rl, ALL):
                dead.stop()
        assert stuck.value.still_paused == [Target(worker_id, dead.url)]
        assert f"not reachable: {worker_id}" in str(stuck.value.remedy)
        assert "smg rl resume" not in str(stuck.value.remedy)
        assert fleet.engines[1].state == "running"


def test_the_block_s_error_comes_first_and_carries_who_is_stuck() -> None:
    with Fleet(sglang=2) as fleet:
        with pytest.raises(KeyError) as caught:
            with paused(fleet.rl, ALL):
                fleet.engines[0].stop()
                raise KeyError("mine")
        assert isinstance(caught.value.__context__, FanoutError)
        assert caught.value.still_paused == [  # type: ignore[attr-defined]  # set by paused
            Target(fleet.worker_id(fleet.engines[0]), fleet.engines[0].url)
        ]


def test_a_pause_that_fails_on_one_runs_no_block_and_leaves_the_others_running() -> None:
    with Fleet(sglang=3) as fleet:
        fleet.engines[1].stop()
        with pytest.raises(FanoutError) as failed:
            with paused(fleet.rl, ALL):
                pytest.fail("the block ran")
        assert [failure.url for failure in failed.value.result.failed] == [fleet.engines[1].url]
        assert [e.state for e in (fleet.engines[0], fleet.engines[2])] == ["running", "running"]
        assert [len(fleet.engines[n].calls("continue_generation")) for n in (0, 2)] == [1, 1]


def test_a_failed_resume_is_retried_only_when_asked_and_a_refit_never() -> None:
    def restart_later(engine: MockEngine, fleet: Fleet) -> threading.Thread:
        def wait_and_start() -> None:
            while requests_of(fleet).count("continue_generation") < 1:
                pass
            engine.start()

        thread = threading.Thread(target=wait_and_start)
        thread.start()
        return thread

    with Fleet(sglang=2) as fleet:
        back = fleet.engines[0]
        with paused(fleet.rl, ALL, resume_retries=3) as pause:
            fleet.rl.fanout("update_weights_from_disk", STEP, selector=ALL)
            back.stop()
            thread = restart_later(back, fleet)
        thread.join()
        assert pause.still_paused == []
        assert states(fleet) == ["running", "running"]
        assert [len(engine.calls("update_weights_from_disk")) for engine in fleet.engines] == [1, 1]


def test_quarantine_resumes_only_those_whose_refit_succeeded() -> None:
    with Fleet(sglang=2) as fleet, MockEngine("sglang", checkpoints=["/other"]) as bad:
        worker_id, tried = fleet.gateway.register(bad.url)
        assert tried.wait(30)
        rl = fleet.rl
        with pytest.raises(FanoutError) as failed:
            with paused(rl, ALL, quarantine=True) as pause:
                rl.fanout("update_weights_from_disk", STEP, selector=ALL)
        assert [*states(fleet), bad.state] == ["running", "running", "paused"]
        assert pause.quarantined == failed.value.still_paused == [Target(worker_id, bad.url)]
        assert watchers() == []
        rl.fanout("continue_generation", {}, selector=f"id={worker_id}")


def test_quarantine_resumes_everybody_when_nobody_was_refitted() -> None:
    with Fleet(sglang=2) as fleet:
        with pytest.raises(ZeroDivisionError), paused(fleet.rl, ALL, quarantine=True):
            raise ZeroDivisionError
        assert states(fleet) == ["running", "running"]


def test_a_mode_that_an_engine_does_not_list_is_refused_before_anything_is_paused() -> None:
    with Fleet(sglang=1) as fleet:
        with pytest.raises(ValueError, match="cannot pause with mode 'keep', only .*'retract'"):
            with paused(fleet.rl, ALL, mode="keep", check=True):
                pytest.fail("the block ran")
        assert fleet.engines[0].calls("pause_generation") == ()
        with paused(fleet.rl, ALL, mode="retract", check=True):
            assert fleet.engines[0].pause_mode == "retract"


def test_as_a_decorator_every_call_is_a_pause_of_its_own() -> None:
    with Fleet(sglang=1) as fleet:

        @paused(RL(fleet.url), ALL)
        def step() -> str:
            return fleet.engines[0].state

        assert [step(), step()] == ["paused", "paused"]
        assert requests_of(fleet) == ["pause_generation", "continue_generation"] * 2
        fleet.check()


def test_pauses_may_be_nested_and_the_inner_one_s_end_resumes() -> None:
    with Fleet(sglang=1) as fleet:
        with paused(fleet.rl, ALL):
            with paused(fleet.rl, ALL):
                pass
            assert fleet.engines[0].state == "running"
        fleet.check()


def test_many_threads_pause_and_resume_at_the_same_time() -> None:
    with Fleet(sglang=4) as fleet:
        errors: list[BaseException] = []

        def work(engine: MockEngine, rl: RL) -> None:
            try:
                for _ in range(5):
                    with paused(rl, f"id={fleet.worker_id(engine)}"):
                        assert engine.state == "paused"
            except BaseException as error:
                errors.append(error)

        threads = [threading.Thread(target=work, args=(engine, fleet.rl)) for engine in fleet.engines]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert errors == []
        fleet.check()


@pytest.mark.parametrize("selector", [ALL, "engine=vllm", 'role="a b"'])
def test_match_tells_who_would_be_hit_and_hits_nobody(selector: str) -> None:
    with Fleet(sglang=2) as fleet:
        found = fleet.rl.match(selector)
        assert len(found) == (2 if selector == ALL else 0)
        assert all(len(engine.calls("pause_generation")) == 0 for engine in fleet.engines)


def test_a_selector_without_health_is_not_warned_of() -> None:
    with warnings.catch_warnings(), Fleet(sglang=1) as fleet:
        warnings.simplefilter("error")
        for selector in (ALL, "engine==x", "rehealth=x"):
            paused(fleet.rl, selector)


def test_the_failed_of_a_fan_out_select_a_second_call() -> None:
    with Fleet(sglang=2) as fleet:
        fleet.engines[1].stop()
        result = fleet.rl.fanout("flush_cache", selector=ALL, allow_partial=True)
        assert str(result.failed_selector()) == f"id in ({fleet.worker_id(fleet.engines[1])})"
        with pytest.raises(ValueError, match="nobody failed"):
            Pause().failed_selector()


Check = Callable[[RL], object]


def test_weight_versions_are_the_engines_own_word() -> None:
    with Fleet(sglang=2) as fleet:
        rl = fleet.rl
        ids = [fleet.worker_id(engine) for engine in fleet.engines]
        assert rl.weight_versions(ALL) == dict.fromkeys(ids, "default")
        rl.call(ids[0], "update_weights_from_disk", STEP)
        assert rl.weight_versions(ALL) == {ids[0]: "42", ids[1]: "default"}
        with pytest.raises(RlError, match=f"expected '42': {ids[1]} .* has 'default'") as differs:
            rl.expect_weight_version(ALL, "42")
        assert differs.value.code == "weight_version_differs"
        rl.expect_weight_version(f"id={ids[0]}", "42")
        with pytest.raises(RlError, match="no engine matches"):
            rl.expect_weight_version("engine=none", "42")
        fleet.engines[1].stop()
        with pytest.raises(FanoutError, match="did not tell their weight version"):
            rl.weight_versions(ALL)
