"""An asyncio trainer: rollouts run on while the fleet is refitted under them.

    python trainer_asyncio.py --smg http://smg:30000 --steps 3 --checkpoints /ckpt

Prints after each step how many rollouts ended, and which weights made their last tokens.
"""

import argparse
import asyncio
import json
import os
import sys
import urllib.request
from collections import Counter

from smg.rl import RlError
from smg.rl.aio import AsyncRL, paused


def generate(url: str, prompt: str) -> str:
    """One rollout, and the version of the weights that ended it. Any HTTP client will do."""
    body = {"text": prompt, "sampling_params": {"max_new_tokens": 16}}
    request = urllib.request.Request(f"{url}/generate", json.dumps(body).encode(), {"content-type": "application/json"})
    with urllib.request.urlopen(request, timeout=600) as answer:
        return str(json.load(answer)["meta_info"]["weight_version"])


async def refit(rl: AsyncRL, selector: str, model_path: str, version: str) -> None:
    # `retract`: the rollouts in flight are put back and go on with the new weights.
    async with paused(rl, selector, mode="retract"):
        body = {"model_path": model_path, "weight_version": version}
        await rl.fanout("update_weights_from_disk", body, selector=selector)
    await rl.expect_weight_version(selector, version)


async def step(rl: AsyncRL, selector: str, url: str, model_path: str, version: str) -> Counter[str]:
    """A refit with eight rollouts in flight; how many ended on which weights."""
    rollouts = [asyncio.create_task(asyncio.to_thread(generate, url, f"prompt {n}")) for n in range(8)]
    await refit(rl, selector, model_path, version)
    return Counter(await asyncio.gather(*rollouts))


async def train(url: str, selector: str, checkpoints: str, steps: int) -> None:
    rl = AsyncRL(url, os.environ.get("SMG_ADMIN_TOKEN"), timeout=1200)
    for number in range(1, steps + 1):
        ended = await step(rl, selector, url, f"{checkpoints}/step-{number}", str(number))
        print(f"step {number}: {dict(sorted(ended.items()))}", flush=True)


def main() -> int:
    parser = argparse.ArgumentParser(description="An asyncio trainer.")
    parser.add_argument("--smg", default="http://127.0.0.1:30000", help="URL of the gateway")
    parser.add_argument("--selector", default="engine=sglang", help="which workers (default: engine=sglang)")
    parser.add_argument("--checkpoints", default="/ckpt", help="folder of the steps")
    parser.add_argument("--steps", type=int, default=3)
    args = parser.parse_args()
    try:
        asyncio.run(train(args.smg, args.selector, args.checkpoints, args.steps))
    except (RlError, OSError, ValueError) as error:
        print(f"trainer: {error}", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
