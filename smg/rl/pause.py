"""`paused`: pause, run the block, always resume, and prove it.

Contract, chapter "The Python client" (`paused` and the order of its errors).
"""

import contextlib
import dataclasses
import inspect
import os
import sys
import warnings
import weakref
from collections.abc import Callable
from types import FrameType, TracebackType
from typing import TYPE_CHECKING, Literal, TypeVar

from .abort import AbortableSender
from .engines import RUNNING, SGLANG, PauseRoutes
from .errors import FanoutError, RlError
from .quarantine import RefitWatch
from .report import Pause, Target, others, refusal
from .results import FanoutFailure, FanoutResult
from .resume import Resume, nobody_was_asked, raise_as_it_is
from .selectors import Selector, SelectorError, Term
from .signals import HeldInterrupts, TerminationExits, hang, note

if TYPE_CHECKING:
    from .client import RL
    from .guard import Guard

_F = TypeVar("_F", bound=Callable[..., object])

SETTLE_SECONDS = 3.0
"""How long engines are watched that a late pause may still reach."""


class Duty:
    """What a pause owes: everybody it has, or may have, paused is resumed, or named.

    It outlives the `paused` that made it: when that one is lost in the middle (an exception
    raised in a thread from outside, an event loop that is closed), its finalizer settles it.
    """

    def __init__(self, rl: "RL", selector: str | Selector, routes: PauseRoutes, resume: Resume, verify: bool) -> None:
        self.rl, self.selector, self.routes = rl, selector, routes
        self._resume, self._verify = resume, verify
        self.pause = Pause()
        self.everybody = False
        """Whether nobody knows whom the pause has reached."""
        self.watch: RefitWatch | None = None
        self.guard: Guard | None = None
        self.settled = False
        self._owner = os.getpid()

    def settle(self) -> None:
        """Resume and prove it; raises when somebody is not proven to run. Every call tries anew."""
        bad = self._bad()
        selector: str | Selector | None = self.selector
        if bad:
            selector = self._without(bad)
        if selector is not None:
            learn = self._learn_names if self.everybody else None
            self._resume.run(self.pause, selector, learn, verify=self._verify)
        self.settled = True

    def _bad(self) -> list[Target]:
        bad = self.watch.end() if self.watch else []
        told = [t for t in self.pause.concerned if t.worker_id in self.pause.kept]
        return [*self.pause.quarantined, *others([*bad, *others(told, bad)], self.pause.quarantined)]

    def _without(self, bad: list[Target]) -> Selector | None:
        pause = self.pause
        good = others(pause.concerned, bad)
        pause.quarantined[:] = bad
        pause.paused[:] = others(pause.paused, bad)
        pause.uncertain[:] = others(pause.uncertain, bad)
        return Selector((Term("id", "in", tuple(t.worker_id for t in good)),)) if good else None

    def _learn_names(self) -> list[Target] | None:
        """Who matches now: everybody of them may have been paused; None when that could not be asked."""
        try:
            return [Target.of(worker) for worker in self.rl.match(self.selector, timeout=self._resume.look_seconds)]
        except Exception:  # whatever goes wrong here must not stand in the way of the resume
            return None

    @property
    def stuck(self) -> list[Target]:
        """Who is not proven to run, or was left paused on purpose."""
        pause = self.pause
        waiting = pause.still_paused if self.settled or pause.still_paused else pause.concerned
        return [*others(waiting, [*pause.resumed, *pause.quarantined]), *pause.quarantined]

    def name(self, error: BaseException) -> bool:
        """Put on an error who is stuck, and what frees them; whether somebody is."""
        stuck = self.stuck
        nameless = self.everybody and not self.settled
        if self.everybody and not nameless:
            note(error, self.reach_unknown)
        if not stuck and not nameless:
            return False
        self.pause.still_paused[:] = others(stuck, self.pause.quarantined)
        from .remedy import remedy  # here, as most programs never need it

        base_url = getattr(self.rl, "base_url", "URL")
        lost = nameless or self._resume.gateway_lost
        text = remedy(self.pause, self.routes, base_url, self.selector, gateway_lost=lost)
        self.pause.still_paused[:] = stuck
        if getattr(error, "remedy", None) == text:
            return True  # it was told, as it came
        with contextlib.suppress(AttributeError):
            error.still_paused = stuck  # type: ignore[attr-defined]  # on whatever is on its way
            error.remedy = text  # type: ignore[attr-defined]  # the same
        note(error, text)
        return True

    @property
    def reach_unknown(self) -> str:
        """What cannot be told when the pause got no report."""
        left = f"no report says whom the pause reached; one that matched {self.selector} and has left the gateway"
        return f"{left} since is not known here by name"

    @property
    def owed_elsewhere(self) -> bool:
        """Whether this is a forked child whose parent lives and will settle it."""
        if os.getpid() == self._owner:
            return False
        from .guard import born  # here, as most programs never need it

        try:
            born(self._owner)
        except ProcessLookupError:
            return False
        return True

    def discharge(self) -> None:
        """What the finalizer does: resume, and log who could not be."""
        if os.getpid() != self._owner:
            return  # a forked child owes nothing that it does not end itself
        try:
            if not self.settled:
                self.settle()
                log_error("a `paused` was lost before its end; its engines have been resumed")
        except Exception as error:
            self.name(error)
            log_error(f"a `paused` was lost before its end: {error}\n{getattr(error, 'remedy', '')}")
        finally:
            self.release_guard()

    def release_guard(self) -> None:
        """All is resumed, or named to who is there to hear it: the guard has nothing to do any more."""
        if self.guard is not None:
            self.guard.release()


