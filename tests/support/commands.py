"""Commands as a user types them, each in a process of its own."""

import json
import os
import subprocess
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

ROOT = Path(__file__).parents[2]
ENVIRONMENT = {**os.environ, "PYTHONPATH": str(ROOT), "PYTHONWARNINGS": "error"}


def run(*command: str, **environment: str) -> "subprocess.CompletedProcess[str]":
    return subprocess.run(
        [sys.executable, *command], capture_output=True, text=True, timeout=60, env={**ENVIRONMENT, **environment}
    )


@contextmanager
def launched(
    *flags: str, command: Sequence[str] = ("-m", "smg", "launch")
) -> Iterator[tuple["subprocess.Popen[str]", str]]:
    """A running gateway and its URL, from the first line it prints."""
    process = subprocess.Popen(
        [sys.executable, *command, *flags], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=ENVIRONMENT
    )
    with process:
        try:
            assert process.stdout is not None and process.stderr is not None
            line = process.stdout.readline()
            assert line, process.stderr.read()
            yield process, json.loads(line)["url"]
        finally:
            process.kill()


def last_line(text: str) -> str:
    return text.strip().splitlines()[-1]


def assert_one_clear_line(done: "subprocess.CompletedProcess[str]", code: int, *words: str) -> None:
    assert done.returncode == code, done.stderr
    assert "Traceback" not in done.stderr
    assert all(word in last_line(done.stderr) for word in words), done.stderr
