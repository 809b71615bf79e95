"""`paused`: pause, run the block, always resume, and prove it.

Contract, chapter "The Python client" (`paused` and the order of its errors).
"""

import contextlib
import warnings
from collections.abc import Callable
from types import TracebackType
from typing import TYPE_CHECKING, TypeVar

from .engines import SGLANG, PauseRoutes
from .errors import FanoutError
from .quarantine import RefitWatch
from .report import Pause, Target, others
from .results import FanoutResult
from .resume import Resume, remedy
from .selectors import Selector, SelectorError, Term
from .signals import HeldInterrupts, TerminationExits, hang, note

if TYPE_CHECKING:
    from .client import RL

_F = TypeVar("_F", bound=Callable[..., object])


class paused(contextlib.ContextDecorator):
    """Pause the engines that match, run the block, resume them whatever happens.

    Fans out the pause (`pause_generation` with `{"mode": mode}`, or `{}` without a mode) and
    the resume (`continue_generation` with `{}`). `timeout`: seconds for each of the two, the
    client's own by default. `with … as pause` gives a `Pause`: the `FanoutResult` of the
    pause, and in time who was resumed, missed, joined, restarted, left or is still paused.

    * The pause fails on some engines: the block does not run, the engines are
      resumed, `FanoutError` is raised.
    * The block raises: the engines are resumed, its exception propagates; a failure
      of the resume hangs on it as `__context__`.
    * Only the resume fails: its error is raised.

    The resume is a new fan-out with the same selector: it reaches what matches then. An
    engine that was paused and is not among those is looked up by id, then by URL, and resumed
    by itself. Who cannot be proven to run again is in `still_paused` of the exception, with a
    note that tells how to free it. An interrupt (Ctrl-C) that arrives meanwhile is held back
    until the resume has ended; a second one is not.

    `routes`: the engine's own routes, `SGLANG`, `VLLM` or yours. `resume_retries`: how often
    an engine that failed its resume is asked again, within `timeout` seconds. `quarantine`:
    leave those paused whose refit (`update_weights…`, `collective_rpc` through the same
    client) failed in the block. `sigterm`: SIGTERM in the main thread is a `SystemExit` in
    the block. `check`: raise `ValueError` before anything is paused when a matching engine
    does not list `mode` among its capabilities.
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
    ) -> None:
        self._rl, self._selector, self._mode, self._timeout = rl, selector, mode, timeout
        self._routes, self._check = routes, check
        self._resume = Resume(rl, routes, timeout, resume_retries)
        self._refits = RefitWatch(rl) if quarantine else None
        self._termination = TerminationExits() if sigterm else contextlib.nullcontext()
        self._used = self.resume_sent = False
        self._pause = Pause()
        _warn_of_health(selector)

    def __enter__(self) -> Pause:
        if self._used:
            raise RuntimeError("paused() is for one `with`: make a new one")
        self._used = True
        if self._check and self._mode:
            _check_mode(self._rl, self._selector, self._mode, self._timeout)
        self._termination.__enter__()
        try:
            self._pause = Pause.after(self._send_pause())
            if self._refits:
                self._refits.begin()
        except BaseException as error:
            # Whether it is a refusal, a partial pause or one whose fate is unknown:
            # a resume that nobody needs is harmless, a missing one is not.
            if isinstance(error, FanoutError):
                self._pause = Pause.after(error.result)
            self._finish(error)
            raise
        return self._pause

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._finish(error)

    def __call__(self, function: _F) -> _F:
        """As a decorator: every call of the function is a pause of its own."""
        return super().__call__(function)

    def _recreate_cm(self) -> "paused":
        again = object.__new__(paused)
        again.__dict__.update(self.__dict__, _used=False, resume_sent=False, _pause=Pause())
        return again

    def _send_pause(self) -> FanoutResult:
        body, params = self._routes.pause_call(self._mode)
        route, fanout = self._routes.pause, self._rl.fanout
        if params is None:
            return fanout(route, body, selector=self._selector, timeout=self._timeout)
        return fanout(route, body, selector=self._selector, timeout=self._timeout, params=params)

    def _finish(self, error: BaseException | None) -> None:
        """Resume; with an `error` on its way, that stays the one the caller sees."""
        try:
            try:
                self._resume_once()
            finally:
                self._termination.__exit__(None, None, None)
        except Exception as second:
            self._name_the_stuck(error or second)
            if error is None:
                raise
            hang(second, behind=error)
            sentence = f"The resume failed as well, engines may still be paused: {_who(second)}"
            note(error, sentence)
            # What is on its way may be caught by who knows nothing of a pause.
            _log_error(sentence)
        else:
            if error is not None and self._pause.quarantined:
                self._name_the_stuck(error)

    def _resume_once(self) -> None:
        try:
            self._send_resume()
        except BaseException as error:
            if not self.resume_sent:
                self._send_resume()  # the interrupt came in before it could be held back
            elif not isinstance(error, Exception):
                note(error, f"The resume was interrupted: engines that match {self._selector} may still be paused.")
            raise

    def _send_resume(self) -> None:
        with HeldInterrupts():
            self.resume_sent = True
            selector: str | Selector | None = self._selector
            if self._refits and (bad := self._refits.end(self._pause.concerned)):
                selector = self._without(bad)
            if selector is not None:
                self._resume.run(self._pause, selector)

    def _without(self, bad: list[Target]) -> Selector | None:
        pause = self._pause
        good = others(pause.concerned, bad)
        pause.quarantined[:] = bad
        pause.paused[:] = others(pause.paused, bad)
        pause.uncertain[:] = others(pause.uncertain, bad)
        return Selector((Term("id", "in", tuple(t.worker_id for t in good)),)) if good else None

    def _name_the_stuck(self, error: BaseException) -> None:
        pause = self._pause
        stuck = [*pause.still_paused, *pause.quarantined]
        if stuck:
            with contextlib.suppress(AttributeError):
                error.still_paused = stuck  # type: ignore[attr-defined]  # on whatever is on its way
            pause.still_paused[:] = stuck
            note(error, remedy(pause, self._routes, getattr(self._rl, "base_url", "URL")))


def _log_error(sentence: str) -> None:
    # Here, as most programs never need it.
    import logging

    logging.getLogger("smg.rl").error(sentence)


def _who(error: Exception) -> str:
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
            raise ValueError(
                f"{worker.id} ({worker.url}, {worker.engine}) cannot pause with mode {mode!r}, only {modes}"
            )