class paused(contextlib.ContextDecorator):
    """Pause the engines that match, run the block, resume them whatever happens.

    Fans out the pause (`pause_generation` with `{"mode": mode}`, or `{}` without a mode) and
    the resume (`continue_generation` with `{}`). `timeout`: seconds for each of the two, the
    client's own by default. `with … as pause` gives a `Pause`: the `FanoutResult` of the
    pause, and in time who was resumed, missed, joined, restarted, left or is still paused.

    * The pause fails on some engines, or says in its body that it failed: the block does not
      run, the engines are resumed, `FanoutError` is raised.
    * The block raises: the engines are resumed, its exception propagates; a failure
      of the resume hangs on it as `__context__`.
    * Only the resume fails: its error is raised.
    * A forked child leaves the block while its parent is in it: nothing is done.

    The resume is a new fan-out with the same selector: it reaches what matches then. An
    engine that was paused and is not among those is looked up by id, then by URL, and resumed
    by itself. Whom a late pause may still reach is watched for `settle` seconds and resumed
    again. Who cannot be proven to run is in `still_paused` of the exception, with the commands
    that free it in `remedy` and in a note. What a signal handler raises outside the block
    (Ctrl-C, SIGALRM, SIGTERM, …) is held back until the resume has ended; a second time it
    goes through, and names them.

    `routes`: the engine's own routes, `SGLANG`, `VLLM` or yours. `resume_retries`: how often
    an engine that failed its resume is asked again, within `timeout` seconds. `quarantine`:
    leave those paused whose refit failed in the block, through whatever client of this
    process; `pause.quarantine(ids)` tells of others. `sigterm`: SIGTERM in the main thread is
    a `SystemExit` in the block. `check`: raise `ValueError` before anything is paused when a
    matching engine does not list `mode` among its capabilities. `verify`: read the status of
    the engines after the pause and after the resume, of all that can tell, instead of
    believing their answers; None does what the client was made to do. `guard`: a
    small process resumes the engines when this one is killed in the block (SIGKILL, abort, out
    of memory); it leaves those paused whose refit was under way or had failed, unless it is
    "resume". Raises `ValueError` on Windows, and for a client that cannot go to another process.
    """

    def __init__(
        self,
        rl: "RL",
        selector: str | Selector,
        *,
        mode: str | None = None,
        timeout: float | None = None,
        routes: PauseRoutes = SGLANG,
        resume_retries: int = 0,
        quarantine: bool = False,
        sigterm: bool = False,
        check: bool = False,
        verify: bool | None = None,
        settle: float = SETTLE_SECONDS,
        guard: bool | Literal["resume"] = False,
    ) -> None:
        if guard not in (False, True, "resume"):
            raise ValueError(f'guard must be False, True or "resume", got {guard!r}')
        if guard and os.name != "posix":
            raise ValueError("guard works on Linux and macOS only: it needs pipes and processes as they are there")
        if not 0 <= settle < float("inf"):
            raise ValueError(f"settle must be 0 or more seconds, got {settle!r}")
        self._rl, self._selector, self._mode, self._timeout = rl, selector, mode, timeout
        self._routes, self._check = routes, check
        self._verify = bool(getattr(rl, "verify", False) if verify is None else verify)
        self._retries, self._settle_seconds = resume_retries, settle
        self._quarantine, self._sigterm, self._guard = quarantine, sigterm, guard
        self._used = False
        self._prepare()
        _warn_of_health(selector)

    def _prepare(self) -> None:
        """What one `with` has for itself; a decorator makes it anew for every call."""
        resume = Resume(self._rl, self._routes, self._timeout, self._retries, self._settle_seconds)
        self._duty = Duty(self._rl, self._selector, self._routes, resume, self._verify)
        self._pausing, self._abort = _abortable(self._rl)
        self._termination = TerminationExits() if self._sigterm else contextlib.nullcontext()
        inside = (paused.__enter__.__code__, paused.__exit__.__code__)
        self._interrupts = HeldInterrupts(self, inside, self._abort, self._duty.name)
        self._finalizer: weakref.finalize[[Duty, HeldInterrupts], paused] | None = None

    @property
    def resume_sent(self) -> bool:
        """Whether it has been resumed, as far as it could be."""
        return self._duty.settled

    def __enter__(self) -> Pause:
        if self._used:
            raise RuntimeError("paused() is for one `with`: make a new one")
        self._used = True
        if self._check and self._mode:
            _check_mode(self._rl, self._selector, self._mode, self._timeout)
        terms = self._guard_terms() if self._guard else None
        self._termination.__enter__()
        try:
            self._interrupts.install(_caller())
            self._finalizer = weakref.finalize(self, _lost, self._duty, self._interrupts)
            if terms:
                from .guard import Guard  # here, as most programs never need it

                self._duty.guard = Guard(self._rl.base_url, terms)
            with self._interrupts.open():
                self._send_pause()
                self._verify_pause()
            if self._interrupts.pending is not None:
                raise self._interrupts.pending
            self._begin_watch()
            if self._duty.guard:
                self._duty.pause = self._duty.guard.paused(self._duty.pause)
            self._interrupts.enter_block()
            return self._duty.pause
        except BaseException as error:
            # Whether it is a refusal, a partial pause or one whose fate is unknown:
            # a resume that nobody needs is harmless, a missing one is not.
            self._interrupts.leave_block()
            self._finish(error)
            raise

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._interrupts.leave_block()
        self._finish(error)

    def abort(self) -> None:
        """Cut short the pause that is being sent, from another thread; the resume follows."""
        self._abort()

    def __call__(self, function: _F) -> _F:
        """As a decorator: every call of the function is a pause of its own.

        Raises `TypeError` for a coroutine or generator function, whose body would run after
        the resume.
        """
        if inspect.iscoroutinefunction(function) or inspect.isasyncgenfunction(function):
            raise TypeError(
                "paused() cannot decorate a coroutine function: use `async with smg.rl.aio.paused(…)` in it"
            )
        if inspect.isgeneratorfunction(function):
            raise TypeError("paused() cannot decorate a generator function: use `with paused(…)` in it")
        return super().__call__(function)

    def _recreate_cm(self) -> "paused":
        again = object.__new__(paused)
        again.__dict__.update(self.__dict__, _used=False)
        again._prepare()
        return again

    def _guard_terms(self) -> dict[str, object]:
        """What a guard needs to settle the duty of this process in its stead."""
        carried = getattr(self._rl, "carried", None)
        if carried is None:
            raise ValueError(f"guard needs a client that can go to another process, an RL, not {self._rl!r}")
        return {
            "client": carried(),
            "selector": str(self._selector),
            "routes": dataclasses.asdict(self._routes),
            "timeout": self._timeout,
            "resume_retries": self._retries,
            "settle": self._settle_seconds,
            "verify": self._verify,
            "quarantine": self._quarantine,
            "resume_all": self._guard == "resume",
        }

    def _send_pause(self) -> None:
        body, params = self._routes.pause_call(self._mode)
        route, fanout = self._routes.pause, self._pausing.fanout
        self._duty.everybody = True  # until more is known, whatever interrupts this
        try:
            if params is None:
                result = fanout(route, body, selector=self._selector, timeout=self._timeout)
            else:
                result = fanout(route, body, selector=self._selector, timeout=self._timeout, params=params)
        except FanoutError as partial:
            self._duty.pause = Pause.after(partial.result)
            self._duty.everybody = False
            raise
        except BaseException as error:
            answered = getattr(error, "answered", None)
            if answered is not None:
                self._duty.pause = Pause.after(answered)
            self._duty.everybody = not nobody_was_asked(error)
            raise
        self._duty.pause = Pause.after(result)
        self._duty.everybody = False
        refused = [refusal(answer) for answer in result.results.values() if answer.success and not answer.ok]
        if refused:
            raise self._not_paused(refused, "says in its answer that it was not done")

    def _verify_pause(self) -> None:
        """Raise when an engine that has answered the pause goes on generating."""
        pause = self._duty.pause
        if not self._verify or not pause.paused:
            return
        from . import status

        ids = {target.worker_id for target in pause.paused}
        workers = self._pausing.workers(timeout=self._timeout)
        kinds = status.kinds_of(worker for worker in workers if worker.id in ids)
        found = status.read(self._pausing, kinds, self._timeout)
        # One whose status could not be read has left, or goes by another id: nothing is proven of it.
        running = [t for t in pause.paused if found.get(t.worker_id, RUNNING) == RUNNING]
        if running:
            pause.uncertain.extend(running)
            pause.paused[:] = others(pause.paused, running)
            said = "answered the pause and is not proven to be paused"
            raise self._not_paused(
                [FanoutFailure(t.worker_id, t.url, 200, "upstream_error", said) for t in running], said
            )

    def _not_paused(self, failures: list[FanoutFailure], said: str) -> FanoutError:
        pause = self._duty.pause
        named = "; ".join(f"{failure.worker_id} ({failure.url})" for failure in failures[:8])
        text = f"fanout_partial: {len(failures)} of {pause.total} workers failed {self._routes.pause}: {said}: {named}"
        result = FanoutResult(pause.results, [*failures], pause.total, pause.total - len(failures))
        return FanoutError(text, 207, result)

    def _begin_watch(self) -> None:
        if self._quarantine:
            self._duty.watch = RefitWatch(getattr(self._rl, "base_url", ""))
            self._duty.watch.begin(self._duty.pause.concerned)

    def _finish(self, error: BaseException | None) -> None:
        """Resume; with an `error` on its way, that stays the one the caller sees."""
        if self._duty.owed_elsewhere:
            self._end()
            return
        second: BaseException | None = None
        through: BaseException | None = None
        try:
            with self._interrupts.open():
                self._settle()
        except Exception as failed:
            second = failed
        except BaseException as interrupt:
            through = interrupt
        held: BaseException | None = None
        try:
            self._close()
            if second is None and error is None and self._duty.pause.quarantined:
                second = RlError(_left(self._duty.pause), code="quarantined")
            held = self._interrupts.pending
            first = through or held or error or second
            if first is not None:
                self._say(first, second, interrupted=through is not None)
            if first is not None and first is not error:
                if second is None or second is first:
                    raise first
                raise_as_it_is(first)
        finally:
            # Last of all: from here on every interrupt comes as it likes, and finds all said.
            self._end(known=held)

    def _settle(self) -> None:
        try:
            self._duty.settle()
        except Exception:
            raise
        except BaseException as interrupt:
            # Raised from outside in the middle of the resume, where nothing holds it back.
            if not self._duty.settled and self._interrupts.pending is None:
                with contextlib.suppress(Exception):
                    self._duty.settle()
            raise interrupt

    def _close(self) -> None:
        """The resume has ended, well or not: nobody else has to see to it."""
        if self._finalizer is not None:
            self._finalizer.detach()
        self._duty.release_guard()
        if self._duty.watch is not None and not self._duty.watch.seen and self._duty.pause.paused:
            _log_warning("quarantine: no refit was seen in the block, so nobody was left out of the resume")

    def _end(self, known: BaseException | None = None) -> None:
        """The signal handlers as they were; raises an interrupt that came behind the `known` one."""
        self._termination.__exit__(None, None, None)
        late = self._interrupts.uninstall()
        if late is None and self._interrupts.pending is not known:
            late = self._interrupts.pending
        if late is not None:
            self._duty.name(late)
            raise late

    def _say(self, first: BaseException, second: BaseException | None, *, interrupted: bool) -> None:
        """Put on what the caller is to see who is stuck, and the failure of the resume behind it."""
        named = self._duty.name(first)
        if named and interrupted:
            # The next interrupt may come before anybody has read what is on this one.
            log_error(f"the resume was interrupted:\n{getattr(first, 'remedy', '')}")
        if second is not None and second is not first:
            hang(second, behind=first)
            if named:
                sentence = f"The resume failed as well, engines may still be paused: {_who(second)}"
                note(first, sentence)
                # What is on its way may be caught by who knows nothing of a pause.
                log_error(sentence)


