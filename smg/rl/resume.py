"""A proven resume: whoever was paused, or may have been, is proven to run, or is named.

The contract's fan-out comes first and, when it reaches everybody, is all that is sent. Who
was not reached by it is looked up by id, then by URL, and resumed by itself. Who was reached
and failed is asked again when the caller wants retries. Who may yet be paused by a pause
that is still on its way is watched for `settle` seconds.
"""

import time
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, NoReturn

from .engines import ASLEEP, PAUSED, RUNNING, UNKNOWN_STATUS, UNREACHABLE, PauseRoutes
from .errors import FanoutError, RlError
from .report import Pause, Target, others, succeeded
from .results import FanoutResult
from .selectors import Selector, Term

if TYPE_CHECKING:
    from .client import RL

Learn = Callable[[], list[Target] | None]
"""Who may have been paused, as far as the gateway knows now; None when it does not tell."""

# Answers of a gateway that has asked no engine.
_NOBODY_ASKED = {
    *("no_workers_match", "selector_required", "invalid_selector", "invalid_engine_path"),
    "connection_failed",
}
_FIRST_GAP, _LAST_GAP = 0.5, 5.0
_FIRST_LOOK, _LAST_LOOK = 0.1, 1.0
_LOOK_SECONDS = 2.0


def nobody_was_asked(error: BaseException) -> bool:
    """Whether a call that failed so can have reached no engine."""
    if isinstance(error, (ValueError, TypeError)):
        return True  # the client has refused its arguments
    if not isinstance(error, RlError) or isinstance(error, FanoutError):
        return False
    # 408 is a time-out in front of the gateway: what was asked may be on its way.
    return error.code in _NOBODY_ASKED or (300 <= error.status < 500 and error.status != 408)


