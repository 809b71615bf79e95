"""`python -m tests.by_hand.interrupts [RUNS] [SIGINT|SIGALRM]`: a signal at a random instant of a `paused`."""

import logging
import random
import signal
import sys
import threading
import time
from collections import Counter
from types import FrameType

from reference_server import Fleet
from smg.rl import RL, paused

ALL = "engine=sglang"


class Alarm(BaseException):
    """What the handler raises."""


def ring(number: int, frame: FrameType | None) -> None:
    raise Alarm


def step(rl: RL) -> None:
    with paused(rl, ALL, settle=0.05):
        rl.fanout("flush_cache", {}, selector=ALL)


def main(runs: int, number: signal.Signals) -> int:
    logging.disable(logging.CRITICAL)
    signal.signal(number, ring)
    counts: Counter[str] = Counter()
    with Fleet(sglang=2) as fleet:
        rl = RL(fleet.url, timeout=10)
        started = time.monotonic()
        step(rl)
        length = (time.monotonic() - started) * 1.3
        draw = random.Random(int(time.time()))
        for _ in range(runs):
            before = [len(engine.calls("pause_generation")) for engine in fleet.engines]
            main_thread = threading.main_thread().ident or 0
            timer = threading.Timer(draw.random() * length, signal.pthread_kill, (main_thread, number))
            error: BaseException | None = None
            try:
                timer.start()
                step(rl)
            except Alarm as alarm:
                error = alarm
            while timer.is_alive():
                try:
                    timer.join()
                except Alarm:
                    counts["after the step"] += 1
            named = {target.url for target in getattr(error, "still_paused", ())}
            left = [engine for engine in fleet.engines if engine.state == "paused"]
            counts["interrupted" if error else "not interrupted"] += 1
            counts["left paused and unnamed"] += any(engine.url not in named for engine in left)
            counts["left paused and named"] += bool(left) and all(engine.url in named for engine in left)
            counts["handlers left"] += signal.getsignal(number) is not ring
            after = [len(engine.calls("pause_generation")) for engine in fleet.engines]
            counts["paused twice"] += any(now - then > 1 for now, then in zip(after, before, strict=True))
            signal.signal(number, ring)
            if left:
                fleet.rl.fanout("continue_generation", {}, selector=ALL)
    print(f"{sys.version.split()[0]} {number.name} {runs} runs: {dict(counts)}")
    return 1 if counts["left paused and unnamed"] or counts["handlers left"] or counts["paused twice"] else 0


if __name__ == "__main__":
    words = sys.argv[1:]
    sys.exit(main(int(words[0]) if words else 1000, signal.Signals[words[1] if len(words) > 1 else "SIGINT"]))
