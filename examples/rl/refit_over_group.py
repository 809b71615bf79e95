"""Refit SGLang engines over a process group: the trainer is rank 0 and broadcasts.

    python refit_over_group.py --smg http://smg:30000 --master-address $(hostname -i) \
        --checkpoint step-42.safetensors --weight-version 42 --backend nccl

Needs torch and safetensors. `rank_layout` and `refit` need neither and are what to take
into a trainer: the group is anything that can `join` and `broadcast`.
"""

import argparse
import os
import sys
from collections.abc import Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from typing import Any, Protocol

from smg.rl import RL, RlError, Worker, paused

GROUP = "weight_update_group"
JOIN_SECONDS = 300.0
"""How long an engine may wait for the others; give the trainer's end the same."""


class Group(Protocol):
    """The trainer's end of the group. Both block until every other rank does its part."""

    def join(self, world_size: int) -> None: ...

    def broadcast(self, name: str) -> None: ...


@dataclass(frozen=True)
class Tensor:
    """What the engines must know of a tensor before it comes."""

    name: str
    dtype: str
    shape: tuple[int, ...]


def rank_layout(tp_sizes: Mapping[str, int]) -> tuple[int, dict[str, int]]:
    """World size, and the first rank of each engine: rank 0 is the trainer's, then engine by engine.

    An engine of `tp_size` 4 takes four ranks in a row.
    """
    offsets, rank = {}, 1
    for worker_id, tp_size in tp_sizes.items():
        if tp_size < 1:
            raise ValueError(f"{worker_id}: tp_size must be 1 or more, not {tp_size}")
        offsets[worker_id], rank = rank, rank + tp_size
    return rank, offsets


def tp_sizes(workers: Iterable[Worker]) -> dict[str, int]:
    """The ranks of each engine; raises `ValueError` for one that cannot be in a group."""
    for worker in workers:
        if worker.dp_size not in (None, 1):
            raise ValueError(f"{worker.id} ({worker.url}): a group refit is for dp_size 1, not {worker.dp_size}")
    return {worker.id: worker.tp_size or 1 for worker in workers}


@contextmanager
def joined(rl: RL, workers: Sequence[Worker], group: Group, address: str, port: int, backend: str) -> Iterator[None]:
    """The engines and the trainer in one group, which is destroyed at the end."""
    size, offsets = rank_layout(tp_sizes(workers))
    common = {"master_address": address, "master_port": port, "world_size": size}
    names = {"group_name": GROUP, "backend": backend}
    bodies = {worker_id: {**common, **names, "rank_offset": offset} for worker_id, offset in offsets.items()}
    try:
        _join(rl, bodies, group, size)
        yield
    finally:
        # An engine that never joined has no group; what failed before is the error to see.
        with suppress(RlError):
            ids = f"id in ({','.join(offsets)})"
            rl.fanout("destroy_weights_update_group", {"group_name": GROUP}, selector=ids, timeout=30)


def _join(rl: RL, bodies: Mapping[str, Mapping[str, object]], group: Group, size: int) -> None:
    """An engine's call returns only when all have joined, so each has a thread."""
    with ThreadPoolExecutor(len(bodies)) as pool:
        calls = [
            pool.submit(rl.call, worker_id, "init_weights_update_group", body, timeout=JOIN_SECONDS)
            for worker_id, body in bodies.items()
        ]
        group.join(size)
        for call in calls:
            answer = call.result()
            if not answer.ok:
                raise RuntimeError(f"{answer.url} did not join: HTTP {answer.status} {answer.body}")


def refit(rl: RL, selector: str, group: Group, tensors: Sequence[Tensor], version: str) -> None:
    """Pause, broadcast every tensor while the engines wait for it, resume, and ask for the version.

    Begin and end frame a refit from SGLang 0.5.16 on; an older engine answers them with 404.
    """
    with paused(rl, selector, mode="retract"):
        framed = all(
            r.status != 404
            for r in rl.fanout("begin_weight_update", {}, selector=selector, allow_partial=True).results.values()
        )
        description = {
            "names": [tensor.name for tensor in tensors],
            "dtypes": [tensor.dtype for tensor in tensors],
            "shapes": [list(tensor.shape) for tensor in tensors],
            "group_name": GROUP,
            "weight_version": version,
        }
        with ThreadPoolExecutor(1) as pool:
            told = pool.submit(rl.fanout, "update_weights_from_distributed", description, selector=selector)
            for tensor in tensors:
                group.broadcast(tensor.name)
            told.result()
        if framed:
            rl.fanout("end_weight_update", {}, selector=selector)
    rl.expect_weight_version(selector, version)


class TorchGroup:
    """Rank 0 of a torch process group, made as SGLang makes its ranks."""

    def __init__(self, tensors: Mapping[str, Any], address: str, port: int, backend: str) -> None:
        self._tensors, self._address, self._port, self._backend = tensors, address, port, backend
        self._group: Any = None

    def join(self, world_size: int) -> None:
        # torch has no public call for a second group with its own store.
        from torch.distributed import PrefixStore, distributed_c10d, rendezvous  # type: ignore[import-not-found]  # torch is the user's

        store, _, _ = next(rendezvous(f"tcp://{self._address}:{self._port}", 0, world_size))
        self._group, _ = distributed_c10d._new_process_group_helper(
            world_size,
            0,
            [],
            distributed_c10d.Backend(self._backend),
            PrefixStore(GROUP, store),
            group_name=GROUP,
            timeout=distributed_c10d.default_pg_timeout,
        )
        distributed_c10d._world.pg_group_ranks[self._group] = {rank: rank for rank in range(world_size)}

    def broadcast(self, name: str) -> None:
        import torch.distributed  # type: ignore[import-not-found]  # as above

        torch.distributed.broadcast(self._tensors[name], src=0, group=self._group)


def main() -> int:
    parser = argparse.ArgumentParser(description="Refit SGLang engines over a process group.")
    parser.add_argument("--smg", default="http://127.0.0.1:30000", help="URL of the gateway")
    parser.add_argument("--selector", default="engine=sglang", help="which workers (default: engine=sglang)")
    parser.add_argument("--checkpoint", required=True, help="a .safetensors file")
    parser.add_argument("--weight-version", required=True, help="what the engines shall report afterwards")
    parser.add_argument("--master-address", required=True, help="this machine, as the engines reach it")
    parser.add_argument("--master-port", type=int, default=29600)
    parser.add_argument("--backend", default="nccl", help="nccl, or gloo without a GPU")
    args = parser.parse_args()
    from safetensors.torch import load_file  # type: ignore[import-not-found]  # the user's, with torch

    weights = load_file(args.checkpoint, device="cuda" if args.backend == "nccl" else "cpu")
    tensors = [Tensor(k, str(v.dtype).removeprefix("torch."), tuple(v.shape)) for k, v in weights.items()]
    group = TorchGroup(weights, args.master_address, args.master_port, args.backend)
    try:
        rl = RL(args.smg, api_key=os.environ.get("SMG_ADMIN_TOKEN"), timeout=1200)
        with joined(rl, rl.match(args.selector), group, args.master_address, args.master_port, args.backend):
            refit(rl, args.selector, group, tensors, args.weight_version)
    except (RlError, RuntimeError, ValueError) as error:
        print(f"refit: {error}", file=sys.stderr)
        return 1
    print(f"every engine serves weight version {args.weight_version}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
