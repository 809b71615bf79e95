"""The client for asyncio: `AsyncRL` and `paused`, with the semantics of the blocking ones.

Every call in flight has a thread of its own, so no number of calls that hang can keep
another one, or a resume, waiting. A call that is cancelled closes its connection at once,
which makes the gateway cancel its engine calls. Nothing is bound to an event loop.
"""

import asyncio
import contextlib
import contextvars
import sys
import threading
from collections.abc import Callable
from types import TracebackType
from typing import TYPE_CHECKING, Generic, Literal, NoReturn, TypeVar

from .abort import AbortableSender
from .client import RL
from .encoding import Headers, Params
from .engines import SGLANG, PauseRoutes
from .errors import RlError
from .pause import SETTLE_SECONDS, log_error
from .pause import paused as _paused
from .report import Pause
from .results import CallResult, FanoutResult, Worker
from .selectors import Selector

if TYPE_CHECKING:
    import ssl

    from .messages import Sender

__all__ = ["AsyncRL", "paused"]

_T = TypeVar("_T")


class AsyncRL:
    """`RL` with awaitable methods: same arguments, same results, same errors.

    `AsyncRL("http://smg:30000", …)` takes the arguments of `RL`; `AsyncRL.of(rl)` shares
    one that exists. Works in any number of loops and threads.
    """

    def __init__(
        self,
        base_url: str,
        api_key: str | None = None,
        timeout: float = 600.0,
        *,
        ssl_context: "ssl.SSLContext | None" = None,
        trust_env: bool = False,
        headers: Headers | Callable[[], Headers] | None = None,
        sender: "Sender | None" = None,
        verify: bool = False,
    ) -> None:
        _refuse_trio()
        self.rl = RL(
            base_url,
            api_key,
            timeout,
            ssl_context=ssl_context,
            trust_env=trust_env,
            headers=headers,
            sender=sender,
            verify=verify,
        )

    @classmethod
    def of(cls, rl: RL) -> "AsyncRL":
        """An asyncio face of a client."""
        made = object.__new__(cls)
        made.rl = rl
        return made

    async def workers(self, *, timeout: float | None = None) -> list[Worker]:
        """See `RL.workers`."""
        return await _run(self.rl, lambda rl: rl.workers(timeout=timeout))

    async def worker(self, worker_id: str, *, timeout: float | None = None) -> Worker:
        """See `RL.worker`."""
        return await _run(self.rl, lambda rl: rl.worker(worker_id, timeout=timeout))

    async def match(self, selector: str | Selector, *, timeout: float | None = None) -> list[Worker]:
        """See `RL.match`."""
        return await _run(self.rl, lambda rl: rl.match(selector, timeout=timeout))

    async def call(
        self,
        worker_id: str,
        path: str,
        body: object = None,
        *,
        method: str = "POST",
        params: Params | None = None,
        timeout: float | None = None,
    ) -> CallResult:
        """See `RL.call`."""
        return await _run(
            self.rl, lambda rl: rl.call(worker_id, path, body, method=method, params=params, timeout=timeout)
        )

    async def fanout(
        self,
        path: str,
        body: object = None,
        *,
        selector: str | Selector,
        method: str = "POST",
        params: Params | None = None,
        timeout: float | None = None,
        allow_partial: bool = False,
    ) -> FanoutResult:
        """See `RL.fanout`."""

        def work(rl: RL) -> FanoutResult:
            return rl.fanout(
                path,
                body,
                selector=selector,
                method=method,
                params=params,
                timeout=timeout,
                allow_partial=allow_partial,
            )

        return await _run(self.rl, work)

    async def weight_versions(self, selector: str | Selector, *, timeout: float | None = None) -> dict[str, str | None]:
        """See `RL.weight_versions`."""
        return await _run(self.rl, lambda rl: rl.weight_versions(selector, timeout=timeout))

    async def expect_weight_version(
        self, selector: str | Selector, version: str, *, timeout: float | None = None
    ) -> None:
        """See `RL.expect_weight_version`."""
        await _run(self.rl, lambda rl: rl.expect_weight_version(selector, version, timeout=timeout))

    async def status(self, selector: str | Selector, *, timeout: float | None = None) -> dict[str, str]:
        """See `RL.status`."""
        return await _run(self.rl, lambda rl: rl.status(selector, timeout=timeout))

    def __repr__(self) -> str:
        return f"Async{self.rl!r}"

    async def __aenter__(self) -> "AsyncRL":
        return self

    async def __aexit__(self, *error: object) -> None:
        """Nothing to do: no connection outlives its call."""


class paused:
    """`async with paused(rl, selector, …) as pause`: see `smg.rl.paused`, whose keywords it takes
    (but `sigterm`, which is for the main thread).

    A cancellation at any await resumes first, also one that meets a pause that has just
    succeeded. The resume itself is shielded: a cancellation meanwhile takes effect when it
    has ended. When the event loop goes away in the middle, a thread finishes the resume.
    Raises `RuntimeError` under trio.
    """

    def __init__(
        self,
        rl: AsyncRL,
        selector: str | Selector,
        *,
        mode: str | None = None,
        timeout: float | None = None,
        routes: PauseRoutes = SGLANG,
        resume_retries: int = 0,
        quarantine: bool = False,
        check: bool = False,
        verify: bool | None = None,
        settle: float = SETTLE_SECONDS,
        guard: bool | Literal["resume"] = False,
    ) -> None:
        _refuse_trio()
        self._pause = _paused(
            rl.rl,
            selector,
            mode=mode,
            timeout=timeout,
            routes=routes,
            resume_retries=resume_retries,
            quarantine=quarantine,
            check=check,
            verify=verify,
            settle=settle,
            guard=guard,
        )

    async def __aenter__(self) -> Pause:
        thread = _Thread(self._pause.__enter__, self._pause.abort, self._leave, daemon=False)
        return await thread.result()

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        thread = _Thread(lambda: self._pause.__exit__(kind, error, trace), lambda: None, daemon=False, even_here=True)
        if isinstance(error, GeneratorExit):
            thread.join()  # the coroutine is thrown away: it can wait, but not await
            return
        await thread.result()

    def __call__(self, function: object) -> NoReturn:
        """Not a decorator: raises `TypeError`."""
        raise TypeError("smg.rl.aio.paused is no decorator: use `async with paused(…)` in the coroutine function")

    def _leave(self) -> None:
        """Resume behind a pause that nobody waits for any more."""
        try:
            self._pause.__exit__(None, None, None)
        except RlError as problem:
            log_error(f"{problem}\n{problem.remedy or ''}")


