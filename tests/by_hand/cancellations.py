"""`python -m tests.by_hand.cancellations [RUNS]`: a cancellation at a random instant of an asyncio `paused`."""

import asyncio
import logging
import random
import sys
import time
from collections import Counter

from reference_server import Fleet
from smg.rl.aio import AsyncRL, paused

ALL = "engine=sglang"


async def step(rl: AsyncRL) -> None:
    async with paused(rl, ALL, settle=0.05):
        await rl.fanout("flush_cache", {}, selector=ALL)


async def by_task(rl: AsyncRL, after: float) -> None:
    task = asyncio.create_task(step(rl))
    await asyncio.sleep(after)
    task.cancel()
    await task


async def by_timeout(rl: AsyncRL, after: float) -> None:
    await asyncio.wait_for(step(rl), after)


async def by_group(rl: AsyncRL, after: float) -> None:
    """What a TaskGroup does: one fails, the other is cancelled and waited for."""

    async def fail() -> None:
        await asyncio.sleep(after)
        raise ZeroDivisionError

    tasks = [asyncio.create_task(step(rl)), asyncio.create_task(fail())]
    _, waiting = await asyncio.wait(tasks, return_when=asyncio.FIRST_EXCEPTION)
    for task in waiting:
        task.cancel()
    await asyncio.wait(tasks)
    for task in tasks:
        task.result()


async def runs_of(rl: AsyncRL, fleet: Fleet, runs: int) -> Counter[str]:
    counts: Counter[str] = Counter()
    started = time.monotonic()
    await step(rl)
    length = (time.monotonic() - started) * 1.3
    draw = random.Random(int(time.time()))
    for _ in range(runs):
        before = [len(engine.calls("pause_generation")) for engine in fleet.engines]
        error: BaseException | None = None
        try:
            await draw.choice((by_task, by_timeout, by_group))(rl, draw.random() * length)
        except (asyncio.CancelledError, asyncio.TimeoutError, ZeroDivisionError) as caught:
            error = caught
        named = {target.url for target in getattr(error, "still_paused", ())}
        left = [engine for engine in fleet.engines if engine.state == "paused"]
        counts["cancelled" if error else "not cancelled"] += 1
        counts["left paused and unnamed"] += any(engine.url not in named for engine in left)
        after = [len(engine.calls("pause_generation")) for engine in fleet.engines]
        counts["paused twice"] += any(now - then > 1 for now, then in zip(after, before, strict=True))
        if left:
            fleet.rl.fanout("continue_generation", {}, selector=ALL)
    return counts


def main(runs: int) -> int:
    logging.disable(logging.CRITICAL)
    with Fleet(sglang=2) as fleet:
        counts = asyncio.run(runs_of(AsyncRL(fleet.url, timeout=10), fleet, runs))
    print(f"{sys.version.split()[0]} {runs} cancellations: {dict(counts)}")
    return 1 if counts["left paused and unnamed"] or counts["paused twice"] else 0


if __name__ == "__main__":
    sys.exit(main(int(sys.argv[1]) if len(sys.argv) > 1 else 1000))
