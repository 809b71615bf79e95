"""Interrupts that are held back until a resume has ended, and how one error hangs behind another."""

import contextlib
import functools
import signal
import sys
import threading
import time
import weakref
from collections.abc import Callable, Iterator
from types import CodeType, FrameType, TracebackType

_Handler = Callable[[int, FrameType | None], object]

_REDELIVER_SECONDS = 0.001


class HeldInterrupts:
    """Holds back what signal handlers raise while a `paused` enters or leaves.

    From `install` to `uninstall` every handler of the main thread runs through here. What
    the first one raises outside the block is kept in `pending`; `began` is called so that
    what is in flight can be cut short. What another one raises goes through where something
    is waited for (`open`), after `name` has told it who may be left paused; elsewhere it is
    dropped, as the first one is on its way already. In the block nothing is held. In other
    threads there is nothing to hold: only the main thread is interrupted.

    `inside` are the code objects of `__enter__` and `__exit__` of `owner`: Python may run a
    handler at their very first and last instruction, which no `try` covers.
    """

    def __init__(
        self,
        owner: object,
        inside: tuple[CodeType, ...],
        began: Callable[[], None],
        name: Callable[[BaseException], object],
    ) -> None:
        # Weak: a `paused` that nobody has any more must reach its finalizer.
        self._owner = weakref.ref(owner)
        self._inside, self._began, self._name = inside, began, name
        self._handlers: dict[int, tuple[_Through, _Handler]] = {}
        self._caller: FrameType | None = None
        self._in_block = self._open = False
        self._raised: set[int] = set()
        self._redelivery: threading.Thread | None = None
        self._sent_again = False
        self.ended = False
        """Whether it holds nothing any more, though some handler may still run through here."""
        self.pending: BaseException | None = None

    def install(self, caller: FrameType | None) -> None:
        """Begin to hold; `caller` is the frame that has the `with`."""
        self._caller = caller if sys.version_info < (3, 11) else None
        try:
            self._wrap()
        except BaseException:
            self.uninstall()
            raise

    @contextlib.contextmanager
    def open(self) -> Iterator[None]:
        """Within its `with` one more interrupt goes through."""
        self._open = True
        try:
            yield
        finally:
            self._open = False

    def enter_block(self) -> None:
        """From now on what is raised in the block is not held."""
        self._in_block = True

    def leave_block(self) -> None:
        """Hold again, what handlers of the block's own making raise too."""
        self._in_block = False
        self._wrap()

    def uninstall(self) -> BaseException | None:
        """End it: every handler is what it was. Gives what was raised meanwhile."""
        interrupt: BaseException | None = None
        while self._handlers and threading.current_thread() is threading.main_thread():
            try:
                self._unwrap()
            except BaseException as late:  # the resume has ended: it may go on its way
                interrupt = late
        self._caller, self.ended = None, True
        if self._redelivery is not None:
            self._redelivery.join()
        return interrupt

    def _wrap(self) -> None:
        if threading.current_thread() is not threading.main_thread():
            return
        for number in _signals():
            handler = signal.getsignal(number)
            known = self._handlers.get(number)
            if callable(handler) and not (known and handler is known[0]):
                self._handlers[number] = (_Through(self, handler), handler)
                signal.signal(number, self._handlers[number][0])

    def _unwrap(self) -> None:
        # The ones that have raised come last: they may raise again as soon as they can.
        for number in sorted(self._handlers, key=self._raised.__contains__):
            ours, theirs = self._handlers[number]
            if signal.getsignal(number) is ours:
                signal.signal(number, _alive(theirs))
            del self._handlers[number]

    def arrived(self, handler: _Handler, number: int, frame: FrameType | None) -> None:
        """Run a handler, and decide about what it raises."""
        if self.ended:
            handler(number, frame)
            return
        if self._sent_again:
            self._sent_again = False
            if self.pending is not None and self._in_block and not self._held_here(frame):
                interrupt, self.pending = self.pending, None
                raise interrupt
            return
        try:
            handler(number, frame)
        except BaseException as interrupt:
            self._raised.add(number)
            if self._in_block and not self._held_here(frame):
                raise
            if self.pending is None:
                self.pending = interrupt
                self._redeliver(number) if self._in_block else self._began()
            elif self._open:
                self._open = False
                self._name(interrupt)
                raise

    def _held_here(self, frame: FrameType | None) -> bool:
        """Whether an exception at this place would miss the `with`: in its `__enter__` or `__exit__`, or between."""
        if frame is self._caller and frame is not None and _at_the_end_of_a_with(frame):
            return True
        while frame is not None:
            if frame.f_code in self._inside and frame.f_locals.get("self") is self._owner():
                return True
            frame = frame.f_back
        return False

    def _redeliver(self, number: int) -> None:
        """Send the signal again until the main thread is where the interrupt can be raised."""
        main = threading.main_thread().ident

        def send() -> None:
            while self.pending is not None and self._in_block and main is not None:
                self._sent_again = True
                signal.pthread_kill(main, number)
                time.sleep(_REDELIVER_SECONDS)

        self._redelivery = threading.Thread(target=send, name="interrupt", daemon=True)
        self._redelivery.start()


@functools.cache
def _signals() -> tuple[int, ...]:
    return tuple(map(int, signal.valid_signals()))


class _Through:
    """The handler in place of another one, which runs through `held`."""

    def __init__(self, held: HeldInterrupts, handler: _Handler) -> None:
        self.held, self.handler = held, handler

    def __call__(self, number: int, frame: FrameType | None) -> None:
        self.held.arrived(self.handler, number, frame)


def _alive(handler: _Handler) -> _Handler:
    """The handler itself, not one of a `paused` that has ended before the one inside it."""
    while isinstance(handler, _Through) and handler.held.ended:
        handler = handler.handler
    return handler


def _at_the_end_of_a_with(frame: FrameType) -> bool:
    """Whether the block of a `with` is left and its `__exit__` not yet called.

    Only Python 3.10 runs handlers there; from 3.11 on the call is the next place.
    """
    if sys.version_info >= (3, 11):
        return False
    import dis

    error = sys.exc_info()[1]
    trace = error.__traceback__ if error else None
    if trace and trace.tb_frame is frame and trace.tb_lasti == frame.f_lasti:
        return True  # an exception is on its way from here to whoever handles it
    names = [dis.opname[op] for op in frame.f_code.co_code[frame.f_lasti : frame.f_lasti + 12 : 2]]
    following = names[1:]
    # After the block: POP_BLOCK, three times None, the call.
    with contextlib.suppress(ValueError):
        call = following.index("CALL_FUNCTION")
        between = {"POP_BLOCK", "LOAD_CONST", "DUP_TOP", "ROT_TWO", "ROT_THREE", "ROT_FOUR"}
        return names[0] in between and set(following[:call]) <= between and "DUP_TOP" in names[: call + 1]
    return False


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
    """Add a line that a traceback shows; before Python 3.11 it goes to the end of the message."""
    if hasattr(error, "add_note"):
        error.add_note(text)
    elif error.args and isinstance(error.args[0], str):
        error.args = (f"{error.args[0]}\n{text}", *error.args[1:])
    else:
        error.args = (text, *error.args)
