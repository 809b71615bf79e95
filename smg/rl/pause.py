"""`paused`: pause, run the block, always resume.

Contract, chapter "The Python client" (`paused` and the order of its errors).
"""

import threading
from collections.abc import Callable
from types import TracebackType
from typing import TYPE_CHECKING, TypeVar

from .errors import FanoutError
from .results import FanoutResult
from .selectors import Selector

if TYPE_CHECKING:
    from .client import RL

_T = TypeVar("_T")


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
        _uninterrupted(
            lambda: self._rl.fanout("continue_generation", {}, selector=self._selector, timeout=self._timeout)
        )

    def _resume_behind(self, first: BaseException) -> None:
        """Resume while `first` is on its way: it stays the error that the caller sees."""
        try:
            self._resume()
        except Exception as second:
            _hang(second, behind=first)
            _note(first, f"The resume failed as well, engines may still be paused: {_who(second)}")


def _who(error: Exception) -> str:
    if isinstance(error, FanoutError):
        return "; ".join(str(failure) for failure in error.result.failed[:8])
    return str(error)


def _uninterrupted(work: Callable[[], _T]) -> _T:
    """Do `work` to its end; an interrupt meanwhile is raised afterwards, a second one at once."""
    if threading.current_thread() is not threading.main_thread():
        return work()  # signals only ever interrupt the main thread
    done, results, errors = threading.Event(), list[_T](), list[BaseException]()

    def run() -> None:
        try:
            results.append(work())
        except BaseException as error:
            errors.append(error)
        finally:
            done.set()

    thread = threading.Thread(target=run, name="resume")
    try:
        thread.start()
    except RuntimeError:  # the interpreter is shutting down and starts no thread any more
        return work()
    interrupt = _wait(done)
    thread.join()
    if errors:
        if interrupt is not None:
            _hang(errors[0], behind=interrupt)
            raise interrupt
        raise errors[0]
    if interrupt is not None:
        raise interrupt
    return results[0]


def _wait(done: threading.Event) -> BaseException | None:
    try:
        done.wait()
    except BaseException as interrupt:
        done.wait()
        return interrupt
    return None


def _hang(second: BaseException, *, behind: BaseException) -> None:
    """Make the chain `behind` -> `second` -> what `behind` had before, without a cycle."""
    earlier, tail = behind.__context__, second
    # What `second` was raised in the handling of is `behind` itself: cut there.
    while tail.__context__ not in (None, behind, earlier):
        tail = tail.__context__
    tail.__context__ = earlier
    behind.__context__ = second


def _note(error: BaseException, text: str) -> None:
    if hasattr(error, "add_note"):  # Python 3.11
        error.add_note(text)
