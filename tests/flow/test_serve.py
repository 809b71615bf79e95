"""`smg serve`: engines and gateway as one, with the mock backend."""

import json
import os
import re
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from smg.rl import RL, paused

from ..support.asking import ask
from ..support.commands import ENVIRONMENT
from ..support.waiting import wait_until

SERVE = [sys.executable, "-m", "smg", "serve"]
MOCK = ["--backend", "mock", "--model-path", "/ckpt/step-1", "--port", "0"]


@contextmanager
def serving(*flags: str) -> Iterator[tuple["subprocess.Popen[str]", str]]:
    process = subprocess.Popen(
        [*SERVE, *MOCK, *flags], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=ENVIRONMENT
    )
    with process:
        try:
            assert process.stdout is not None and process.stderr is not None
            line = process.stdout.readline()
            assert line, process.stderr.read()
            yield process, json.loads(line)["url"]
        finally:
            process.send_signal(signal.SIGTERM)
            process.wait(60)


def registered(url: str) -> list[str]:
    return [row["url"] for row in ask(url, "GET", "/v1/rl/workers").json["workers"]]


def pid_of(engine_url: str) -> int:
    """The process that listens on an engine's port, from what the system knows."""
    port = engine_url.rpartition(":")[2]
    for command in Path("/proc").glob("[0-9]*/cmdline"):
        words = command.read_bytes().split(b"\0")
        if b"reference_server.engines" in words and port.encode() in words:
            return int(command.parent.name)
    raise AssertionError(f"no process for {engine_url}")


def test_engines_and_gateway_start_together_and_stop_together() -> None:
    with serving("--data-parallel-size", "2", "--connection-mode", "http", "--router-enable-rl") as (process, url):
        wait_until(lambda: len(registered(url)) == 2, "both engines are registered")
        rl = RL(url, timeout=30)
        with paused(rl, "engine=sglang") as result:
            assert result.succeeded == 2
        bodies = [r.body for r in rl.fanout("model_info", selector="engine=sglang", method="GET").results.values()]
        assert ["/ckpt/step-1" in str(body) for body in bodies] == [True, True]
        pids = [pid_of(engine) for engine in registered(url)]
        process.send_signal(signal.SIGTERM)
        assert process.wait(60) == 0
        assert not [pid for pid in pids if Path(f"/proc/{pid}").exists()]


def test_router_flags_go_to_the_gateway_and_others_to_the_engines() -> None:
    with serving("--router-enable-rl", "--router-api-key", "k", "--weight-version", "7") as (_, url):
        key = {"authorization": "Bearer k"}
        wait_until(
            lambda: ask(url, "GET", "/v1/rl/workers", headers=key).json["total"] == 1, "the engine is registered"
        )
        assert ask(url, "GET", "/v1/rl/workers").status == 401
        assert ask(url, "GET", "/v1/rl/workers", headers=key).json["workers"][0]["weight_version"] == "7"


def test_an_engine_that_dies_ends_the_rest_and_is_named_with_its_last_words() -> None:
    with serving("--data-parallel-size", "2", "--router-enable-rl") as (process, url):
        wait_until(lambda: len(registered(url)) == 2, "both engines are registered")
        victim = registered(url)[0]
        os.kill(pid_of(victim), signal.SIGKILL)
        assert process.wait(60) == 1
        assert process.stderr is not None
        said = process.stderr.read()
    assert re.search(rf"smg serve: engine-\d \(mock, {victim}\) ended with exit code -9; it said:\n    .*ready", said)


REFUSED = [
    (["--connection-mode", "grpc"], 1, "use --connection-mode http"),
    (["--data-parallel-size", "0"], 2, "--data-parallel-size must be >= 1"),
    (["--router-bogus"], 2, "--bogus"),
    (["--router-rl-fanout-concurrency", "0", "--router-enable-rl"], 1, "rl_fanout_concurrency=0"),
    (["--backend", "sglang"], 1, "pip install sglang"),
    (["--backend", "vllm"], 1, "pip install vllm"),
]


@pytest.mark.parametrize(("flags", "code", "says"), REFUSED, ids=[" ".join(flags) for flags, _, _ in REFUSED])
def test_what_cannot_be_served_is_one_clear_line(flags: list[str], code: int, says: str) -> None:
    environment = {**ENVIRONMENT, "PATH": "/usr/bin:/bin"}
    done = subprocess.run([*SERVE, *MOCK, *flags], capture_output=True, text=True, timeout=60, env=environment)
    assert done.returncode == code, done.stderr
    assert says in done.stderr
    assert "Traceback" not in done.stderr


def test_an_engine_that_cannot_start_is_named() -> None:
    command = [*SERVE, *MOCK, "--not-a-flag-of-the-engine"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60, env=ENVIRONMENT)
    assert done.returncode == 1
    assert "ended with exit code 2" in done.stderr
    assert "--not-a-flag-of-the-engine" in done.stderr
