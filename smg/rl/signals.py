"""Interrupts that are held back until a resume has ended, and how one error hangs behind another."""

import signal
import threading
from collections.abc import Callable
from types import FrameType, TracebackType


class HeldInterrupts:
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


class TerminationExits:
    """Within its `with`, SIGTERM in the main thread is a `SystemExit` with the usual status."""

    def __enter__(self) -> None:
        self._handler: object = None
        self._installed = threading.current_thread() is threading.main_thread()
        if self._installed:
            self._handler = signal.signal(signal.SIGTERM, _exit)

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._installed:
            signal.signal(signal.SIGTERM, self._handler)  # type: ignore[arg-type]  # what signal gave


def _exit(number: int, frame: FrameType | None) -> None:
    raise SystemExit(128 + number)


def hang(second: BaseException, *, behind: BaseException) -> None:
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


def note(error: BaseException, text: str) -> None:
    """Add a line that a traceback shows, from Python 3.11 on."""
    if hasattr(error, "add_note"):
        error.add_note(text)
