"""`smg demo`: the whole job on this machine, without a GPU, in a second.

Starts mock SGLang engines and a gateway, and does with them what
`examples/rl/refit_from_disk.py` does with a real fleet, saying each step.
"""

import argparse
import sys
from collections.abc import Sequence
from contextlib import ExitStack
from typing import TYPE_CHECKING

from .rl import RL, RlError, paused

if TYPE_CHECKING:
    from reference_server import MockEngine

_SELECTOR = "engine=sglang"


def main(argv: Sequence[str] | None = None) -> int:
    """Run the demo. Exit 0 when every engine holds the new weights, else 1."""
    parser = argparse.ArgumentParser(prog="smg demo", description="Refit a fleet of mock engines, step by step.")
    parser.add_argument("--engines", type=int, default=3, metavar="N", help="how many mock engines (default 3)")
    parser.add_argument("--weight-version", default="42", metavar="V", help="the version to refit to (default 42)")
    arguments = parser.parse_args(argv)
    if arguments.engines < 1:
        parser.error(f"--engines must be >= 1, got {arguments.engines}")
    try:
        return _run(arguments.engines, arguments.weight_version)
    except (RlError, OSError) as problem:
        print(f"smg demo: {problem}", file=sys.stderr)
        return 1


def _run(count: int, version: str) -> int:
    from reference_server import Gateway, MockEngine

    with ExitStack() as fleet:
        engines = [fleet.enter_context(MockEngine("sglang")) for _ in range(count)]
        gateway = fleet.enter_context(Gateway(worker_urls=[e.url for e in engines], enable_rl=True))
        print(f"1. Started {count} mock SGLang engines and a gateway at {gateway.url}")
        rl = RL(gateway.url, timeout=30)
        print("2. Discovered the workers")
        for worker in rl.workers():
            print(f"     {worker.id}  {worker.url}  {worker.health}  weight version {worker.weight_version}")
        _refit(rl, engines, version)
        return _verify(rl, version)


def _refit(rl: RL, engines: Sequence["MockEngine"], version: str) -> None:
    body = {"model_path": f"/checkpoints/step-{version}", "weight_version": version}
    with paused(rl, _SELECTOR) as result:
        print(f"3. Paused {result.succeeded} of {result.total}: the engines are {_states(engines)}")
        refit = rl.fanout("update_weights_from_disk", body, selector=_SELECTOR)
        slowest = max(answer.latency_ms for answer in refit.results.values())
        print(f"4. Refitted {refit.succeeded} of {refit.total} from {body['model_path']}, the slowest in {slowest} ms")
    print(f"5. Resumed: the engines are {_states(engines)}")


def _verify(rl: RL, version: str) -> int:
    prompt = {"text": "which weights?", "sampling_params": {"max_new_tokens": 1, "temperature": 0}}
    answers = rl.fanout("generate", prompt, selector=_SELECTOR).results.values()
    print("6. Asked each engine to generate; its answer names the weights it used")
    versions = {answer.url: _weight_version(answer.body) for answer in answers}
    for url, found in versions.items():
        print(f"     {url}  weight version {found}")
    if set(versions.values()) != {version}:
        print(f"smg demo: not every engine holds weight version {version}", file=sys.stderr)
        return 1
    print(f"Every engine runs, and holds weight version {version}.")
    return 0


def _weight_version(body: object) -> object:
    meta = body.get("meta_info") if isinstance(body, dict) else None
    return meta.get("weight_version") if isinstance(meta, dict) else None


def _states(engines: Sequence["MockEngine"]) -> str:
    return ", ".join(engine.state for engine in engines)
