"""The process that a `guard` has started: waits for the death of a trainer, then resumes its engines.

Its standard input is the pipe from the trainer. Nothing of the trainer's is loaded here, and
nothing but the standard library.
"""

import contextlib
import json
import os
import select
import sys
import time
from collections.abc import Callable, Iterable, Sequence
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from .client import RL
    from .pause import Duty
    from .report import Target

_LOOK_MS = 1000
_FIRST_LOOK, _LAST_LOOK = 0.005, 1.0
_FIRST_GAP, _LAST_GAP = 1.0, 30.0
_STDIN, _STDERR = 0, 2
_SURE_BYTES = 4096
"""How much a pipe takes that takes anything: PIPE_BUF of Linux."""


def main() -> None:
    """Run until the trainer releases it, or until its engines are freed or named; never returns."""
    # Not its child any more: who ends all children of the trainer, and then the trainer, ends not
    # this one. A process 1 would be given it back, so it stays.
    if sys.argv[2] != "1" and os.fork():
        os._exit(0)
    heard = Heard()
    try:
        if wait_for_death(heard):
            os._exit(0 if free(heard, Record(heard.terms)) else 1)
    except Exception:
        import traceback

        selector = heard.terms.get("selector", "…")
        Record(heard.terms).say(f"failed; resume the engines yourself, {selector}:\n{traceback.format_exc()}")
        os._exit(1)
    os._exit(0)


class Heard:
    """What the trainer has told, line by line."""

    def __init__(self) -> None:
        self.terms: dict[str, Any] = {}
        self.released = False
        self.answered = False
        """Whether the pause was answered, so that it is known whom it has reached."""
        self._paused: list[list[str]] = []
        self._uncertain: list[list[str]] = []
        self._under_way: dict[int, str | None] = {}
        self._good: set[str] = set()
        self._bad: set[str] = set()
        self._rest = b""

    def take(self, data: bytes) -> None:
        """The next bytes of the pipe."""
        *lines, self._rest = (self._rest + data).split(b"\n")
        for line in lines:
            word, *told = json.loads(line)
            _HEARERS[word](self, *told)

    def _take_terms(self, terms: dict[str, Any]) -> None:
        self.terms = terms

    def _take_paused(self, paused: list[list[str]], uncertain: list[list[str]]) -> None:
        self.answered, self._paused, self._uncertain = True, paused, uncertain

    def _take_kept(self, worker_ids: list[str]) -> None:
        self._note(worker_ids, good=False)

    def _take_began(self, call: int, worker_id: str | None) -> None:
        self._under_way[call] = worker_id

    def _take_ended(self, call: int, good: list[list[str]], bad: list[list[str]]) -> None:
        self._under_way.pop(call, None)
        self._note((name for names in good for name in names), good=True)
        self._note((name for names in bad for name in names), good=False)

    def _take_lost(self, call: int, worker_id: str | None) -> None:
        self._under_way.pop(call, None)
        everybody = [name for names in (*self._paused, *self._uncertain) for name in names]
        self._note(everybody if worker_id is None else [worker_id], good=False)

    def _take_released(self) -> None:
        self.released = True

    def _note(self, names: Iterable[str], good: bool) -> None:
        known = {name for name in names if name}
        # The last refit counts: a good one lifts what a bad one has done.
        (self._good if good else self._bad).update(known)
        (self._bad if good else self._good).difference_update(known)

    def _left_alone(self, target: "Target") -> bool:
        """Whether its weights may be half new."""
        names, called = {*target}, set(self._under_way.values())
        if None in called or names & called or names & self._bad:
            return True
        # `quarantine=True` leaves those out as well who had no refit while others had.
        return bool(self.terms["quarantine"] and (self._good or self._bad or called) and not names & self._good)

    def duty(self, rl: "RL | None" = None) -> "Duty":
        """What the trainer owed when it died, to be settled through `rl`, or a client like its own."""
        from .client import RL
        from .engines import PauseRoutes
        from .pause import Duty
        from .report import Pause, Target
        from .resume import Resume

        terms = self.terms
        given = terms["routes"]
        routes = PauseRoutes(**{**given, "too_early": tuple(given["too_early"])})
        rl = rl or RL(**terms["client"])
        resume = Resume(rl, routes, terms["timeout"], terms["resume_retries"], terms["settle"])
        duty = Duty(rl, terms["selector"], routes, resume, terms["verify"])
        paused, uncertain = [[Target(*names) for names in some] for some in (self._paused, self._uncertain)]
        duty.pause = Pause(paused=paused, uncertain=uncertain)
        duty.everybody = not self.answered
        if not terms["resume_all"]:
            duty.pause.quarantine(target.worker_id for target in duty.pause.concerned if self._left_alone(target))
        return duty