class Resume:
    """One resume of what a pause has paused.

    `timeout`: seconds for each request and for all `retries` together, None is the client's.
    `settle`: seconds for which those are watched who may yet be paused.
    """

    def __init__(
        self,
        rl: "RL",
        routes: PauseRoutes,
        timeout: float | None,
        retries: int,
        settle: float = 3.0,
        sleep: Callable[[float], None] = time.sleep,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._rl, self._routes, self._timeout, self._retries = rl, routes, timeout, retries
        self._settle, self._sleep, self._clock = settle, sleep, clock
        self._too_early: list[Target] = []
        self.gateway_lost = False
        """Whether the last resume got no report: the ids may mean nothing to the next gateway."""

    def run(
        self,
        pause: Pause,
        selector: str | Selector,
        learn: Learn | None = None,
        *,
        verify: bool = False,
    ) -> None:
        """Resume, and write down in `pause` who is proven to run; raises when somebody is not.

        `learn` finds out who may have been paused, where the pause has not told: once the
        first resume is sent, and at every look, as one that was away for a moment may come
        back. `verify`: look at the status of those who have answered, too.
        """
        started = self._clock()
        error: RlError | None = None
        result = FanoutResult()
        try:
            result = self._fanout(selector)
        except FanoutError as partial:
            error, result = partial, partial.result
        except RlError as failed:
            error, result = failed, failed.answered or FanoutResult()
        known = self._learn(pause, result, learn) if learn else True
        self._note(pause, result)
        if pause.concerned:
            asked = error is None or not nobody_was_asked(error)
            self._rescue(pause, result, everybody_was_asked=asked and not isinstance(error, FanoutError))
            self._retry(pause, started)
            self._watch(pause, verify, learn)
        if not known:
            raise_as_it_is(error or RlError(_nameless(selector), code="still_paused"))
        self._conclude(pause, error)

    def _learn(self, pause: Pause, result: FanoutResult, learn: Learn) -> bool:
        """Put down by name whom a pause of unknown fate may have reached; tries for `settle` seconds."""
        end, gap = self._clock() + self._settle, _FIRST_LOOK
        while (known := learn()) is None and self._clock() < end:
            self._sleep(min(gap, max(0.0, end - self._clock())))
            gap = min(gap * 1.6, _LAST_LOOK)
        pause.uncertain.extend(others(known or [], pause.concerned))
        # One that has left since was there when the resume reached it.
        reached = [*succeeded(result), *map(Target.of, result.failed)]
        pause.uncertain.extend(others(reached, pause.concerned))
        return known is not None

    @property
    def look_seconds(self) -> float:
        """How long one look at the status of engines may take."""
        return min(_LOOK_SECONDS, self._rl.timeout if self._timeout is None else self._timeout)

    def _fanout(self, selector: str | Selector, timeout: float | None = None) -> FanoutResult:
        timeout = self._timeout if timeout is None else timeout
        body = self._routes.resume_body
        self.gateway_lost = True
        try:
            result = self._rl.fanout(self._routes.resume, body, selector=selector, timeout=timeout)
        except RlError as error:
            self.gateway_lost = not isinstance(error, FanoutError) and not 300 <= error.status < 500
            raise
        self.gateway_lost = False
        return result

    def _note(self, pause: Pause, result: FanoutResult) -> None:
        """Write down who answered a resume."""
        answered = succeeded(result)
        known = pause.concerned
        pause.joined.extend(others(answered, [*known, *pause.joined]))
        by_url = {target.url: target for target in known if target.url}
        pause.restarted.extend(
            t
            for t in answered
            if t.url in by_url and by_url[t.url].worker_id != t.worker_id and t not in pause.restarted
        )
        still = others(known, [*answered, *pause.resumed])
        pause.resumed[:] = [t for t in known if t not in still]
        pause.still_paused[:] = still
        early = [Target.of(f) for f in result.failed if f.status in self._routes.too_early]
        self._too_early = [t for t in still if t not in others(still, early)]
        lost = [Target.of(f) for f in result.failed if f.error == "upstream_unreachable"]
        pause.unreachable[:] = [t for t in still if t not in others(still, lost)]

    def _rescue(self, pause: Pause, result: FanoutResult, *, everybody_was_asked: bool) -> None:
        """Resume by themselves those whom the fan-out has not asked."""
        asked = [Target.of(f) for f in result.failed]
        asked += [Target(key, answer.url or "") for key, answer in result.results.items()]
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

    def _watch(self, pause: Pause, verify: bool, learn: Learn | None = None) -> None:
        """Look at those who are in doubt until `settle` seconds have passed; resume who does not run."""
        late = others(pause.uncertain, pause.left)
        doubted = pause.resumed if verify else []
        waiting = [*late, *others([*doubted, *self._too_early], late)]
        end, gap = self._clock() + self._settle, _FIRST_LOOK
        while waiting:
            last = self._clock() >= end
            if learn:
                come = others(learn() or [], pause.concerned)
                pause.uncertain.extend(come)
                late, waiting = [*late, *come], [*waiting, *come]
            seen = self._look(waiting)
            late = self._doubt(pause, late, seen)
            steps = {t: _step(seen.get(t), t in late, t in pause.resumed, last) for t in waiting}
            self._settled(pause, [t for t in waiting if steps[t] == _PROVEN])
            waiting = [t for t in waiting if steps[t] != _PROVEN]
            again = [t for t in waiting if steps[t] == _AGAIN]
            if again:
                self._one_by_one(pause, again, self.look_seconds)
            if last:
                self._give_up(pause, waiting, late)
                return
            if waiting:
                self._sleep(max(0.0, min(gap, end - self._clock())))
                gap = min(gap * 1.6, _LAST_LOOK)

    def _give_up(self, pause: Pause, waiting: Sequence[Target], late: Sequence[Target]) -> None:
        """The time is over: one last look, and who is not proven to run is named."""
        seen = self._look(waiting) if waiting else {}
        late = self._doubt(pause, late, seen)
        steps = {t: _step(seen.get(t), t in late, t in pause.resumed, last=True) for t in waiting}
        proven = [t for t in waiting if steps[t] == _PROVEN]
        pause.resumed[:] = others(pause.resumed, others(waiting, proven))
        self._settled(pause, proven)
        silent = [t for t in pause.still_paused if seen.get(t) == UNREACHABLE]
        pause.unreachable[:] = [*pause.unreachable, *others(silent, pause.unreachable)]

    def _doubt(self, pause: Pause, late: Sequence[Target], seen: dict[Target, str]) -> list[Target]:
        """Who is seen paused has not resumed; those to whom a pause may still be on its way."""
        paused = [t for t, status in seen.items() if status == PAUSED]
        pause.resumed[:] = others(pause.resumed, paused)
        # A pause is sent once: who was seen paused has had it.
        return others(late, paused)

    def _settled(self, pause: Pause, proven: Sequence[Target]) -> None:
        pause.resumed[:] = [t for t in pause.concerned if t in pause.resumed or t in proven]
        pause.still_paused[:] = [t for t in pause.concerned if t not in pause.resumed]
        pause.unreachable[:] = others(pause.unreachable, proven)

    def _look(self, targets: Sequence[Target]) -> dict[Target, str]:
        """The status of each, as far as it can be read; nothing when the gateway does not answer."""
        from . import status  # here, as most resumes look at nobody

        try:
            workers = self._rl.workers(timeout=self.look_seconds)
            kinds = status.kinds_of(workers)
            now = _now(targets, [Target.of(w) for w in workers])
            ids = dict.fromkeys(one.worker_id for one in now.values())
            found = status.read(self._rl, {key: kinds[key] for key in ids}, self.look_seconds) if ids else {}
        except RlError:
            return {}
        return {target: found[one.worker_id] for target, one in now.items() if one.worker_id in found}

    def _one_by_one(self, pause: Pause, targets: Sequence[Target], timeout: float | None) -> None:
        """Resume these by the ids they have now; who is unknown to the gateway has left."""
        try:
            known = [Target.of(w) for w in self._rl.workers(timeout=timeout)]
            now = _now(targets, known)
            pause.left[:] = [*others(pause.left, targets), *(t for t in targets if t not in now)]
            if now:
                selector = Selector((Term("id", "in", tuple(t.worker_id for t in now.values())),))
                self._note(pause, self._fanout(selector, timeout))
        except FanoutError as partial:
            self._note(pause, partial.result)
        except RlError as failed:
            # The others stay in still_paused, and are named.
            if failed.answered:
                self._note(pause, failed.answered)

    def _conclude(self, pause: Pause, error: RlError | None) -> None:
        if pause.still_paused:
            raise_as_it_is(error or RlError(_named(pause), code="still_paused"))
        if isinstance(error, FanoutError):
            failed = [Target.of(f) for f in error.result.failed]
            if others(failed, pause.resumed):
                raise_as_it_is(error)
        elif error is not None and not pause.resumed:
            raise_as_it_is(error)


_PROVEN, _AGAIN, _WAIT = "proven", "resume it again", "wait"


def _step(seen: str | None, late: bool, answered: bool, last: bool) -> str:
    """What to do about an engine in doubt.

    `seen` is its status, None when it could not be read; `late`: a pause may be on its way to
    it; `answered`: it has answered a resume; `last`: there is no more time.
    """
    if seen in (RUNNING, ASLEEP):
        return _WAIT if late and not last else _PROVEN
    if seen in (PAUSED, UNREACHABLE) or late or not answered:
        return _AGAIN
    # It has answered a resume behind which no pause can come: one that can't tell is believed.
    return _PROVEN if seen == UNKNOWN_STATUS else _WAIT


def _now(targets: Sequence[Target], known: Sequence[Target]) -> dict[Target, Target]:
    """By which id and URL each target goes now: the same id, or the same URL under another."""
    ids, urls = {t.worker_id: t for t in known}, {t.url: t for t in known if t.url}
    found = ((t, ids.get(t.worker_id) or urls.get(t.url)) for t in targets)
    return {target: now for target, now in found if now is not None}


def raise_as_it_is(error: BaseException) -> NoReturn:
    """Raise an error with the context that it has."""
    context = error.__context__
    try:
        raise error
    finally:
        error.__context__ = context  # what it was raised for at first, not what is going on now


def _lost(result: FanoutResult, everybody_was_asked: bool) -> bool:
    """Whether the fan-out may have reached everybody although no answer came."""
    return everybody_was_asked and not result.total


def _nameless(selector: str | Selector) -> str:
    return f"still_paused: engines that match {selector} may be paused, and the gateway does not tell which"


def _named(pause: Pause) -> str:
    shown = ", ".join(map(str, pause.still_paused[:8]))
    more = f" and {len(pause.still_paused) - 8} more" if len(pause.still_paused) > 8 else ""
    return f"still_paused: {len(pause.still_paused)} engines are not proven to run: {shown}{more}"
