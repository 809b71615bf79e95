"""Public reports about Python itself (rows E but for E7, E9), each as a test named after its row."""

import asyncio
import copy
import multiprocessing
import pickle
import subprocess
import sys
import urllib.error
from collections.abc import Callable
from concurrent.futures import ProcessPoolExecutor, ThreadPoolExecutor
from email.message import Message
from pathlib import Path

import pytest

from reference_server import Fleet, faults
from smg.rl import (
    RL,
    FanoutError,
    FanoutFailure,
    FanoutResult,
    RlConnectionError,
    RlError,
    RlTimeoutError,
    Target,
    WeightVersionError,
    aio,
)

from ..support.aside import Aside
from ..support.commands import ENVIRONMENT

ALL = "engine=sglang"
RESUME, REFIT = "continue_generation", "update_weights_from_disk"
STEP = {"model_path": "/ckpt/step-42", "weight_version": "42"}
FAILED = FanoutResult({}, [FanoutFailure("w1", "http://e1:1", 500, "upstream_error", "HTTP 500")], 2, 1)

ERRORS: list[Exception] = [
    RlError("worker_not_found: no such worker", 404, "worker_not_found", {"error": "worker_not_found", "id": "w"}),
    RlConnectionError("the connection broke", 0, "bad_response"),
    RlTimeoutError("no complete answer within 1 s", 0, "client_timeout"),
    FanoutError("1 of 2 workers failed", 207, FAILED),
    WeightVersionError("weight_version_differs", {"w0": "42", "w1": None}),
]


def raise_again(error: Exception) -> None:
    """What a worker process does."""
    raise error


def refit(rl: RL) -> int:
    """What an actor does."""
    return rl.fanout(REFIT, STEP, selector=ALL).succeeded


def spawned() -> ProcessPoolExecutor:
    return ProcessPoolExecutor(1, mp_context=multiprocessing.get_context("spawn"))


def assert_equal(copied: BaseException, error: Exception) -> None:
    assert type(copied) is type(error)
    assert (str(copied), copied.args) == (str(error), error.args)
    assert vars(copied).items() >= {k: v for k, v in vars(error).items() if k != "__notes__"}.items()


@pytest.mark.parametrize("error", ERRORS, ids=lambda error: type(error).__name__)
def test_e1_every_exception_survives_pickle_and_copy(error: RlError) -> None:
    error = copy.copy(error)
    error.still_paused = [Target("w1", "http://e1:1")]
    error.__cause__ = urllib.error.HTTPError("http://h:1", 503, "no", Message(), None)
    for made in (pickle.loads(pickle.dumps(error)), copy.copy(error), copy.deepcopy(error)):
        assert_equal(made, error)


def test_e1_it_comes_back_whole_from_another_process() -> None:
    with spawned() as pool:
        for error in ERRORS:
            returned = pool.submit(raise_again, error).exception(30)
            assert returned is not None
            assert_equal(returned, error)
    assert pickle.loads(pickle.dumps(ERRORS[3])).result == FAILED


def test_e2_a_used_client_works_as_a_copy_and_in_a_spawned_process() -> None:
    with Fleet(sglang=2, gateway={"api_key": "s3cret"}) as fleet, spawned() as pool:
        rl = fleet.rl
        assert refit(rl) == 2
        for other in (copy.copy(rl), copy.deepcopy(rl), pickle.loads(pickle.dumps(rl))):
            assert (refit(other), repr(other)) == (2, repr(rl))
        assert pool.submit(refit, rl).result(30) == 2
        assert refit(rl) == 2


FORKED = """
import multiprocessing, sys
from smg.rl import RL, paused
rl = RL(sys.argv[1])
def work():
    with paused(rl, "engine=sglang"):
        pass
work()
child = multiprocessing.get_context("fork").Process(target=work)
child.start()
child.join(20)
work()
sys.exit(child.exitcode)
"""

AT_TOP_LEVEL = """
import sys
from smg.rl import RL, paused
with paused(RL(sys.argv[1]), "engine=sglang"):
    raise LookupError("mine")
"""

