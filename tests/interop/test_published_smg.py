"""Every client with every gateway: ours and the published ones give the same job."""

import contextlib
import json
import subprocess
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest

from reference_server import Gateway, MockEngine

from . import published
from .steps import job

STEPS = Path(__file__).with_name("steps.py")


@contextlib.contextmanager
def our_gateway(worker_urls: Sequence[str]) -> Iterator[str]:
    with Gateway(worker_urls=worker_urls, enable_rl=True, health_check=False) as gateway:
        yield gateway.url
        assert gateway.failures == []


def gateway_of(release: str) -> Callable[[Sequence[str]], contextlib.AbstractContextManager[str]]:
    return lambda worker_urls: published.gateway(release, worker_urls)


GATEWAYS = {"ours": our_gateway, **{release: gateway_of(release) for release in published.RELEASES}}


def client_of(release: str) -> Callable[[str, str], Any]:
    def run(url: str, dead: str) -> Any:
        python = published.venv(release) / "bin" / "python"
        # From the folder of the script, so that `smg` is the published one.
        done = subprocess.run(
            [python, STEPS.name, url, dead], cwd=STEPS.parent, capture_output=True, text=True, timeout=60
        )
        assert done.returncode == 0, done.stderr
        return json.loads(done.stdout)

    return run


CLIENTS: dict[str, Callable[[str, str], Any]] = {"ours": job, **{r: client_of(r) for r in published.RELEASES}}


@pytest.mark.parametrize("client", CLIENTS)
@pytest.mark.parametrize("gateway", GATEWAYS)
def test_a_client_does_the_whole_job_through_a_gateway(client: str, gateway: str) -> None:
    engines = [MockEngine("sglang"), MockEngine("sglang", tp_size=2), MockEngine("sglang")]
    with contextlib.ExitStack() as fleet:
        for engine in engines:
            fleet.enter_context(engine)
        urls = sorted(engine.url for engine in engines)
        with GATEWAYS[gateway](urls) as url:
            dead = next(engine for engine in engines if engine.url == urls[-1])
            dead.stop()
            steps = CLIENTS[client](url, dead.url)
        alive = [engine for engine in engines if engine is not dead]
        assert [engine.state for engine in alive] == ["running", "running"]
        assert [engine.weight_version for engine in alive] == ["42", "42"]
    assert_is_the_job(steps)


def assert_is_the_job(steps: dict[str, Any]) -> None:
    tp_sizes = sorted(row.pop(2) for row in steps["discovery"])
    assert set(tp_sizes) == {1, 2}
    assert steps["discovery"] == [["sglang", "ready", "http", "default"]] * 3
    assert steps["row"][0] is True
    assert steps["unknown worker"] == [404, "worker_not_found", ["error", "id", "message"]]
    assert steps["call"] == [200, "int", "default"]
    assert steps["engine refuses"] == 400
    assert steps["bad path"] == [400, "invalid_engine_path", ["error", "message"]]
    assert steps["no match"] == [400, "no_workers_match", ["error", "message", "selector"]]
    assert steps["bad selector"] == [400, "invalid_selector", ["error", "message", "offset"]]
    assert steps["partial"] == [207, "fanout_partial", [["w2", "upstream_unreachable", None]], ["w0", "w1"]]
    assert steps["fan-out"] == [2, 2, ["w0", "w1"]]
    assert steps["paused"] == [2, 2, []]
    assert steps["refit"] == [[200, "int", True]] * 2
    assert steps["after"] == ["42", "42"]
    assert steps["pause of a partly dead fleet"] == "fanout_partial: 1 failed"
