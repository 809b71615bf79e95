"""The gateway under test as a process: started on free ports, its output kept, killed at the end."""

import os
import random
import shlex
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack
from pathlib import Path

from .vectors import LAUNCH

REPOSITORY = Path(__file__).parent.parent.parent
PROXY_VARIABLES = {"http_proxy", "https_proxy", "all_proxy"}
START_PATIENCE = 20.0
POLL = 0.02

PORTS = range(10100, 19900)
"""Below the ports that outgoing connections take, and apart from those of the engines."""

choose = random.SystemRandom().choice


class NotReady(Exception):
    """The gateway did not come up, or does not know its workers."""


def free_port() -> int:
    while True:
        port = choose(PORTS)
        try:
            socket.create_server(("127.0.0.1", port)).close()
        except OSError:
            continue
        return port


def _command(arguments: Sequence[str], port: int, metrics_port: int) -> list[str]:
    return [
        *(shlex.split(LAUNCH) if LAUNCH else (sys.executable, "-m", "reference_server")),
        *arguments,
        *("--host", "127.0.0.1", "--port", str(port)),
        *("--prometheus-host", "127.0.0.1", "--prometheus-port", str(metrics_port)),
    ]


def _environment(extra: Mapping[str, str]) -> dict[str, str]:
    """Ours without proxies: a gateway must find its engines on this machine."""
    return {name: value for name, value in os.environ.items() if name.lower() not in PROXY_VARIABLES} | dict(extra)


def exit_code(arguments: Sequence[str], patience: float) -> int | None:
    """Start a gateway that should refuse to; None if it runs until patience ends."""
    command = _command(arguments, free_port(), free_port())
    try:
        done = subprocess.run(
            command,
            cwd=REPOSITORY,
            env=_environment({}),
            stdin=subprocess.DEVNULL,
            capture_output=True,
            timeout=patience,
        )
    except subprocess.TimeoutExpired:
        return None
    return done.returncode


class Gateway:
    """A context manager around one gateway process."""

    def __init__(self, arguments: Sequence[str], port: int, extra_environment: Mapping[str, str]) -> None:
        self.port, self.metrics_port = port, free_port()
        self._end = time.monotonic() + START_PATIENCE
        with ExitStack() as stack:
            self._log = stack.enter_context(tempfile.TemporaryFile())
            self._process = stack.enter_context(
                subprocess.Popen(
                    _command(arguments, self.port, self.metrics_port),
                    cwd=REPOSITORY,
                    env=_environment(extra_environment),
                    stdin=subprocess.DEVNULL,
                    stdout=self._log,
                    stderr=subprocess.STDOUT,
                )
            )
            stack.callback(self._process.kill)
            self._stack = stack.pop_all()

    def close(self) -> None:
        self._stack.close()

    def until(self, ready: Callable[[], bool], otherwise: str) -> None:
        """Poll until ready; raises `NotReady` with the log's end when the process exits or takes too long."""
        while not ready():
            code = self._process.poll()
            if code is not None:
                raise NotReady(f"the gateway exited with {code}:\n{self.log_since(0)[-2000:]}")
            if time.monotonic() > self._end:
                raise NotReady(f"{otherwise}:\n{self.log_since(0)[-2000:]}")
            time.sleep(POLL)

    def log_size(self) -> int:
        return os.fstat(self._log.fileno()).st_size

    def log_since(self, start: int) -> str:
        # Not read(): the process writes through the same file position.
        return os.pread(self._log.fileno(), self.log_size() - start, start).decode("utf-8", "replace")
