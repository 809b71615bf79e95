"""The asyncio client: cancellation, shielding, many loops, many calls."""

import asyncio
import gc
import threading
from collections.abc import Coroutine, Iterator
from typing import Any

import pytest

from reference_server import Fleet, Gateway
from smg.rl import RL, FanoutError, RlError, WeightVersionError
from smg.rl.aio import AsyncRL, paused

from ..support.scripted_engine import ScriptedEngine
from ..support.waiting import wait_until

ALL = "engine=sglang"
STEP = {"model_path": "/ckpt/step-42", "weight_version": "42"}


@pytest.fixture(autouse=True)
def nothing_left() -> Iterator[None]:
    before = threading.active_count()
    yield
    gc.collect()  # a task or a future that nobody looked at complains when it goes
    wait_until(lambda: threading.active_count() == before, "every thread has ended")


def run(work: Coroutine[Any, Any, object]) -> None:
    asyncio.run(work, debug=True)


async def until(condition: Any, what: str) -> None:
    for _ in range(3000):
        if condition():
            return
        await asyncio.sleep(0.01)
    raise AssertionError(f"waited in vain until {what}")


def test_every_method_does_what_its_blocking_twin_does() -> None:
    async def job(rl: AsyncRL, fleet: Fleet) -> None:
        workers = await rl.workers()
        first = workers[0]
        assert [w.url for w in workers] == sorted(e.url for e in fleet.engines)
        assert (await rl.worker(first.id)).url == first.url
        assert [w.id for w in await rl.match(f"id={first.id}")] == [first.id]
        assert (await rl.call(first.id, "model_info", method="GET")).status == 200
        async with paused(rl, ALL, mode="retract") as pause:
            assert {e.state for e in fleet.engines} == {"paused"}
            await rl.fanout("update_weights_from_disk", STEP, selector=ALL)
        assert len(pause.resumed) == 2
        assert set((await rl.weight_versions(ALL)).values()) == {"42"}
        await rl.expect_weight_version(ALL, "42")
        with pytest.raises(WeightVersionError):
            await rl.expect_weight_version(ALL, "43")
        with pytest.raises(RlError, match="worker_not_found"):
            await rl.worker("nope")

    with Fleet(sglang=2) as fleet:
        run(job(AsyncRL(fleet.url), fleet))
        fleet.check()


def test_the_two_clients_have_the_same_methods() -> None:
    def public(kind: type) -> set[str]:
        return {name for name, value in vars(kind).items() if callable(value) and not name.startswith("_")}

    assert public(RL) - {"carried", "close", "through"} == public(AsyncRL) - {"of"}


