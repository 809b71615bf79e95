"""The trainer's side of a dead man's switch: a small process hears, through a pipe, whom to resume.

What runs there is `guardian`. It acts when the trainer has died without a word of release.
"""

import contextlib
import json
import os
import signal
import subprocess
import sys
import threading
from collections.abc import Iterable, Mapping
from dataclasses import replace
from typing import Any

from . import quarantine
from .report import Pause
from .results import CallResult, FanoutFailure

try:
    import fcntl
except ImportError:  # Windows, where nobody makes a Guard
    fcntl = None  # type: ignore[assignment]  # never used there

PATIENCE_SECONDS = 600.0
"""How long the guard goes on trying to resume when it does not succeed."""

_ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
_PROGRAM = "import sys; sys.path.append(sys.argv[1]); from smg.rl.guardian import main; main()"
_PIPE_BYTES = 1 << 20
_REAP_SECONDS = 1.0


class Guard:
    """One guard process, from here until `release`; it hears of every refit of this process.

    `terms`: what it needs to make the `Duty` again, as JSON. Raises `OSError` when no process
    can be started. Nothing else here waits or raises: a trainer must not stumble over its guard.
    """

    def __init__(self, base_url: str, terms: Mapping[str, object]) -> None:
        self._base_url = base_url
        self._owner, self._lock = os.getpid(), threading.RLock()
        self._waiting, self._complained = bytearray(), False
        reader, self._writer = _pipe()
        try:
            _open.add(self)
            # Before it runs: the pipe keeps it, and nobody has to wait for its start.
            self._tell("terms", {**terms, "trainer": os.getpid(), "born": born(os.getpid()), **_place()})
            self._process = _spawn(reader)
        except BaseException:
            self._close()
            raise
        finally:
            os.close(reader)
        quarantine.watch(self)
        if self._owner == 1:
            _warn("guard: this is process 1 of its container; whatever kills it ends its guard too")

    def paused(self, pause: Pause) -> Pause:
        """Tell it whom the pause has reached; the same pause, whose `quarantine` it hears."""
        self._tell("paused", pause.paused, pause.uncertain)
        return replace(pause, kept=_Kept(self, pause.kept))

    def kept(self, worker_ids: Iterable[str]) -> None:
        """Tell it that these are to be left paused."""
        self._tell("kept", list(worker_ids))

    # A Watcher: a call begins and ends in one thread, so that tells which call it is.

    def began(self, base_url: str, worker_id: str | None) -> None:
        if self._concerns(base_url, worker_id):
            self._tell("began", threading.get_ident(), worker_id)

    def ended(self, base_url: str, results: Iterable[CallResult], failed: Iterable[FanoutFailure]) -> None:
        bad = [(failure.worker_id, failure.url) for failure in failed]
        answers = list(results)
        bad += [(answer.worker_id, answer.url) for answer in answers if not answer.ok]
        good = [(answer.worker_id, answer.url) for answer in answers if answer.ok]
        self._tell("ended", threading.get_ident(), good, bad)

    def lost(self, base_url: str, worker_id: str | None) -> None:
        if self._concerns(base_url, worker_id):
            self._tell("lost", threading.get_ident(), worker_id)

    def _concerns(self, base_url: str, worker_id: str | None) -> bool:
        return worker_id is not quarantine.EVERYBODY or base_url == self._base_url

    def release(self) -> None:
        """It has nothing to do any more, and ends; no matter how often it is told."""
        if self._writer is None or os.getpid() != self._owner:
            return
        quarantine.unwatch(self)
        self._tell("released")
        self._close()
        # What was started has started the guard and ended, unless the block was shorter than that.
        with contextlib.suppress(OSError, subprocess.TimeoutExpired):
            if self._process.poll() is None:
                self._process.kill()
            self._process.wait(_REAP_SECONDS)

    def forget(self) -> None:
        """In a forked child: the pipe must end with the trainer, not with its children."""
        if self._writer is not None:
            with contextlib.suppress(OSError):
                os.close(self._writer)
            self._writer = None

    def _close(self) -> None:
        _open.discard(self)
        self.forget()

    def _tell(self, *words: object) -> None:
        if self._writer is None or os.getpid() != self._owner:
            return
        with self._lock:
            # A line is never cut: what does not fit now goes before what is said next.
            self._waiting += json.dumps(words).encode() + b"\n"
            try:
                while self._waiting:
                    del self._waiting[: os.write(self._writer, self._waiting)]
                return
            except BlockingIOError:
                problem = "does not hear"
            except OSError:
                problem = "has ended"
        if not self._complained:
            self._complained = True
            _warn(f"guard: the process that would resume the engines after this one was killed {problem}")


class _Kept(set[str]):
    """The ids that `Pause.quarantine` was told of, for which the guard listens."""

    def __init__(self, guard: Guard, worker_ids: Iterable[str]) -> None:
        super().__init__(worker_ids)
        self._guard = guard

    def update(self, *others: Iterable[str]) -> None:
        added = {worker_id for other in others for worker_id in other}
        super().update(added)
        self._guard.kept(added)

    def __reduce__(self) -> tuple[Any, ...]:
        return set, (list(self),)  # a copy has no guard


def born(pid: int) -> int | None:
    """When a process began, in ticks since the machine did: with its id a name that no other process ever has.

    None where the system does not tell. Raises `ProcessLookupError` for one that has ended.
    """
    try:
        with open(f"/proc/{pid}/stat", "rb") as file:
            # Its name may hold anything, parentheses too.
            fields = file.read().rpartition(b")")[2].split()
    except FileNotFoundError:
        os.kill(pid, 0)
        return None
    except PermissionError:
        return None
    state, threads, ticks = fields[0], int(fields[17]), int(fields[19])
    if state in (b"Z", b"X") and threads <= 1:
        raise ProcessLookupError(f"{pid} has ended, its parent has not looked yet")
    return ticks


_open: set[Guard] = set()


def _forget_all() -> None:
    for guard in _open:
        guard.forget()
    _open.clear()


os.register_at_fork(after_in_child=_forget_all)


def _place() -> dict[str, object]:
    """Where it leaves its file, and how long it tries."""
    folder = os.environ.get("SMG_GUARD_DIR")
    return {"folder": os.path.abspath(folder) if folder else None, "patience": PATIENCE_SECONDS}


def _pipe() -> tuple[int, int | None]:
    reader, writer = os.pipe()
    os.set_blocking(writer, False)
    with contextlib.suppress(OSError, AttributeError):  # Linux only, and not when the user has too many
        fcntl.fcntl(writer, fcntl.F_SETPIPE_SZ, _PIPE_BYTES)
    return reader, writer


def _spawn(stdin: int) -> "subprocess.Popen[bytes]":
    """Start it: in a session of its own, deaf to every signal but SIGKILL."""
    # Isolated and without site: nothing of the user's is loaded, and it starts in half the time.
    command = [sys.executable, "-I", "-S", "-c", _PROGRAM, _ROOT, str(os.getpid())]
    # Blocked signals stay blocked in what is started, from its first instruction on.
    before = signal.pthread_sigmask(signal.SIG_BLOCK, signal.valid_signals())
    try:
        return subprocess.Popen(command, stdin=stdin, stdout=subprocess.DEVNULL, start_new_session=True, cwd="/")
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)


def _warn(sentence: str) -> None:
    import logging

    logging.getLogger("smg.rl").warning(sentence)