_HEARERS: dict[str, Callable[..., None]] = {
    name.removeprefix("_take_"): method for name, method in vars(Heard).items() if name.startswith("_take_")
}


def wait_for_death(heard: Heard) -> bool:
    """Hear what the trainer tells until it has died; False when it has released this process."""
    poll = select.poll()
    poll.register(_STDIN, select.POLLIN)
    while True:
        if poll.poll(_LOOK_MS):
            data = os.read(_STDIN, 1 << 16)
            heard.take(data)
            if heard.released or (not data and not heard.terms):
                return False
            if not data:
                break
        elif heard.terms and not _lives(heard):
            # Somebody has inherited the pipe and holds it open; its last words are in it.
            while poll.poll(0) and (data := os.read(_STDIN, 1 << 16)):
                heard.take(data)
            return not heard.released
        else:
            _load()  # there is time, and the files may be gone when they are needed
    gap = _FIRST_LOOK
    while _lives(heard):
        # The end of the pipe comes a moment before the end of the process. Or the trainer has
        # closed what it does not know; then this takes as long as it lives.
        time.sleep(gap)
        gap = min(gap * 2, _LAST_LOOK)
    return True


def _lives(heard: Heard) -> bool:
    from .guard import born

    try:
        return born(heard.terms["trainer"]) in (None, heard.terms["born"])
    except ProcessLookupError:
        return False
    except OSError:
        return True  # nothing is known, so nothing is done


def _load() -> None:
    from . import client, pause, transport  # noqa: F401  # loaded is all they have to be


def free(heard: Heard, record: "Record") -> bool:
    """Resume whom the trainer has left paused, and tell; whether all is well that can be."""
    duty, terms = heard.duty(), heard.terms
    when = "in" if heard.answered else "while entering"
    died = f"the trainer, process {terms['trainer']}, died {when} a `paused` of {terms['selector']}; "
    end, gap, first = time.monotonic() + terms["patience"], _FIRST_GAP, True
    while (problem := _settle(duty)) is not None:
        left = end - time.monotonic()
        if left <= 0:
            record.say(f"{died}gave up after {terms['patience']:g} s: {problem}")
            return False
        if first:
            record.say(f"{died}trying for {left:.0f} s, so far in vain: {problem}")
            first = False
        time.sleep(min(gap, left))
        gap = min(gap * 2, _LAST_GAP)
    record.say(died + _done(duty))
    return True


def _settle(duty: "Duty") -> str | None:
    """What is wrong after one try, with the names and the commands that free them; None when nothing is."""
    try:
        duty.settle()
    except Exception as error:
        text = str(error)
        duty.name(error)
        return f"{text}\n{getattr(error, 'remedy', '')}"
    return None


def _done(duty: "Duty") -> str:
    """Who was resumed, and who was left paused."""
    pause = duty.pause
    running = [*pause.resumed, *pause.joined]
    text = f"resumed {_listed(running)}" if running else "there was nobody to resume"
    if duty.everybody:
        text += f"; {duty.reach_unknown}"
    if pause.quarantined:
        text += (
            f"; left paused, as their refit was under way or had failed: {_listed(pause.quarantined)};"
            " refit them, then resume them (docs: A trainer that is killed)"
        )
    return text


def _listed(targets: Sequence["Target"]) -> str:
    return ", ".join(map(str, targets))


class Record:
    """Says what is done, in a file and on standard error; the file exists once there is something to say."""

    def __init__(self, terms: dict[str, Any]) -> None:
        self._terms = terms
        self._file: int | None = None
        self._place = ""

    def say(self, text: str) -> None:
        """One paragraph. Never raises, and never waits for a reader of standard error."""
        if not self._place:
            self._open()
        if self._file is not None:
            with contextlib.suppress(OSError):
                os.write(self._file, f"{time.strftime('%Y-%m-%d %H:%M:%S%z')} {text}\n".encode("utf-8", "replace"))
        _to_stderr(f"smg.rl guard: {text} [{self._place}]\n".encode("utf-8", "replace"))

    def _open(self) -> None:
        try:
            folder = self._terms.get("folder")
            if folder is None:
                import tempfile

                folder = tempfile.gettempdir()
            died = time.strftime("%Y%m%d-%H%M%S")
            name = f"smg-guard-{self._terms.get('trainer')}-{died}-{os.getpid()}.log"
            place = os.path.join(folder, name)
            self._file = os.open(place, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
            self._place = f"also in {place}"
        except OSError as problem:
            self._place = f"in no file: {problem}"


def _to_stderr(said: bytes) -> None:
    poll = select.poll()
    with contextlib.suppress(OSError):
        poll.register(_STDERR, select.POLLOUT)
        while said and poll.poll(_LOOK_MS):
            said = said[os.write(_STDERR, said[:_SURE_BYTES]) :]
