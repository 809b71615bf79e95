"""`smg serve`: engines and a gateway, started together and stopped together.

Flags with the prefix `--router-` go to the gateway without it, flags that are not known
here go to the engines.
"""

import argparse
import importlib.util
import os
import shutil
import signal
import socket
import subprocess
import sys
import threading
from collections import deque
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from dataclasses import dataclass

from reference_server.config import Config
from reference_server.flags import add_flags

_STOP_SECONDS = 20.0
_TAIL_LINES = 20


@dataclass(frozen=True)
class Backend:
    """How to start one kind of engine; `missing` says what to install when it cannot be."""

    command: Callable[[str, int], list[str]]
    installed: Callable[[], bool]
    missing: str


def _vllm() -> str | None:
    beside = os.path.join(os.path.dirname(sys.executable), "vllm")
    return beside if os.access(beside, os.X_OK) else shutil.which("vllm")


BACKENDS = {
    "sglang": Backend(
        lambda model, port: [sys.executable, "-m", "sglang.launch_server", "--model-path", model, *_at(port)],
        lambda: importlib.util.find_spec("sglang") is not None,
        "pip install sglang",
    ),
    "vllm": Backend(
        lambda model, port: [_vllm() or "vllm", "serve", model, *_at(port)],
        lambda: _vllm() is not None,
        "pip install vllm",
    ),
    "mock": Backend(
        lambda model, port: [
            sys.executable,
            "-m",
            "reference_server.engines",
            "sglang",
            "--model-path",
            model,
            *_at(port),
        ],
        lambda: True,
        "",
    ),
}


def main(argv: Sequence[str] | None = None) -> int:
    """Run until SIGTERM, Ctrl-C or the end of an engine. Exit 0, 1 when an engine or the
    set-up failed, 2 for a wrong flag."""
    own, gateway_flags, engine_flags = _split(argv)
    backend = BACKENDS[own.backend]
    if own.connection_mode != "http":
        return _fail("--connection-mode grpc: /v1/rl needs workers that speak HTTP, use --connection-mode http")
    if not backend.installed():
        return _fail(f"--backend {own.backend}: it is not installed here: {backend.missing}")
    from reference_server import cli
    from reference_server.process import Termination

    with Termination() as termination, ExitStack() as stack:
        engines = [
            stack.enter_context(
                EngineProcess(n, own.backend, [*backend.command(own.model_path, port), *engine_flags], port)
            )
            for n, port in enumerate(_free_ports(own.data_parallel_size))
        ]
        for engine in engines:
            engine.watch(termination.wake)
        urls = [engine.url for engine in engines]
        address = ["--host", own.host, "--port", str(own.port)]
        code = cli.main([*address, *gateway_flags, "--worker-urls", *urls], "smg serve", termination)
        dead = [engine for engine in engines if engine.ended]
    for engine in dead:
        print(f"smg serve: {engine.exit_report()}", file=sys.stderr)
    return 1 if dead else code


def parser() -> argparse.ArgumentParser:
    """The flags that are its own; the gateway's port and host are told where the gateway's are."""
    p = argparse.ArgumentParser(prog="smg serve", description="Start engines and a gateway together.")
    default = "(default %(default)s)"
    p.add_argument("--backend", choices=list(BACKENDS), default="sglang", help=f"kind of the engines {default}")
    p.add_argument("--model-path", "--model", required=True, metavar="PATH", help="what the engines serve")
    p.add_argument(
        "--connection-mode", choices=["http", "grpc"], default="http", help=f"what the engines speak {default}"
    )
    p.add_argument(
        "--data-parallel-size", "--dp-size", type=int, default=1, metavar="N", help=f"how many engines {default}"
    )
    add_flags(p, Config, only=("host", "port"))
    return p


def _split(argv: Sequence[str] | None) -> tuple[argparse.Namespace, list[str], list[str]]:
    p = parser()
    own, rest = p.parse_known_args(argv)
    if own.data_parallel_size < 1:
        p.error(f"--data-parallel-size must be >= 1, got {own.data_parallel_size}")
    flags: dict[bool, list[str]] = {True: [], False: []}
    router = False
    for word in rest:
        # A value belongs to the flag before it.
        router = word.startswith("--router-") if word.startswith("--") else router
        flags[router].append("--" + word.removeprefix("--router-") if word.startswith("--router-") else word)
    return own, flags[True], flags[False]


class EngineProcess:
    """One engine process; its output goes to standard error, each line with its name."""

    def __init__(self, number: int, kind: str, command: Sequence[str], port: int) -> None:
        self.name, self.url = f"engine-{number}", f"http://127.0.0.1:{port}"
        self._kind, self._command, self._tail = kind, command, deque[str](maxlen=_TAIL_LINES)
        self.ended = False
        self._stopping = False
        self._watcher: threading.Thread | None = None

    def __enter__(self) -> "EngineProcess":
        self._process = subprocess.Popen(
            self._command,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            # vLLM has its RL routes only in this mode.
            env={"VLLM_SERVER_DEV_MODE": "1", **os.environ},
            text=True,
            errors="replace",
            # A group of its own: engines have children, and Ctrl-C must reach the gateway first.
            start_new_session=True,
        )
        return self

    def watch(self, died: Callable[[], None]) -> None:
        """Pass its output on; `died` is called when it ends by itself."""
        self._watcher = threading.Thread(target=self._pump, args=(died,), name=self.name)
        self._watcher.start()

    def _pump(self, died: Callable[[], None]) -> None:
        assert self._process.stdout is not None
        for line in self._process.stdout:
            self._tail.append(line.rstrip())
            print(f"[{self.name}] {line.rstrip()}", file=sys.stderr)
        self._process.wait()
        if not self._stopping:
            self.ended = True
            died()

    def exit_report(self) -> str:
        """What it was, how it ended and the last it said."""
        tail = "\n".join(f"    {line}" for line in self._tail)
        return (
            f"{self.name} ({self._kind}, {self.url}) ended with exit code {self._process.returncode}; it said:\n{tail}"
        )

    def __exit__(self, *error: object) -> None:
        self._stopping = True
        for number in (signal.SIGTERM, signal.SIGKILL):
            try:
                os.killpg(self._process.pid, number)
                self._process.wait(_STOP_SECONDS)
            except (ProcessLookupError, subprocess.TimeoutExpired):
                pass
        if self._watcher:
            self._watcher.join()
        if self._process.stdout:
            self._process.stdout.close()


def _at(port: int) -> list[str]:
    return ["--host", "127.0.0.1", "--port", str(port)]


def _free_ports(count: int) -> list[int]:
    # Held all at once, so that no port comes up twice.
    with ExitStack() as stack:
        probes = [stack.enter_context(socket.socket()) for _ in range(count)]
        for probe in probes:
            probe.bind(("127.0.0.1", 0))
        return [int(probe.getsockname()[1]) for probe in probes]


def _fail(problem: str) -> int:
    print(f"smg serve: {problem}", file=sys.stderr)
    return 1