AT_EXIT = """
import atexit, sys
from smg.rl import RL, paused
pause = paused(RL(sys.argv[1]), "engine=sglang")
pause.__enter__()
atexit.register(pause.__exit__, None, None, None)
"""


def python(script: str, fleet: Fleet) -> "subprocess.CompletedProcess[str]":
    command = [sys.executable, "-c", script, fleet.url]
    return subprocess.run(command, env=ENVIRONMENT, capture_output=True, text=True, timeout=30)


@pytest.mark.skipif("fork" not in multiprocessing.get_all_start_methods(), reason="this system cannot fork")
def test_e2_and_in_a_forked_one() -> None:
    with Fleet(sglang=1) as fleet:
        done = python(FORKED, fleet)
        assert (done.returncode, done.stderr) == (0, "")
        assert len(fleet.engines[0].calls(RESUME)) == 3
        fleet.check()


def test_e4_threads_that_share_a_client_do_not_wait_for_an_engine_that_hangs(aside: Aside) -> None:
    with Fleet(sglang=4) as fleet:
        stuck, *others = fleet.engines
        rl = fleet.rl
        with stuck.hold(REFIT, times=2) as held:
            waiting = [aside(rl.call, fleet.worker_id(stuck), REFIT, STEP) for _ in range(2)]
            held.wait_entered(count=2)
            going = [aside(rl.call, fleet.worker_id(engine), REFIT, STEP) for engine in others for _ in range(2)]
            assert all(one.result(10).ok for one in going)
            assert not any(one.done() for one in waiting)
        assert all(one.result(10).ok for one in waiting)


def test_e4_hung_calls_of_asyncio_keep_no_resume_waiting() -> None:
    async def job(rl: aio.AsyncRL, stuck: Callable[[], bool]) -> None:
        loop = asyncio.get_running_loop()
        with ThreadPoolExecutor(2) as pool:
            loop.set_default_executor(pool)
            async with aio.paused(rl, ALL):
                hung = [asyncio.ensure_future(rl.fanout(REFIT, STEP, selector=ALL)) for _ in range(5)]
                while not stuck():
                    await asyncio.sleep(0.01)
                assert len(await rl.workers()) == 1
            assert not any(task.done() for task in hung)
            for task in hung:
                task.cancel()
            await asyncio.gather(*hung, return_exceptions=True)

    with Fleet(sglang=1) as fleet:
        engine = fleet.engines[0]
        engine.fail(REFIT, faults.Hang())
        asyncio.run(job(aio.AsyncRL.of(fleet.rl), lambda: len(engine.calls(REFIT)) == 5))
        fleet.check(refits_repeated=True)


def test_e5_a_refit_that_a_decorator_sent_twice_can_be_seen() -> None:
    def retried(work: Callable[[], object]) -> object:
        try:
            return work()
        except Exception:
            return work()

    with Fleet(sglang=1) as fleet:
        engine = fleet.engines[0]
        engine.fail(REFIT, faults.CloseBefore(effect=True), times=1)
        rl = RL(fleet.url, headers={"x-request-id": "refit-42"})
        retried(lambda: rl.fanout(REFIT, STEP, selector=ALL))
        assert [dict(entry.headers)["x-request-id"] for entry in engine.calls(REFIT)] == ["refit-42"] * 2
    page = Path(__file__).parents[2] / "docs" / "operations.md"
    assert "A retry around a refit" in page.read_text(encoding="utf-8")


@pytest.mark.parametrize(("script", "last"), [(AT_TOP_LEVEL, ["LookupError: mine"]), (AT_EXIT, [])])
def test_e6_an_interpreter_that_ends_in_the_block_resumes_first(script: str, last: list[str]) -> None:
    with Fleet(sglang=1) as fleet:
        done = python(script, fleet)
        assert done.stderr.splitlines()[-1:] == last
        assert "cannot schedule" not in done.stderr
        assert len(fleet.engines[0].calls(RESUME)) == 1
        fleet.check()
