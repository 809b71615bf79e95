"""Published releases of the real gateway, run as black boxes."""

import contextlib
import os
import socket
import subprocess
import time
import urllib.request
from collections.abc import Iterator, Sequence
from pathlib import Path

import pytest

RELEASES = ("1_11", "1_13")
START_SECONDS = 30.0


def venv(release: str) -> Path:
    """The environment a release is installed in; skips the test when there is none."""
    name = f"SMG_PUBLISHED_{release}"
    if name not in os.environ:
        pytest.skip(f"{name} names no environment with a published smg")
    return Path(os.environ[name])


@contextlib.contextmanager
def gateway(release: str, worker_urls: Sequence[str], *flags: str) -> Iterator[str]:
    """A running gateway of a release that has registered its workers; its URL."""
    port, metrics_port = free_port(), free_port()
    command = [str(venv(release) / "bin" / "smg"), "launch", "--worker-urls", *worker_urls, "--host", "127.0.0.1"]
    command += ["--port", str(port), "--prometheus-host", "127.0.0.1", "--prometheus-port", str(metrics_port)]
    command += ["--enable-rl", "--disable-health-check", "--disable-circuit-breaker", "--policy", "round_robin"]
    process = subprocess.Popen(
        [*command, *flags], stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
    )
    try:
        url = f"http://127.0.0.1:{port}"
        _wait_for_rows(process, url, len(worker_urls))
        yield url
    finally:
        process.kill()
        process.wait()


def free_port() -> int:
    """A port that was free a moment ago: these gateways cannot pick one and tell."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def _wait_for_rows(process: "subprocess.Popen[bytes]", url: str, rows: int) -> None:
    import json

    opener = urllib.request.build_opener(urllib.request.ProxyHandler({}))
    end = time.monotonic() + START_SECONDS
    while time.monotonic() < end:
        assert process.poll() is None, f"the gateway ended with exit code {process.returncode}"
        with contextlib.suppress(OSError), opener.open(f"{url}/v1/rl/workers", timeout=5) as answer:
            if json.load(answer)["total"] == rows:
                return
        time.sleep(0.05)
    raise AssertionError("the gateway did not register its workers")
