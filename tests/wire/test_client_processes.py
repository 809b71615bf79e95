"""Other processes: a client that went to one, Ctrl-C in one, and one that ends in the middle of a block."""

import contextlib
import os
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

import smg

from ..support.misbehaving_server import PATIENCE, Peer, Script, keeping
from ..support.wire_answers import FANNED_OUT, LISTING, Serve

ROOT = Path(smg.__file__).parents[1]

PICKLED = """
import multiprocessing, sys
from smg.rl import RL

rl = RL(sys.argv[1], "the-key", 60)
assert len(rl.workers()) == 1

def work(rl, results):
    results.put([len(rl.workers()), repr(rl)])

if __name__ == "__main__":
    for method in ("fork", "spawn"):
        context = multiprocessing.get_context(method)
        results = context.Queue()
        process = context.Process(target=work, args=(rl, results))
        process.start()
        assert results.get(timeout=60) == [1, repr(rl)], method
        process.join()
        assert process.exitcode == 0
        results.close()
        results.join_thread()
    assert len(rl.workers()) == 1
    print("done")
"""

# Says what happens to it: on Ctrl-C, when a fan-out has ended, and when it has left the block.
INTERRUPTED = """
import os, signal, sys
from smg.rl import RL, paused

def say(*words):
    print(*words, flush=True)

def interrupted(number, frame):
    say("interrupted")
    raise KeyboardInterrupt

class Told(RL):
    def fanout(self, path, body=None, **options):
        result = super().fanout(path, body, **options)
        say("ended", path)
        return result

signal.signal(signal.SIGINT, interrupted)
rl = Told(sys.argv[1], timeout=60, headers={"X-Pid": str(os.getpid())})
try:
    with paused(rl, "a=b"):
        say("block")
        if sys.argv[2] == "block":
            os.kill(os.getpid(), signal.SIGINT)
except KeyboardInterrupt:
    say("left")
"""

UNCAUGHT = """
import sys
from smg.rl import RL, paused
with paused(RL(sys.argv[1], timeout=60), "a=b"):
    raise SystemExit(3)
"""

AT_EXIT = """
import atexit, sys
from smg.rl import RL, paused
pause = paused(RL(sys.argv[1], timeout=60), "a=b")
pause.__enter__()
atexit.register(pause.__exit__, None, None, None)
"""

PLAIN_INTERRUPT = """
import os, signal, sys
from smg.rl import RL, paused
signal.signal(signal.SIGINT, signal.default_int_handler)
with paused(RL(sys.argv[1], timeout=60), "a=b"):
    os.kill(os.getpid(), signal.SIGINT)
"""


@contextlib.contextmanager
def python(*args: str) -> Iterator["subprocess.Popen[str]"]:
    """A Python process whose stdout and stderr can be read together; it is killed when the test is over."""
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    command = [sys.executable, "-W", "error", *args]
    with subprocess.Popen(
        command, env=environment, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True
    ) as process:
        watchdog = threading.Timer(PATIENCE, process.kill)
        watchdog.start()
        try:
            yield process
        finally:
            watchdog.cancel()
            watchdog.join()
            process.kill()


def operation(line: str) -> str:
    return line.split()[1].rpartition("/")[2].partition("?")[0]


def sent(serve: Serve, script: str) -> tuple[int, list[str], list[str]]:
    """What a script that pauses leaves behind: its exit status, its last words, and what it asked for."""
    server = serve(keeping(FANNED_OUT))
    with python("-c", script, server.url) as process:
        output, _ = process.communicate()
    return process.returncode, output.splitlines()[-1:], [operation(request.line) for request in server.received(0)]


BOTH = ["pause_generation", "continue_generation"]
PAUSED = ["ended pause_generation", "block"]


def test_a_client_works_in_a_forked_and_in_a_spawned_process(serve: Serve, tmp_path: Path) -> None:
    server = serve(keeping(LISTING))
    file = tmp_path / "script.py"  # a spawned process imports it
    file.write_text(PICKLED, "utf-8")
    with python(str(file), server.url) as process:
        output, _ = process.communicate()
    assert (output, process.returncode) == ("done\n", 0)
    assert {dict(request.headers)["Authorization"] for request in server.received(4)} == {"Bearer the-key"}


def interrupting_while(wanted: str, taken: threading.Event) -> Script:
    """Answer every fan-out; in the middle of the wanted one, press Ctrl-C and wait until it is taken."""

    def play(peer: Peer) -> None:
        peer.receive()
        if operation(peer.request.line) == wanted:
            os.kill(int(dict(peer.request.headers)["X-Pid"]), signal.SIGINT)
            assert taken.wait(PATIENCE)
        peer.send(LISTING if operation(peer.request.line) == "workers" else FANNED_OUT)
        peer.until_gone()

    return play


@pytest.mark.parametrize(
    ("where", "expected"),
    [
        ("pause_generation", ["interrupted", "ended continue_generation", "left"]),
        ("block", [*PAUSED, "interrupted", "ended continue_generation", "left"]),
        ("continue_generation", [*PAUSED, "interrupted", "ended continue_generation", "left"]),
    ],
)
def test_control_c_is_obeyed_after_the_engines_have_resumed(serve: Serve, where: str, expected: list[str]) -> None:
    taken, lines = threading.Event(), []
    server = serve(interrupting_while(where, taken))
    with python("-c", INTERRUPTED, server.url, where) as process:
        assert process.stdout is not None
        for line in process.stdout:
            lines.append(line.strip())
            if lines[-1] == "interrupted":
                taken.set()
    if where == "pause_generation":
        # It is cut short, or just came to its end; then there are looks at who runs.
        lines = [line for line in lines if line not in ("ended pause_generation", "ended ready")]
    assert lines == expected
    assert [operation(request.line) for request in server.received(2)[:2]] == BOTH


def test_control_c_ends_the_process_as_ever_but_resumes_first(serve: Serve) -> None:
    assert sent(serve, PLAIN_INTERRUPT) == (-signal.SIGINT, ["KeyboardInterrupt"], BOTH)


def test_a_process_that_exits_in_the_block_resumes_first(serve: Serve) -> None:
    assert sent(serve, UNCAUGHT) == (3, [], BOTH)


def test_so_does_one_that_leaves_the_block_at_exit(serve: Serve) -> None:
    # When no thread can be started any more.
    assert sent(serve, AT_EXIT) == (0, [], BOTH)
