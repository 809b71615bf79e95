"""Pause a fleet, load a checkpoint from disk into every engine, resume, and check.

    SMG_ADMIN_TOKEN=… python refit_from_disk.py --smg http://smg:30000 \
        --model-path /ckpt/step-42 --weight-version 42

Every engine must be able to read the path. Exit 0 when every engine answers with the
new weights; 1 when one does not, or failed, and then its worker is named.
"""

import argparse
import os
import sys

from smg.rl import RL, FanoutError, RlError, paused


def main() -> int:
    parser = argparse.ArgumentParser(description="Refit a fleet of SGLang engines from disk.")
    parser.add_argument("--smg", default="http://127.0.0.1:30000", help="URL of the gateway")
    parser.add_argument("--model-path", required=True, help="checkpoint that every engine can read")
    parser.add_argument("--weight-version", required=True, help="what the engines shall report afterwards")
    parser.add_argument("--selector", default="engine=sglang", help="which workers (default: engine=sglang)")
    # Longer than the gateway's --rl-control-timeout-secs, so that it can say who failed.
    parser.add_argument("--timeout", type=float, default=1200.0, help="seconds for each step")
    args = parser.parse_args()
    try:
        rl = RL(args.smg, api_key=os.environ.get("SMG_ADMIN_TOKEN"), timeout=args.timeout)
        for worker in rl.workers():
            print(f"{worker.id}  {worker.url}  {worker.engine}  {worker.health}")
        refit(rl, args.selector, args.model_path, args.weight_version)
        return verify(rl, args.selector, args.weight_version)
    except FanoutError as error:
        print(f"refit: {error}", file=sys.stderr)
        for failure in error.result.failed:
            print(f"failed: {failure}", file=sys.stderr)
    except (RlError, ValueError) as error:
        print(f"refit: {error}", file=sys.stderr)
    return 1


def refit(rl: RL, selector: str, model_path: str, weight_version: str) -> None:
    body = {"model_path": model_path, "weight_version": weight_version, "flush_cache": True}
    with paused(rl, selector):
        result = rl.fanout("update_weights_from_disk", body, selector=selector)
    for worker_id, answer in result.results.items():
        print(f"{worker_id}: HTTP {answer.status} in {answer.latency_ms} ms")


def verify(rl: RL, selector: str, weight_version: str) -> int:
    # A generation names the weights it used; discovery only knows those of registration.
    prompt = {"text": "ping", "sampling_params": {"max_new_tokens": 1, "temperature": 0}}
    stale = 0
    for worker_id, answer in rl.fanout("generate", prompt, selector=selector).results.items():
        meta = answer.body.get("meta_info") if isinstance(answer.body, dict) else None
        found = meta.get("weight_version") if isinstance(meta, dict) else None
        if found != weight_version:
            stale += 1
            print(f"failed: {worker_id} ({answer.url}) serves {found!r}, not {weight_version!r}", file=sys.stderr)
    if not stale:
        print(f"every engine serves weight version {weight_version}")
    return 1 if stale else 0


if __name__ == "__main__":
    sys.exit(main())