async def _run(rl: RL, work: Callable[[RL], _T]) -> _T:
    sender = AbortableSender(lambda: rl.sender)
    return await _Thread(lambda: work(rl.through(sender)), sender.abort, daemon=True).result()


class _Thread(Generic[_T]):
    """`work` in a thread of its own, to its end, for a coroutine that awaits `result`.

    `even_here`: where no thread can be had, the caller's does it, and its loop has to wait.

    When the coroutine is cancelled, or its loop goes away, `abort` is called. If the work
    succeeds all the same, `undo` is called before the cancellation goes on its way.
    """

    def __init__(
        self,
        work: Callable[[], _T],
        abort: Callable[[], None],
        undo: Callable[[], None] | None = None,
        *,
        daemon: bool,
        even_here: bool = False,
    ) -> None:
        self._work, self._abort, self._undo, self._even_here = work, abort, undo, even_here
        self._lock = threading.Lock()
        self._given_up = self._finished = self._undone = False
        self._results, self._errors = list[_T](), list[BaseException]()
        self._loop: asyncio.AbstractEventLoop | None = None
        self._done: asyncio.Future[None] | None = None
        context = contextvars.copy_context()
        # Not a daemon where a resume depends on it: the interpreter waits for its end.
        self._thread = threading.Thread(target=context.run, args=(self._run,), name="rl", daemon=daemon)

    def join(self) -> None:
        """Run it to its end, without a loop; raises what the work raises."""
        self._start()
        self._join()
        if self._errors:
            raise self._errors[0]

    async def result(self) -> _T:
        """What the work gives; raises what it raises, and a cancellation when all has ended."""
        self._loop = asyncio.get_running_loop()
        self._done = self._loop.create_future()
        self._start()
        try:
            cancelled = await self._end(self._done)
        except BaseException:
            # The coroutine is thrown away, or an interrupt hit it: nothing can be awaited any more.
            self._abandon()
            raise
        self._join()
        if cancelled is not None:
            if undo := self._claim_undo():
                await _Thread(undo, lambda: None, daemon=False, even_here=True).result()
            raise cancelled
        if self._errors:
            raise self._errors[0]
        return self._results[0]

    def _start(self) -> None:
        try:
            self._thread.start()
        except RuntimeError:  # no more threads, or the interpreter is going down
            if not self._even_here:
                raise
            self._run()

    def _join(self) -> None:
        if self._thread.ident is not None:
            self._thread.join()

    async def _end(self, done: "asyncio.Future[None]") -> asyncio.CancelledError | None:
        """Wait for the end; the first cancellation that came meanwhile."""
        cancelled: asyncio.CancelledError | None = None
        while not done.done():
            try:
                with _shielded() if cancelled else contextlib.nullcontext():
                    await asyncio.shield(done)
            except asyncio.CancelledError as error:
                cancelled = cancelled or error
                self._give_up()
        return cancelled

    def _give_up(self) -> None:
        """Nobody waits for the result any more."""
        with self._lock:
            if self._finished or self._given_up:
                return
            self._given_up = True
        self._abort()

    def _abandon(self) -> None:
        self._give_up()
        if undo := self._claim_undo():
            try:
                threading.Thread(target=undo, name="rl").start()
            except RuntimeError:  # the interpreter is going down
                undo()

    def _claim_undo(self) -> Callable[[], None] | None:
        """What is still to be undone, if the work has succeeded; whoever gets it does it."""
        with self._lock:
            if not self._results or self._undone or not self._finished:
                return None
            self._undone = True
            return self._undo

    def _run(self) -> None:
        try:
            self._results.append(self._work())
        except BaseException as error:
            self._errors.append(error)
        with self._lock:
            self._finished, given_up = True, self._given_up
        if given_up and (undo := self._claim_undo()):
            undo()
        self._tell()

    def _tell(self) -> None:
        loop, done = self._loop, self._done
        if loop is None or done is None:
            return

        def tell() -> None:
            if not done.done():
                done.set_result(None)

        try:
            loop.call_soon_threadsafe(tell)
        except RuntimeError:  # the loop is closed: nobody will take what is here
            if undo := self._claim_undo():
                undo()


def _shielded() -> contextlib.AbstractContextManager[object]:
    """Where a cancel scope of anyio does not cancel again and again: it would turn the wait into a busy loop."""
    anyio = sys.modules.get("anyio")
    return anyio.CancelScope(shield=True) if anyio else contextlib.nullcontext()


def _refuse_trio() -> None:
    """Raise `RuntimeError` in a task of trio, which has no asyncio loop."""
    trio = sys.modules.get("trio")
    if trio is None:
        return
    try:
        trio.lowlevel.current_task()
    except RuntimeError:
        return
    raise RuntimeError(
        "smg.rl.aio runs on asyncio, not on trio: use the blocking client in `trio.to_thread.run_sync(…)`"
    )
