"""One call of every method of RL that asks a gateway, and one `paused`."""

from collections.abc import Callable, Mapping

from smg.rl import RL, paused


def pause_and_resume(rl: RL, timeout: float | None) -> None:
    with paused(rl, "engine=sglang", timeout=timeout, settle=0.2):
        pass


CALLS: Mapping[str, Callable[[RL, float | None], object]] = {
    "workers": lambda rl, timeout: rl.workers(timeout=timeout),
    "worker": lambda rl, timeout: rl.worker("w0", timeout=timeout),
    "call": lambda rl, timeout: rl.call("w0", "flush_cache", {}, timeout=timeout),
    "fanout": lambda rl, timeout: rl.fanout("flush_cache", {}, selector="engine=sglang", timeout=timeout),
    "match": lambda rl, timeout: rl.match("engine=sglang", timeout=timeout),
    "weight_versions": lambda rl, timeout: rl.weight_versions("engine=sglang", timeout=timeout),
    "status": lambda rl, timeout: rl.status("engine=sglang", timeout=timeout),
    "expect_weight_version": lambda rl, timeout: rl.expect_weight_version("engine=sglang", "42", timeout=timeout),
    "paused": pause_and_resume,
}
