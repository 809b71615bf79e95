"""Refit vLLM engines: pause and keep what runs, reload in every process, resume.

    VLLM_SERVER_DEV_MODE=1 vllm serve …      # without it there is no /pause
    SMG_ADMIN_TOKEN=… python refit_vllm.py --smg http://smg:30000 \
        --model-path /ckpt/step-42 --weight-version 42

Exit 0 when every engine has the new weights; 1 when one has not, and then it is named.
"""

import argparse
import os
import sys

from smg.rl import RL, VLLM, RlError, paused


def refit(rl: RL, selector: str, model_path: str, version: str) -> dict[str, str | None]:
    """The version of each engine afterwards; None for vLLM before 0.33, which tells none."""
    load = {"method": "reload_weights", "kwargs": {"weights_path": model_path}}
    with paused(rl, selector, mode="keep", routes=VLLM):
        rl.fanout("collective_rpc", load, selector=selector)
        # What `keep` froze still holds keys and values of the old weights: drop them, or its
        # tokens are computed from both.
        rl.fanout("reset_prefix_cache", selector=selector, params={"reset_running_requests": True})
        rl.fanout("update_weight_version", {"new_version": version}, selector=selector, allow_partial=True)
    return rl.weight_versions(selector)


def main() -> int:
    parser = argparse.ArgumentParser(description="Refit a fleet of vLLM engines.")
    parser.add_argument("--smg", default="http://127.0.0.1:30000", help="URL of the gateway")
    parser.add_argument("--selector", default="engine=vllm", help="which workers (default: engine=vllm)")
    parser.add_argument("--model-path", required=True, help="checkpoint that every engine can read")
    parser.add_argument("--weight-version", required=True, help="what the engines shall report afterwards")
    args = parser.parse_args()
    try:
        rl = RL(args.smg, api_key=os.environ.get("SMG_ADMIN_TOKEN"), timeout=1200)
        versions = refit(rl, args.selector, args.model_path, args.weight_version)
    except (RlError, ValueError) as error:
        print(f"refit: {error}", file=sys.stderr)
        return 1
    for worker_id, version in versions.items():
        print(f"{worker_id}: {'reloaded; this engine reports no version' if version is None else version}")
    return 1 if any(version not in (None, args.weight_version) for version in versions.values()) else 0


if __name__ == "__main__":
    sys.exit(main())