def test_one_client_works_in_many_loops_and_threads() -> None:
    with Fleet(sglang=1) as fleet:
        rl = AsyncRL.of(fleet.rl)
        found: list[int] = []

        async def count() -> None:
            found.append(len(await rl.workers()))

        run(count())
        threads = [threading.Thread(target=run, args=(count(),)) for _ in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        run(count())
        assert found == [1] * 6


def test_calls_that_hang_keep_no_other_one_waiting() -> None:
    async def job(rl: AsyncRL, engine: ScriptedEngine) -> None:
        hanging = [asyncio.ensure_future(rl.fanout("stuck", selector=ALL)) for _ in range(100)]
        await until(lambda: len(engine.held) == 100, "100 calls hang")
        assert (await rl.fanout("continue_generation", {}, selector=ALL)).succeeded == 1
        for task in hanging:
            task.cancel()
        ended = await asyncio.gather(*hanging, return_exceptions=True)
        assert {type(error) for error in ended} == {asyncio.CancelledError}

    with ScriptedEngine(free=frozenset(["/continue_generation"])) as engine:
        with Gateway(worker_urls=[engine.url], enable_rl=True) as gateway:
            run(job(AsyncRL(gateway.url), engine))
            wait_until(lambda: len(engine.left) == 100, "every engine call is cancelled")


def test_a_cancelled_call_is_cancelled_at_the_engine() -> None:
    async def job(rl: AsyncRL) -> None:
        with pytest.raises(asyncio.TimeoutError):
            await asyncio.wait_for(rl.fanout("stuck", selector=ALL), 0.3)

    with ScriptedEngine() as engine, Gateway(worker_urls=[engine.url], enable_rl=True) as gateway:
        run(job(AsyncRL(gateway.url)))
        wait_until(lambda: engine.left == ["/stuck"], "the engine sees its caller go")


def test_a_cancellation_in_the_block_resumes_first() -> None:
    async def job(fleet: Fleet, entered: asyncio.Event) -> None:
        async with paused(AsyncRL.of(fleet.rl), ALL):
            entered.set()
            await asyncio.sleep(3600)

    async def cancel(fleet: Fleet) -> None:
        entered = asyncio.Event()
        task = asyncio.ensure_future(job(fleet, entered))
        await asyncio.wait_for(entered.wait(), 30)
        assert fleet.engines[0].state == "paused"
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        assert fleet.engines[0].state == "running"

    with Fleet(sglang=1) as fleet:
        run(cancel(fleet))
        fleet.check()


def test_a_cancellation_during_the_pause_resumes_and_is_obeyed() -> None:
    async def job(rl: AsyncRL) -> None:
        async with paused(rl, ALL):
            pytest.fail("the block ran")

    async def cancel(rl: AsyncRL, engine: ScriptedEngine) -> None:
        task = asyncio.ensure_future(job(rl))
        await until(lambda: engine.held == ["/pause_generation"], "the pause is under way")
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task

    with ScriptedEngine(free=frozenset(["/continue_generation"])) as engine:
        with Gateway(worker_urls=[engine.url], enable_rl=True, keep_log=True) as gateway:
            run(cancel(AsyncRL(gateway.url), engine))
            paths = [entry.path for entry in gateway.log]
            assert paths[:2] == ["/v1/rl/engine/pause_generation", "/v1/rl/engine/continue_generation"]
            assert paths.count("/v1/rl/engine/pause_generation") == 1
            wait_until(lambda: "/pause_generation" in engine.left, "the engine sees its caller go")


def test_the_resume_is_shielded_from_cancellation() -> None:
    async def job(rl: AsyncRL) -> None:
        async with paused(rl, ALL):
            pass

    async def cancel(rl: AsyncRL, engine: ScriptedEngine) -> None:
        task = asyncio.ensure_future(job(rl))
        await until(lambda: engine.held == ["/continue_generation"], "the resume is under way")
        for _ in range(3):
            task.cancel()
            await asyncio.sleep(0.05)
        assert not task.done()
        engine.release()
        with pytest.raises(asyncio.CancelledError):
            await task

    with ScriptedEngine(free=frozenset(["/pause_generation"])) as engine:
        with Gateway(worker_urls=[engine.url], enable_rl=True) as gateway:
            run(cancel(AsyncRL(gateway.url), engine))
            assert engine.left == []


def test_errors_keep_their_order() -> None:
    async def job(fleet: Fleet) -> None:
        async with paused(AsyncRL.of(fleet.rl), ALL):
            fleet.engines[0].stop()
            raise KeyError("mine")

    with Fleet(sglang=2) as fleet:
        with pytest.raises(KeyError) as caught:
            run(job(fleet))
        assert isinstance(caught.value.__context__, FanoutError)
        assert fleet.engines[1].state == "running"


def test_a_resume_that_can_have_no_thread_is_done_all_the_same(monkeypatch: pytest.MonkeyPatch) -> None:
    start = threading.Thread.start

    def refuse(thread: threading.Thread) -> None:
        if thread.name == "rl":
            raise RuntimeError("can't start new thread")
        start(thread)

    async def step(fleet: Fleet) -> None:
        async with paused(AsyncRL(fleet.url), ALL):
            monkeypatch.setattr(threading.Thread, "start", refuse)

    async def in_vain(fleet: Fleet) -> None:
        async with paused(AsyncRL(fleet.url), ALL):
            pytest.fail("the block ran")

    with Fleet(sglang=2) as fleet:
        asyncio.run(step(fleet))
        assert [engine.state for engine in fleet.engines] == ["running"] * 2
        with pytest.raises(RuntimeError, match="new thread"):
            asyncio.run(in_vain(fleet))
        assert [len(engine.calls("pause_generation")) for engine in fleet.engines] == [1, 1]
