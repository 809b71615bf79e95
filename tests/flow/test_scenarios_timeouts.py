"""Public reports about timeouts, hangs and interrupts (rows B), each as a test named after its row."""

import asyncio
import contextlib
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Awaitable, Callable, Iterator
from typing import cast

import pytest

from reference_server import Fleet, faults
from smg.rl import RL, FanoutError, RlTimeoutError, aio, cli, paused

from ..support.calls import CALLS
from ..support.commands import ENVIRONMENT
from ..support.misbehaving_server import Server, answer, dripping

ALL = "engine=sglang"
PAUSE, RESUME, REFIT = "pause_generation", "continue_generation", "update_weights_from_disk"
STEP = {"model_path": "/ckpt/step-42", "weight_version": "42"}
SHORT, LONG = 0.4, 5.0

TRAINER = """
import sys
from smg.rl import RL, paused
with paused(RL(sys.argv[1], timeout=30), "engine=sglang"):
    print("in the block", flush=True)
    sys.stdin.read()
"""


@contextlib.contextmanager
def soon() -> Iterator[None]:
    """What would take a minute, or for ever, takes less than `LONG`."""
    started = time.monotonic()
    yield
    assert time.monotonic() - started < LONG


@contextlib.contextmanager
def meanwhile(work: Callable[[], object]) -> Iterator[None]:
    thread = threading.Thread(target=work)
    thread.start()
    try:
        yield
    finally:
        thread.join()


def test_b1_a_silent_engine_ends_the_call_with_the_clients_own_timeout() -> None:
    with Fleet(sglang=1) as fleet:
        fleet.engines[0].fail(REFIT, faults.Hang())
        with soon(), pytest.raises(RlTimeoutError, match=r"within 0\.4 s") as caught:
            RL(fleet.url, timeout=SHORT).fanout(REFIT, STEP, selector=ALL)
        assert f"POST {fleet.url}/v1/rl/engine/{REFIT}" in str(caught.value)
        assert RL(fleet.url).timeout == 600


def test_b2_a_refit_that_timed_out_is_not_sent_again_and_may_still_end_well() -> None:
    with Fleet(sglang=1, gateway={"rl_control_timeout_secs": 10}) as fleet:
        engine = fleet.engines[0]
        with engine.hold(REFIT) as held:
            with pytest.raises(RlTimeoutError, match="may still be running on the engines"):
                fleet.rl.fanout(REFIT, STEP, selector=ALL, timeout=SHORT)
            held.wait_hung_up()
        engine.wait_until(lambda: engine.weight_version == "42")
        assert len(engine.calls(REFIT)) == 1


def test_b2_the_timeout_of_a_call_may_be_longer_than_the_clients() -> None:
    with Fleet(sglang=1) as fleet:
        fleet.engines[0].fail(REFIT, faults.Delay(before=2 * SHORT), times=1)
        assert RL(fleet.url, timeout=SHORT).fanout(REFIT, STEP, selector=ALL, timeout=30).succeeded == 1


@pytest.mark.parametrize("name", CALLS)
def test_b3_every_method_ends_with_its_timeout(name: str) -> None:
    with Fleet(sglang=1) as fleet:
        fleet.slow(3600)
        with soon(), pytest.raises(RlTimeoutError):
            CALLS[name](fleet.rl, SHORT)


def test_b3_no_method_of_the_client_is_forgotten_here() -> None:
    methods = {name for name, value in vars(RL).items() if callable(value) and not name.startswith("_")}
    assert methods - {"carried", "close", "through"} == set(CALLS) - {"paused"}


def test_b3_the_end_of_a_pause_keeps_its_timeout_too() -> None:
    with Fleet(sglang=1) as fleet:
        with soon(), pytest.raises(RlTimeoutError, match=RESUME), paused(fleet.rl, ALL, timeout=SHORT):
            fleet.slow(3600)


@pytest.mark.parametrize("name", CALLS)
def test_b3_the_asyncio_twins_keep_it_too(name: str) -> None:
    async def job(rl: aio.AsyncRL) -> None:
        if name == "paused":
            async with aio.paused(rl, ALL, timeout=SHORT):
                pytest.fail("the block ran")
        await cast(Awaitable[object], CALLS[name](cast(RL, rl), SHORT))

    with Fleet(sglang=1) as fleet:
        fleet.slow(3600)
        with soon(), pytest.raises(RlTimeoutError):
            asyncio.run(job(aio.AsyncRL.of(fleet.rl)))


def test_b4_a_client_that_gives_up_before_the_gateway_says_so() -> None:
    with Fleet(sglang=2, gateway={"rl_control_timeout_secs": 5}) as fleet:
        fast, slow = fleet.engines
        with slow.hold(REFIT) as held:
            with pytest.raises(RlTimeoutError, match="longer than the gateway's own .--rl-control-timeout-secs"):
                fleet.rl.fanout(REFIT, STEP, selector=ALL, timeout=SHORT)
            held.wait_hung_up()
            assert fast.weight_version == "42"


def test_b4_its_pause_is_followed_by_a_resume_over_a_fresh_connection() -> None:
    with Fleet(sglang=2, gateway={"rl_control_timeout_secs": 5}) as fleet:
        fleet.engines[1].fail(PAUSE, faults.Hang(effect=True), times=1)
        with pytest.raises(RlTimeoutError), paused(fleet.rl, ALL, timeout=SHORT):
            pytest.fail("the block ran")
        assert [len(engine.calls(RESUME)) for engine in fleet.engines] == [1, 1]
        fleet.check()


