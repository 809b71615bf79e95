"""A proven resume: whoever was paused answers it, or is named.

The contract's fan-out comes first and, when it reaches everybody, is all that is sent. Who
was not reached by it is looked up by id, then by URL, and resumed by itself. Who was reached
and failed is asked again only when the caller wants retries.
"""

import time
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, NoReturn

from .engines import PauseRoutes
from .errors import FanoutError, RlError
from .report import Pause, Target, others, succeeded
from .results import FanoutResult
from .selectors import Selector, Term

if TYPE_CHECKING:
    from .client import RL

# Answers of a gateway that has asked no engine.
_NOBODY_ASKED = {"no_workers_match", "selector_required", "invalid_selector", "invalid_engine_path"}
_FIRST_GAP, _LAST_GAP = 0.5, 5.0


class Resume:
    """One resume of what a pause has paused. `timeout` seconds for each request, and for all
    `retries` together; None is the client's."""

    def __init__(
        self,
        rl: "RL",
        routes: PauseRoutes,
        timeout: float | None,
        retries: int,
        sleep: Callable[[float], None] = time.sleep,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._rl, self._routes, self._timeout, self._retries = rl, routes, timeout, retries
        self._sleep, self._clock = sleep, clock

    def run(self, pause: Pause, selector: str | Selector) -> None:
        """Resume, and write down in `pause` who answered; raises when somebody did not."""
        started = self._clock()
        error: RlError | None = None
        result = FanoutResult()
        try:
            result = self._fanout(selector)
        except FanoutError as partial:
            error, result = partial, partial.result
        except RlError as failed:
            error = failed
        self._settle(pause, result)
        asked = error is None or isinstance(error, FanoutError) or error.code not in _NOBODY_ASKED
        if pause.concerned:
            self._rescue(pause, result, everybody_was_asked=asked and not isinstance(error, FanoutError))
            self._retry(pause, started)
        self._conclude(pause, error)

    def _fanout(self, selector: str | Selector, timeout: float | None = None) -> FanoutResult:
        timeout = self._timeout if timeout is None else timeout
        body = self._routes.resume_body
        return self._rl.fanout(self._routes.resume, body, selector=selector, timeout=timeout)

    def _settle(self, pause: Pause, result: FanoutResult) -> None:
        """Write down who answered a resume."""
        answered = succeeded(result)
        known = pause.concerned
        pause.joined.extend(others(answered, [*known, *pause.joined]))
        by_url = {target.url: target for target in known}
        pause.restarted[len(pause.restarted) :] = [
            t
            for t in answered
            if t.url in by_url and by_url[t.url].worker_id != t.worker_id and t not in pause.restarted
        ]
        still = others(known, [*answered, *pause.resumed])
        pause.resumed[:] = [t for t in known if t not in still]
        pause.still_paused[:] = still

    def _rescue(self, pause: Pause, result: FanoutResult, *, everybody_was_asked: bool) -> None:
        """Resume by themselves those whom the fan-out has not asked."""
        asked = [Target(f.worker_id, f.url) for f in result.failed]
        asked += [Target(key, r.url) for key, r in result.results.items()]
        missed = others(pause.still_paused, asked) if not _lost(result, everybody_was_asked) else []
        if missed:
            pause.missed[:] = missed
            self._one_by_one(pause, missed, self._timeout)

    def _retry(self, pause: Pause, started: float) -> None:
        if not self._retries:
            return
        budget = self._rl.timeout if self._timeout is None else self._timeout
        gap = _FIRST_GAP
        for _ in range(self._retries):
            left = started + budget - self._clock() - gap
            if not others(pause.still_paused, pause.left) or left <= 0:
                return
            self._sleep(gap)
            gap = min(gap * 2, _LAST_GAP)
            self._one_by_one(pause, pause.still_paused, left)

    def _one_by_one(self, pause: Pause, targets: Sequence[Target], timeout: float | None) -> None:
        """Resume these by the ids they have now; who is unknown to the gateway has left."""
        try:
            known = [Target(w.id, w.url) for w in self._rl.workers(timeout=timeout)]
            ids, urls = {t.worker_id for t in known}, {t.url: t for t in known}
            now = [t if t.worker_id in ids else urls[t.url] for t in targets if t.worker_id in ids or t.url in urls]
            pause.left[:] = others(targets, now)
            if now:
                selector = Selector((Term("id", "in", tuple(t.worker_id for t in now)),))
                self._settle(pause, self._fanout(selector, timeout))
        except FanoutError as partial:
            self._settle(pause, partial.result)
        except RlError:
            pass  # they stay in still_paused, and are named

    def _conclude(self, pause: Pause, error: RlError | None) -> None:
        if pause.still_paused:
            _raise(error or RlError(_named(pause), code="still_paused"))
        if isinstance(error, FanoutError):
            failed = [Target(f.worker_id, f.url) for f in error.result.failed]
            if others(failed, pause.resumed):
                _raise(error)
        elif error is not None and not pause.resumed:
            _raise(error)


def _raise(error: RlError) -> NoReturn:
    context = error.__context__
    try:
        raise error
    finally:
        error.__context__ = context  # what it was raised for at first, not what is going on now


def _lost(result: FanoutResult, everybody_was_asked: bool) -> bool:
    """Whether the fan-out may have reached everybody although no answer came."""
    return everybody_was_asked and not result.total


def _named(pause: Pause) -> str:
    return f"still_paused: {len(pause.still_paused)} engines did not resume: {', '.join(map(str, pause.still_paused))}"


def remedy(pause: Pause, routes: PauseRoutes, base_url: str) -> str:
    """One line that says who is stuck and how to free them."""
    gone, known = pause.left, others(pause.still_paused, pause.left)
    lines = []
    if known:
        ids = ",".join(target.worker_id for target in known)
        lines.append(f"smg rl resume --smg {base_url} --selector 'id in ({ids})'")
    body = "" if routes.resume_body is None else " -H 'Content-Type: application/json' -d '{}'"
    lines += [f"curl -X POST {target.url}/{routes.resume}{body}" for target in gone]
    return f"still paused: {', '.join(map(str, pause.still_paused))}; free them with: {'; '.join(lines)}"[:1500]