def _lost(duty: Duty, interrupts: HeldInterrupts) -> None:
    """The finalizer of a `paused` that never came to its end."""
    duty.discharge()
    interrupts.uninstall()


def _caller() -> FrameType | None:
    """The frame that has the `with`."""
    return sys._getframe(2)


def _abortable(rl: "RL") -> "tuple[RL, Callable[[], None]]":
    """The same client, and what cuts short whatever it is sending."""
    through = getattr(rl, "through", None)
    if through is None:
        return rl, lambda: None
    sender = AbortableSender(lambda: rl.sender)
    return through(sender), sender.abort


def _left(pause: Pause) -> str:
    shown = ", ".join(map(str, pause.quarantined[:8]))
    more = f" and {len(pause.quarantined) - 8} more" if len(pause.quarantined) > 8 else ""
    return f"quarantined: {len(pause.quarantined)} engines were left paused, as their refit failed: {shown}{more}"


def log_error(sentence: str) -> None:
    """Say it on the logger of the client."""
    # Here, as most programs never need it.
    import logging

    logging.getLogger("smg.rl").error(sentence)


def _log_warning(sentence: str) -> None:
    import logging

    logging.getLogger("smg.rl").warning(sentence)


def _who(error: BaseException) -> str:
    if isinstance(error, FanoutError):
        return "; ".join(str(failure) for failure in error.result.failed[:8])
    return str(error)


def _warn_of_health(selector: str | Selector) -> None:
    try:
        terms = (Selector.parse(selector) if isinstance(selector, str) else selector).terms
    except SelectorError:
        return  # the gateway says what is wrong with it
    if any(term.key == "health" for term in terms):
        text = "a paused SGLang engine fails its health check: a `health` term may miss it at the resume"
        warnings.warn(text, stacklevel=3)


def _check_mode(rl: "RL", selector: str | Selector, mode: str, timeout: float | None) -> None:
    for worker in rl.match(selector, timeout=timeout):
        modes = worker.capabilities.get("pause_modes")
        if not isinstance(modes, list) or mode not in modes:
            asked = f"{worker.id} ({worker.url}, {worker.engine})"
            raise ValueError(f"{asked} cannot pause with mode {mode!r}, only {modes}")