def test_b5_an_engine_that_drips_its_answer_does_not_stretch_the_timeout() -> None:
    with Fleet(sglang=1) as fleet:
        fleet.engines[0].fail(REFIT, faults.Trickle(0.5), times=1)
        with soon(), pytest.raises(RlTimeoutError):
            fleet.rl.fanout(REFIT, STEP, selector=ALL, timeout=1)


def test_b5_nor_does_a_gateway_that_drips() -> None:
    with Server(dripping(answer(200, length=1_000), b"x")) as gateway:
        with soon(), pytest.raises(RlTimeoutError):
            RL(gateway.url, timeout=1).workers()


def test_b9_control_c_in_the_block_resumes_first(control_c: Callable[[], None]) -> None:
    with Fleet(sglang=2) as fleet:
        with pytest.raises(KeyboardInterrupt), paused(fleet.rl, ALL):
            os.kill(os.getpid(), signal.SIGINT)
            threading.Event().wait(LONG)
        fleet.check()


def test_b9_control_c_while_the_pause_is_in_flight_resumes_first(control_c: Callable[[], None]) -> None:
    with Fleet(sglang=2) as fleet:
        stuck = fleet.engines[1]
        stuck.fail(PAUSE, faults.Hang(effect=True), times=1)

        def press() -> None:
            stuck.wait_until(lambda: stuck.state == "paused")
            control_c()

        with meanwhile(press), pytest.raises(KeyboardInterrupt), paused(fleet.rl, ALL):
            pytest.fail("the block ran")
        fleet.check()


def test_b9_control_c_while_the_resume_is_in_flight_waits_for_its_end(control_c: Callable[[], None]) -> None:
    with Fleet(sglang=2) as fleet, fleet.engines[1].hold(RESUME) as held:

        def press() -> None:
            held.wait_entered()
            control_c()
            held.release()

        with meanwhile(press), pytest.raises(KeyboardInterrupt), paused(fleet.rl, ALL):
            pass
        fleet.check()


def test_b9_sigterm_in_the_block_resumes_first_for_those_who_ask() -> None:
    with Fleet(sglang=2) as fleet:
        with pytest.raises(SystemExit), paused(fleet.rl, ALL, sigterm=True):
            os.kill(os.getpid(), signal.SIGTERM)
            threading.Event().wait(LONG)
        fleet.check()


def killed_in_the_block(fleet: Fleet, number: int) -> None:
    command = [sys.executable, "-c", TRAINER, fleet.url]
    with subprocess.Popen(command, env=ENVIRONMENT, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as trainer:
        assert trainer.stdout is not None
        assert trainer.stdout.readline().strip() == b"in the block"
        trainer.send_signal(number)
        assert trainer.wait(10) == -number


def test_b9_without_that_sigterm_leaves_them_paused_until_a_resume_from_the_shell() -> None:
    with Fleet(sglang=2) as fleet:
        killed_in_the_block(fleet, signal.SIGTERM)
        assert {engine.state for engine in fleet.engines} == {"paused"}
        assert cli.main(["resume", "--smg", fleet.url, "--selector", ALL]) == cli.DONE
        fleet.check()


def test_b10_after_a_kill_one_command_tells_who_is_paused_and_one_repairs_it(
    capsys: pytest.CaptureFixture[str],
) -> None:
    with Fleet(sglang=2) as fleet:
        killed_in_the_block(fleet, signal.SIGKILL)
        asked = ["--smg", fleet.url, "--selector", ALL]
        assert cli.main(["fanout", "ready", "--method", "GET", *asked]) == cli.FAILED
        assert capsys.readouterr().out.count("HTTP 503") == 2
        assert cli.main(["resume", *asked]) == cli.DONE
        fleet.check()


def test_b11_a_deadline_around_the_block_resumes_first() -> None:
    async def job(rl: aio.AsyncRL) -> None:
        async with aio.paused(rl, ALL):
            await asyncio.sleep(3600)

    with Fleet(sglang=2) as fleet:
        with pytest.raises(asyncio.TimeoutError):
            asyncio.run(asyncio.wait_for(job(aio.AsyncRL.of(fleet.rl)), SHORT), debug=True)
        assert [len(engine.calls(RESUME)) for engine in fleet.engines] == [1, 1]
        fleet.check()


def test_b11_a_deadline_that_passes_during_the_pause_resumes_too() -> None:
    async def job(rl: aio.AsyncRL) -> None:
        async with aio.paused(rl, ALL):
            pytest.fail("the block ran")

    with Fleet(sglang=2) as fleet:
        fleet.engines[1].fail(PAUSE, faults.Hang(effect=True), times=1)
        with pytest.raises(asyncio.TimeoutError):
            asyncio.run(asyncio.wait_for(job(aio.AsyncRL.of(fleet.rl)), SHORT), debug=True)
        fleet.check()


def test_b11_a_cancelled_task_reports_no_error_of_its_own() -> None:
    async def job(rl: aio.AsyncRL) -> None:
        task = asyncio.current_task()
        assert task is not None
        async with aio.paused(rl, ALL):
            task.cancel()
            await asyncio.sleep(3600)

    with Fleet(sglang=1) as fleet:
        with pytest.raises(asyncio.CancelledError) as caught:
            asyncio.run(job(aio.AsyncRL.of(fleet.rl)), debug=True)
        assert not isinstance(caught.value.__context__, FanoutError)
        fleet.check()
