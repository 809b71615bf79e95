"""What the client and the gateway cost, as ratios to the standard library in the same run.

Absolute times say more about the machine than about the code; each figure is printed
with the calibration it is divided by and the budget it should stay within. Variants are
measured in turn, and medians compared. Exit 1 when a budget is exceeded.
"""

import http.client
import statistics
import subprocess
import sys
import time
from collections.abc import Callable
from contextlib import ExitStack
from pathlib import Path
from urllib.parse import quote

from reference_server import Gateway
from reference_server.httpd.messages import Reply, Request
from reference_server.httpd.server import HttpServer
from smg.rl import RL

ROOT = Path(__file__).parents[1]
SELECTOR = "engine=sglang"
LATENCY = 0.01


def main() -> int:
    figures = [*imports(), *calls(), ready()]
    for name, ratio, budget, note in figures:
        flag = "" if ratio <= budget else "  OVER"
        print(f"{name:<34} {ratio:6.2f} x   (budget {budget:4.2f} x, {note}){flag}")
    return 1 if any(ratio > budget for _, ratio, budget, _ in figures) else 0


Figure = tuple[str, float, float, str]


def medians(rounds: int, *works: Callable[[], object]) -> list[float]:
    """The median seconds of each, measured in turn so that noise hits all alike."""
    times: list[list[float]] = [[] for _ in works]
    for _ in range(rounds):
        for work, taken in zip(works, times, strict=True):
            started = time.perf_counter()
            work()
            taken.append(time.perf_counter() - started)
    return [statistics.median(taken) for taken in times]


def python(code: str) -> Callable[[], object]:
    return lambda: subprocess.run([sys.executable, "-c", code], cwd=ROOT, check=True)


def imports() -> list[Figure]:
    plain, version, dataclass, client = medians(
        15,
        python("pass"),
        python("import smg"),
        python("import dataclasses, json"),
        python("from smg.rl import RL, RlError, FanoutError, paused"),
    )
    return [
        ("import smg", version / plain, 1.15, f"`pass` {plain * 1000:.1f} ms"),
        ("from smg.rl import …", client / dataclass, 1.3, f"dataclasses and json {dataclass * 1000:.1f} ms"),
    ]


def engine(request: Request) -> Reply:
    request.body.read(1 << 20)
    if request.path == "/slow":
        time.sleep(LATENCY)
    return Reply.of_json(200, {"data": [{"id": "m", "owned_by": "sglang"}], "success": True})


def calls() -> list[Figure]:
    with ExitStack() as stack:
        servers = [HttpServer(engine) for _ in range(64)]
        for server in servers:
            server.start()
            stack.callback(server.stop)
        urls = [server.url for server in servers]
        gateway = stack.enter_context(Gateway(worker_urls=urls, enable_rl=True, health_check=False))
        rl = RL(gateway.url)

        only = f"id={rl.workers()[0].id}"

        def plain(url: str, path: str) -> None:
            connection = http.client.HTTPConnection(url.removeprefix("http://"))
            connection.request("POST", path, b"{}")
            connection.getresponse().read()
            connection.close()

        hop, bare, client = medians(
            200,
            lambda: plain(urls[0], "/x"),
            lambda: plain(gateway.url, f"/v1/rl/engine/x?selector={quote(only)}"),
            lambda: rl.fanout("x", {}, selector=only),
        )
        quick, slow = medians(
            15, lambda: rl.fanout("x", {}, selector=SELECTOR), lambda: rl.fanout("slow", {}, selector=SELECTOR)
        )
        bound = 64 * 2 * hop + 0.01
    return [
        ("RL.fanout to one engine", client / bare, 1.5, f"the same by http.client {bare * 1000:.2f} ms"),
        ("fan-out to 64 engines", quick / bound, 1.0, f"64 x 2 x {hop * 1000:.2f} ms + 10 ms"),
        ("fan-out to 64 engines of 10 ms", slow / (bound + 2 * LATENCY), 1.0, "the same + 20 ms"),
    ]


def ready() -> Figure:
    def start() -> None:
        command = [sys.executable, "-m", "reference_server", "--port", "0"]
        with subprocess.Popen(command, cwd=ROOT, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL) as process:
            assert process.stdout is not None
            process.stdout.readline()
            process.terminate()

    bare, gateway = medians(10, python("import http.server, argparse, ssl, concurrent.futures.thread, logging"), start)
    return ("gateway to its ready line and away", gateway / bare, 2.0, f"its imports alone {bare * 1000:.0f} ms")


if __name__ == "__main__":
    sys.exit(main())
