"""What `fleet.check` does not let pass at the end of a test, and how a test says that it is meant."""

import pytest

from reference_server import Fleet, MockEngine, faults

from ..support.asking import ask
from ..support.sglang_calls import post, refit


def problems(fleet: Fleet) -> list[str]:
    with pytest.raises(AssertionError) as caught:
        fleet.check()
    return str(caught.value).splitlines()


def test_an_engine_that_died_unasked() -> None:
    with Fleet(sglang=2) as fleet:
        dead, _ = fleet.engines
        with pytest.raises(ConnectionError):
            post(dead, "/resume_memory_occupation")
        (problem,) = problems(fleet)
        assert problem.startswith(f"died unasked: {dead.url}, memory resumed that was not released; ")
        dead.crash()
        fleet.check()


def test_a_death_is_known_after_the_stop_too() -> None:
    with Fleet(sglang=1) as fleet:
        with pytest.raises(ConnectionError):
            post(fleet.engines[0], "/resume_memory_occupation")
    assert len(problems(fleet)) == 1


def test_one_that_was_started_again_is_forgiven() -> None:
    with Fleet(sglang=1) as fleet:
        with pytest.raises(ConnectionError):
            post(fleet.engines[0], "/resume_memory_occupation")
        fleet.engines[0].restart()
        fleet.check()


def test_a_crash_that_was_asked_for() -> None:
    with Fleet(sglang=2) as fleet:
        one, other = fleet.engines
        one.crash()
        other.fail("flush_cache", faults.Crash(), times=1)
        with pytest.raises(ConnectionError):
            post(other, "/flush_cache")
        other.wait_until(lambda: other.state == "dead")
        fleet.check()


def test_an_engine_asleep() -> None:
    with Fleet(vllm=1, sglang=1) as fleet:
        vllm, sglang = fleet.engines
        post(vllm, "/sleep")
        post(sglang, "/release_memory_occupation", {"tags": ["weights"]})
        assert [line.partition(";")[0] for line in problems(fleet)] == [
            f"paused and never resumed: {vllm.url}",
            f"asleep and never woken up: {vllm.url}, kv_cache, weights",
            f"asleep and never woken up: {sglang.url}, weights",
        ]
        post(vllm, "/wake_up")
        post(sglang, "/resume_memory_occupation", {"tags": ["weights"]})
        fleet.check()


def test_a_refit_that_came_twice() -> None:
    with Fleet(sglang=1) as fleet:
        engine = fleet.engines[0]
        refit(engine, "step-1", "1")
        refit(engine, "step-2", "2")
        fleet.check()
        engine.fail("update_weights_from_disk", faults.CloseBefore(), times=1)
        with pytest.raises(ConnectionError):
            refit(engine, "step-2", "2")
        (problem,) = problems(fleet)
        assert problem.startswith(f"the same refit twice without a resume between: {engine.url}, POST /update_weights")
        fleet.check(refits_repeated=True)
        fleet.check()
        post(engine, "/continue_generation")
        refit(engine, "step-2", "2")
        fleet.check()
        refit(engine, "step-2", "2")
        assert len(problems(fleet)) == 1


def test_a_new_engine_may_be_refitted_again() -> None:
    with Fleet(sglang=1) as fleet:
        refit(fleet.engines[0], "step-2", "2")
        fleet.engines[0].restart()
        refit(fleet.engines[0], "step-2", "2")
        fleet.check()


def test_a_fault_that_nobody_met() -> None:
    with Fleet(sglang=1) as fleet:
        engine = fleet.engines[0]
        engine.fail("flush_cache", faults.Status(500), times=2)
        engine.fail("abort_request", faults.Reset())
        engine.fail("generate", faults.Reset(), probability=0.5)
        assert [line.partition(";")[0] for line in problems(fleet)] == [
            f"planned and never used: {engine.url}, Status for flush_cache",
            f"planned and never used: {engine.url}, Reset for abort_request",
        ]
        assert ask(engine, "POST", "/flush_cache").status == 500
        assert len(problems(fleet)) == 1
        engine.clear_faults()
        fleet.check()


def test_an_engine_that_was_never_started_left_nothing() -> None:
    assert MockEngine("sglang").leftovers() == []
