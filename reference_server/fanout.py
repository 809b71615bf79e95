"""A sliding window of engine calls, each with its own deadline.

Contract, chapter "Fan-out". One call is a fan-out of one.
"""

import contextlib
import queue
import time
from collections import deque
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor

from .outcome import Cancelled, TimedOut
from .upstream import EngineCall

_GLANCE_SECONDS = 0.05
_MANY = 1 << 16


def thread_pool() -> ThreadPoolExecutor:
    """Threads for engine calls, started on demand and reused.

    As good as unbounded, so that calls that hang can never keep a resume waiting.
    """
    return ThreadPoolExecutor(_MANY, thread_name_prefix="engine-call")


class Window:
    """Runs calls, at most `size` of them at a time, each for at most `timeout` seconds."""

    def __init__(self, pool: ThreadPoolExecutor, size: int, timeout: float) -> None:
        self._pool, self._size, self._timeout = pool, size, timeout

    def run(
        self,
        calls: Sequence[EngineCall],
        gone: Callable[[], bool] = lambda: False,
        ended: Callable[[EngineCall, float], None] = lambda call, seconds: None,
    ) -> bool:
        """Run all calls to their outcomes; `ended` hears of each, with its seconds, as it ends.

        False when the caller went away first: then the calls in flight are released
        and the others never start.
        """
        waiting = deque(calls)
        running: dict[EngineCall, float] = {}  # in the order of their deadlines
        reports: queue.SimpleQueue[EngineCall] = queue.SimpleQueue()
        next_glance = 0.0
        while waiting or running:
            now = time.monotonic()
            if now >= next_glance:
                if gone():
                    for call in running:
                        call.release(Cancelled())
                    return False
                next_glance = now + _GLANCE_SECONDS
            while running and (due := next(iter(running.items())))[1] <= now:
                due[0].release(TimedOut(self._timeout))
                del running[due[0]]
                ended(due[0], self._timeout)
            while waiting and len(running) < self._size:
                call = waiting.popleft()
                running[call] = now + self._timeout
                self._pool.submit(_run, call, reports)
            if not running:
                continue
            until = min(next_glance, next(iter(running.values())))
            with contextlib.suppress(queue.Empty):
                call = reports.get(timeout=max(0.0, until - now))
                # A call that was released still reports its end: nobody waits for it.
                if deadline := running.pop(call, None):
                    ended(call, time.monotonic() - deadline + self._timeout)
        return True


def _run(call: EngineCall, reports: "queue.SimpleQueue[EngineCall]") -> None:
    try:
        call.run()
    finally:
        reports.put(call)
