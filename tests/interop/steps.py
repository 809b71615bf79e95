"""The job, through nothing but the contract's client: run it with any `smg.rl`.

`python steps.py GATEWAY_URL DEAD_WORKER_URL` prints one JSON object: what each step
gave, with ids replaced by the order of the workers' URLs.
"""

import json
import sys
from typing import Any

from smg.rl import RL, FanoutError, RlError, paused

ALL = "engine=sglang"


def job(url: str, dead: str) -> dict[str, Any]:
    """Discovery, a call, a fan-out, a partial failure, pause - refit - resume.

    `dead` is the URL of a registered worker that nobody serves any more.
    """
    rl = RL(url, timeout=30)
    workers = {w.url: w for w in rl.workers()}
    alive = sorted(set(workers) - {dead})
    names = {workers[u].id: f"w{n}" for n, u in enumerate([*alive, dead])}
    first = workers[alive[0]]
    steps: dict[str, Any] = {}
    steps["discovery"] = [
        [w.engine, w.health, w.tp_size, w.connection_mode, w.weight_version] for w in workers.values()
    ]
    steps["row"] = [rl.worker(first.id).url == first.url, sorted(first.capabilities)]
    steps["unknown worker"] = _error(lambda: rl.worker("nope"))
    steps["call"] = _result(rl.call(first.id, "model_info", method="GET"), "weight_version")
    steps["engine refuses"] = rl.call(first.id, "pause_generation").status
    steps["bad path"] = _error(lambda: rl.call(first.id, "a/../b"))
    steps["no match"] = _error(lambda: rl.fanout("flush_cache", selector="engine=none"))
    steps["bad selector"] = _error(lambda: rl.fanout("flush_cache", selector="engine"))
    steps["partial"] = _partial(rl, names)
    live = f'{ALL},url!="{dead}"'
    fan = rl.fanout("flush_cache", selector=live)
    steps["fan-out"] = [fan.total, fan.succeeded, sorted(names[i] for i in fan.results)]
    with paused(rl, live, mode="abort") as pause:
        steps["paused"] = [pause.total, pause.succeeded, pause.failed]
        body = {"model_path": "/ckpt/step-42", "weight_version": "42"}
        refit = rl.fanout("update_weights_from_disk", body, selector=live)
        steps["refit"] = [_result(r, "success") for r in refit.results.values()]
    infos = [rl.call(workers[u].id, "model_info", method="GET") for u in alive]
    steps["after"] = [_result(info, "weight_version")[-1] for info in infos]
    steps["pause of a partly dead fleet"] = _never_runs(rl)
    return steps


def _result(result: Any, key: str) -> list[Any]:
    return [result.status, type(result.latency_ms).__name__, result.body[key]]


def _error(call: Any) -> list[Any]:
    try:
        call()
    except RlError as error:
        return [error.status, error.code, sorted(error.payload)]
    raise AssertionError("it should have been refused")


def _partial(rl: RL, names: dict[str, str]) -> list[Any]:
    kept = rl.fanout("health", selector=ALL, method="GET", allow_partial=True)
    try:
        rl.fanout("health", selector=ALL, method="GET")
    except FanoutError as error:
        result = error.result
        assert (result.total, result.succeeded) == (kept.total, kept.succeeded)
        failed = [[names[f.worker_id], f.error, f.status] for f in result.failed]
        return [error.status, error.code, failed, sorted(names[i] for i in result.results)]
    raise AssertionError("a dead worker should have failed")


def _never_runs(rl: RL) -> str:
    try:
        with paused(rl, ALL):
            return "the block ran"
    except FanoutError as error:
        return f"{error.code}: {len(error.result.failed)} failed"


if __name__ == "__main__":
    print(json.dumps(job(*sys.argv[1:3])))
