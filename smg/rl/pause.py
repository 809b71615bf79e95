"""`paused`: pause, run the block, always resume.

Contract, chapter "The Python client" (`paused` and the order of its errors).
"""

import signal
import threading
from collections.abc import Callable
from types import FrameType, TracebackType
from typing import TYPE_CHECKING

from .errors import FanoutError
from .results import FanoutResult
from .selectors import Selector

if TYPE_CHECKING:
    from .client import RL

class paused:
    """Pause the engines that match, run the block, resume them whatever happens.

    For SGLang's native routes: fans out `pause_generation` with `{"mode": mode}`, or
    `{}` without a mode, and `continue_generation` with `{}`. `timeout`: seconds for
    each of the two, the client's own by default. `with … as result` gives the
    `FanoutResult` of the pause.

    * The pause fails on some engines: the block does not run, the engines are
      resumed, `FanoutError` is raised.
    * The block raises: the engines are resumed, its exception propagates; a failure
      of the resume hangs on it as `__context__`.
    * Only the resume fails: its error is raised.

    The resume is a new fan-out with the same selector: it reaches what matches then.
    It is sent once. An interrupt (Ctrl-C) that arrives while it runs is held back
    until it has ended; a second one is not.
    """

    def __init__(
        self, rl: "RL", selector: str | Selector, *, mode: str | None = None, timeout: float | None = None
    ) -> None:
        self._rl, self._selector, self._mode, self._timeout = rl, selector, mode, timeout
        self._used = False
        self._resume_sent = False

    def __enter__(self) -> FanoutResult:
        if self._used:
            raise RuntimeError("paused() is for one `with`: make a new one")
        self._used = True
        try:
            body = {"mode": self._mode} if self._mode else {}
            return self._rl.fanout("pause_generation", body, selector=self._selector, timeout=self._timeout)
        except BaseException as error:
            # Whether it is a refusal, a partial pause or one whose fate is unknown:
            # a resume that nobody needs is harmless, a missing one is not.
            self._resume_behind(error)
            raise

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if error is None:
            self._resume()
        else:
            self._resume_behind(error)

    def _resume(self) -> None:
        try:
            self._send_resume()
        except BaseException as error:
            if not self._resume_sent:
                self._send_resume()  # the interrupt came in before it could be held back
            elif not isinstance(error, Exception):
                _note(error, f"The resume was interrupted: engines that match {self._selector} may still be paused.")
            raise

    def _send_resume(self) -> None:
        with _Held():
            self._resume_sent = True
            self._rl.fanout("continue_generation", {}, selector=self._selector, timeout=self._timeout)

    def _resume_behind(self, first: BaseException) -> None:
        """Resume while `first` is on its way: it stays the error that the caller sees."""
        try:
            self._resume()
        except Exception as second:
            _hang(second, behind=first)
            _note(first, f"The resume failed as well, engines may still be paused: {_who(second)}")


class _Held:
    """Within its `with`, the first exception that a handler of SIGINT or SIGTERM raises waits
    for the end of the block; a second one does not. Only the main thread is ever interrupted."""

    def __enter__(self) -> None:
        self._handlers: dict[int, Callable[[int, FrameType | None], object]] = {}
        self._interrupt: BaseException | None = None
        self._let_through = False
        if threading.current_thread() is threading.main_thread():
            for number in (signal.SIGINT, signal.SIGTERM):
                handler = signal.getsignal(number)
                if callable(handler):
                    self._handlers[number] = handler
                    signal.signal(number, self._arrived)

    def _arrived(self, number: int, frame: FrameType | None) -> None:
        try:
            self._handlers[number](number, frame)
        except BaseException as interrupt:
            if self._interrupt is not None:
                self._let_through = True
                raise
            self._interrupt = interrupt

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        for number, handler in self._handlers.items():
            signal.signal(number, handler)
        if self._interrupt is not None and not self._let_through:
            raise self._interrupt


def _who(error: Exception) -> str:
    if isinstance(error, FanoutError):
        return "; ".join(str(failure) for failure in error.result.failed[:8])
    return str(error)


def _hang(second: BaseException, *, behind: BaseException) -> None:
    """Make the chain `behind` -> `second` -> what `behind` had before, without a circle."""
    if second is behind:
        return
    earlier, tail, seen = behind.__context__, second, {id(second)}
    # What `second` was raised in the handling of is `behind` itself: cut there.
    while tail.__context__ not in (None, behind, earlier) and id(tail.__context__) not in seen:
        tail = tail.__context__
        seen.add(id(tail))
    tail.__context__ = None if earlier is second else earlier
    behind.__context__ = second


def _note(error: BaseException, text: str) -> None:
    if hasattr(error, "add_note"):  # Python 3.11
        error.add_note(text)
