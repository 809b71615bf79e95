"""A trainer of many ranks where only rank 0 speaks to the fleet, and every rank hears how it went.

    python trainer_ranks.py --smg http://smg:30000 --ranks 4 --steps 3 --checkpoints /ckpt

Here the ranks are processes of this machine. Under torch.distributed `share` is

    def share(value):
        box = [value]
        torch.distributed.broadcast_object_list(box, src=0)
        return box[0]

and under Ray the driver calls `refit` and hands its outcome to the actors.
"""

import argparse
import multiprocessing
import os
import sys
from collections.abc import Callable, Sequence
from functools import partial
from multiprocessing.connection import Connection

from smg.rl import RL, RlError, paused

Share = Callable[[object], object]
"""Gives every rank what rank 0 put in."""


def refit(rl: RL, selector: str, model_path: str, version: str) -> None:
    with paused(rl, selector, mode="retract", sigterm=True):
        body = {"model_path": model_path, "weight_version": version}
        rl.fanout("update_weights_from_disk", body, selector=selector)
    rl.expect_weight_version(selector, version)


def on_rank_zero(rank: int, share: Share, act: Callable[[], None]) -> None:
    """Run `act` on rank 0 alone; if it raises there, every rank raises the same.

    Without this the others wait at their next collective for a rank that is gone.
    """
    outcome: object = None
    if rank == 0:
        try:
            act()
        except Exception as error:
            outcome = error
    # Errors of the client survive pickle, with their result.
    outcome = share(outcome)
    if isinstance(outcome, Exception):
        raise outcome


def train(rank: int, share: Share, rl: RL, selector: str, checkpoints: str, steps: int) -> None:
    for step in range(1, steps + 1):
        # …forward, backward, optimizer; every rank saves its part of the checkpoint…
        path, version = f"{checkpoints}/step-{step}", str(step)
        on_rank_zero(rank, share, partial(refit, rl, selector, path, version))


def _share(rank: int, pipes: Sequence[Connection]) -> Share:
    def share(value: object) -> object:
        if rank != 0:
            return pipes[0].recv()
        for pipe in pipes:
            pipe.send(value)
        return value

    return share


def _rank(rank: int, pipes: Sequence[Connection], rl: RL, selector: str, checkpoints: str, steps: int) -> None:
    try:
        train(rank, _share(rank, pipes), rl, selector, checkpoints, steps)
    except RlError as error:
        # One write for the whole line: the ranks share a terminal.
        sys.stderr.write(f"rank {rank}: {error}\n")
        sys.exit(1)
    sys.stdout.write(f"rank {rank}: {steps} steps\n")


def main() -> int:
    parser = argparse.ArgumentParser(description="Ranks that refit together.")
    parser.add_argument("--smg", default="http://127.0.0.1:30000", help="URL of the gateway")
    parser.add_argument("--selector", default="engine=sglang", help="which workers (default: engine=sglang)")
    parser.add_argument("--checkpoints", default="/ckpt", help="folder of the steps")
    parser.add_argument("--ranks", type=int, default=2)
    parser.add_argument("--steps", type=int, default=3)
    args = parser.parse_args()
    rl = RL(args.smg, api_key=os.environ.get("SMG_ADMIN_TOKEN"), timeout=1200)
    spawn = multiprocessing.get_context("spawn")
    pipes = [spawn.Pipe() for _ in range(args.ranks - 1)]
    ends = [[mine for mine, _ in pipes], *([theirs] for _, theirs in pipes)]
    rest = (rl, args.selector, args.checkpoints, args.steps)
    ranks = [spawn.Process(target=_rank, args=(rank, end, *rest)) for rank, end in enumerate(ends)]
    for process in ranks:
        process.start()
    for process in ranks:
        process.join()
    return int(any(process.exitcode for process in ranks))


if __name__ == "__main__":
    sys.exit(main())
