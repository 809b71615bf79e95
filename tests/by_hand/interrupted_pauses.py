"""`python -m tests.by_hand.interrupted_pauses [RUNS] [COMMAND …]`: Ctrl-C in the pause of 64 engines.

COMMAND is that of a gateway up to `launch`, such as `smg launch` of a published release; the
reference gateway without.
"""

import logging
import random
import signal
import socket
import subprocess
import sys
import threading
import time
from collections import Counter
from contextlib import ExitStack

from reference_server import MockEngine, faults
from smg.rl import RL, RlError, paused

ALL = "engine=sglang"


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def main(runs: int, command: list[str], count: int = 64) -> int:
    logging.disable(logging.CRITICAL)
    # Where this runs in the background, it is ignored.
    signal.signal(signal.SIGINT, signal.default_int_handler)
    counts: Counter[str] = Counter()
    with ExitStack() as stack:
        engines = [stack.enter_context(MockEngine("sglang")) for _ in range(count)]
        port = free_port()
        words = [*command, "--host", "127.0.0.1", "--port", str(port), "--enable-rl", "--disable-health-check"]
        urls = [engine.url for engine in engines]
        gateway = subprocess.Popen(
            [*words, "--worker-urls", *urls], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
        )
        stack.callback(gateway.wait)
        stack.callback(gateway.terminate)
        rl = RL(f"http://127.0.0.1:{port}", timeout=20)
        await_workers(rl, count)
        draw = random.Random(int(time.time()))
        for _ in range(runs):
            slow = draw.sample(engines, 8)
            for engine in slow:
                engine.fail("pause_generation", faults.Delay(before=draw.random() * 0.1), times=1)
            main_thread = threading.main_thread().ident or 0
            timer = threading.Timer(draw.random() * 0.12, signal.pthread_kill, (main_thread, signal.SIGINT))
            error: BaseException | None = None
            try:
                timer.start()
                with paused(rl, ALL, settle=0.25):
                    timer.join()
            except KeyboardInterrupt as caught:
                error = caught
            timer.join()
            time.sleep(0.12)  # whatever is on its way arrives
            named = {target.url for target in getattr(error, "still_paused", ())}
            left = [engine for engine in engines if engine.state == "paused"]
            counts["interrupted" if error else "not interrupted"] += 1
            counts["left paused and unnamed"] += any(engine.url not in named for engine in left)
            counts["left paused and named"] += bool(left) and all(engine.url in named for engine in left)
            for engine in engines:
                engine.clear_faults()
            if left:
                rl.fanout("continue_generation", {}, selector=ALL)
        counts["paused twice"] = sum(len(engine.calls("pause_generation")) > runs for engine in engines)
    print(f"{' '.join(command)[-40:]}: {runs} interrupted pauses of {count} engines: {dict(counts)}")
    return 1 if counts["left paused and unnamed"] or counts["paused twice"] else 0


def await_workers(rl: RL, count: int) -> None:
    end = time.monotonic() + 60
    while time.monotonic() < end:
        try:
            if len([worker for worker in rl.workers() if worker.health == "ready"]) == count:
                return
        except RlError:
            pass
        time.sleep(0.1)
    raise TimeoutError("the gateway does not know all engines")


if __name__ == "__main__":
    given = sys.argv[1:]
    ours = [sys.executable, "-m", "smg", "launch"]
    sys.exit(main(int(given[0]) if given else 100, given[1:] or ours))
