"""The trainer's side of a guard: it is told without waiting, and never stands in the trainer's way."""

import copy
import os
import pickle
import subprocess
import sys
from pathlib import Path

import pytest

from smg.rl import Pause, Target
from smg.rl.guard import Guard, born

ONE = Target("w1", "http://e1:1")

pytestmark = pytest.mark.skipif(not Path("/proc/self/stat").exists(), reason="looks at processes in /proc")


def open_files() -> list[str]:
    return sorted(os.listdir("/proc/self/fd"))


def test_a_process_that_has_ended_is_known_even_before_its_parent_looks() -> None:
    with subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE) as process:
        assert born(process.pid) == born(process.pid) != born(os.getpid())
        process.kill()
        os.waitid(os.P_PID, process.pid, os.WEXITED | os.WNOWAIT)  # as a parent that does not reap
        with pytest.raises(ProcessLookupError):
            born(process.pid)
    with pytest.raises(ProcessLookupError):
        born(process.pid)


def test_a_guard_that_cannot_be_started_leaves_nothing_open(monkeypatch: pytest.MonkeyPatch) -> None:
    before = open_files()
    monkeypatch.setattr(sys, "executable", "/nowhere/python")
    with pytest.raises(FileNotFoundError):
        Guard("http://h:1", {})
    assert open_files() == before


def test_what_the_pipe_does_not_take_is_kept_and_said_once(caplog: pytest.LogCaptureFixture) -> None:
    before = open_files()
    guard = Guard("http://h:1", {"selector": "x" * (3 << 20)})  # more than it holds, while Python starts
    for _ in range(3):
        guard.began("http://h:1", None)
    guard.release()
    guard.release()
    assert [record.message.rpartition(" was killed ")[2] for record in caplog.records] == ["does not hear"]
    assert open_files() == before


def test_the_pause_that_a_guard_listens_to_can_be_copied_and_pickled() -> None:
    guard = Guard("http://h:1", {})
    pause = guard.paused(Pause(paused=[ONE]))
    pause.quarantine(["w1"])
    for copied in (copy.deepcopy(pause), pickle.loads(pickle.dumps(pause))):
        assert copied == pause and type(copied.kept) is set
    guard.release()


def test_process_1_of_a_container_is_told_that_its_guard_dies_with_it(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(os, "getpid", lambda: 1)
    Guard("http://h:1", {}).release()
    assert [record.message.partition(";")[0] for record in caplog.records] == [
        "guard: this is process 1 of its container"
    ]
