"""The client for asyncio: `AsyncRL` and `paused`, with the semantics of the blocking ones.

Every call in flight has a thread of its own, so no number of calls that hang can keep
another one, or a resume, waiting. A call that is cancelled closes its connection at once,
which makes the gateway cancel its engine calls. Nothing is bound to an event loop.
"""

import asyncio
import contextvars
import threading
from collections.abc import Callable
from types import TracebackType
from typing import TYPE_CHECKING, TypeVar

from .client import RL
from .encoding import Headers, Params
from .engines import SGLANG, PauseRoutes
from .pause import paused as _paused
from .report import Pause
from .results import CallResult, FanoutResult, Worker
from .selectors import Selector

if TYPE_CHECKING:
    import ssl

    from .messages import Abortable, Began, Failure, Request, Response, Sender

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
    ) -> None:
        self.rl = RL(
            base_url,
            api_key,
            timeout,
            ssl_context=ssl_context,
            trust_env=trust_env,
            headers=headers,
            sender=sender,
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

    def __repr__(self) -> str:
        return f"Async{self.rl!r}"

    async def __aenter__(self) -> "AsyncRL":
        return self

    async def __aexit__(self, *error: object) -> None:
        """Nothing to do: no connection outlives its call."""


class paused:
    """`async with paused(rl, selector, …) as pause`: see `smg.rl.paused`, whose keywords it takes
    (but `sigterm`, which is for the main thread).

    A cancellation in the block, or while the pause is under way, resumes first. The resume
    itself is shielded: a cancellation meanwhile takes effect when it has ended.
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
    ) -> None:
        self._sender = _AbortableSender(rl.rl.sender)
        self._pause = _paused(
            rl.rl.through(self._sender),
            selector,
            mode=mode,
            timeout=timeout,
            routes=routes,
            resume_retries=resume_retries,
            quarantine=quarantine,
            check=check,
        )

    async def __aenter__(self) -> Pause:
        return await _in_thread(self._pause.__enter__, self._abort_pause)

    def _abort_pause(self) -> None:
        if not self._pause.resume_sent:
            self._sender.abort_current()

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await _in_thread(lambda: self._pause.__exit__(kind, error, trace), lambda: None)


class _AbortableSender:
    """Sends through another sender, and can abort what is in flight there."""

    def __init__(self, sender: "Sender") -> None:
        self._sender = sender
        self._exchange: Abortable | None = None

    def send(self, request: "Request", timeout: float, began: "Began | None" = None) -> "Response | Failure":
        def note(exchange: "Abortable") -> None:
            self._exchange = exchange
            if began:
                began(exchange)

        return self._sender.send(request, timeout, note)

    def abort_current(self) -> None:
        if self._exchange is not None:
            self._exchange.abort()


async def _run(rl: RL, work: Callable[[RL], _T]) -> _T:
    sender = _AbortableSender(rl.sender)
    return await _in_thread(lambda: work(rl.through(sender)), sender.abort_current)


async def _in_thread(work: Callable[[], _T], abort: Callable[[], None]) -> _T:
    """Run `work` in a thread of its own to its end; a cancellation calls `abort` and waits."""
    loop = asyncio.get_running_loop()
    done: asyncio.Future[None] = loop.create_future()
    results, errors = list[_T](), list[BaseException]()

    def finish() -> None:
        if not done.done():
            done.set_result(None)

    def run() -> None:
        try:
            results.append(context.run(work))
        except BaseException as error:
            errors.append(error)
        finally:
            loop.call_soon_threadsafe(finish)

    context = contextvars.copy_context()
    thread = threading.Thread(target=run, name="rl", daemon=True)
    thread.start()
    cancelled: asyncio.CancelledError | None = None
    while not done.done():
        try:
            await asyncio.shield(done)
        except asyncio.CancelledError as error:
            cancelled = cancelled or error
            abort()
    thread.join()
    if cancelled is not None:
        raise cancelled
    if errors:
        raise errors[0]
    return results[0]
