"""Does each engine run, now? Asked of the engines, each in its dialect.

A call's own answer proves that the call was answered, no more.
"""

import time
from collections.abc import Iterable, Mapping

from .engines import ENGINES, UNKNOWN_STATUS, UNREACHABLE, StatusReading, facts_of
from .errors import RlError
from .parallel import in_parallel
from .plane import ControlPlane
from .results import CallResult, Worker
from .selectors import Selector, Term

_AT_ONCE = 32
_ONE_SECONDS = 2.0
"""How long one engine may take to tell its status when it is asked by itself."""


def kinds_of(workers: Iterable[Worker]) -> dict[str, str]:
    """The kind of each worker that can be asked, by its id."""
    return {worker.id: worker.engine if worker.connection_mode == "http" else "" for worker in workers}


def read(rl: ControlPlane, kinds: Mapping[str, str], timeout: float | None) -> dict[str, str]:
    """The status of each engine, by worker id; `kinds` has the kind of each.

    One that nobody was asked about in the end, as its id means nothing any more, is missing.
    `timeout`: seconds for each request, None is the client's. Raises `RlError` when the
    gateway can't be asked.
    """
    found: dict[str, str] = {}
    for kind, facts in ENGINES.items():
        ids = [worker_id for worker_id, its in kinds.items() if its == kind]
        if facts.status and ids:
            found |= _read(rl, facts.status, ids, timeout)
    silent = {worker_id: UNKNOWN_STATUS for worker_id, kind in kinds.items() if not facts_of(kind).status}
    return {**found, **silent}


def _read(rl: ControlPlane, reading: StatusReading, ids: list[str], timeout: float | None) -> dict[str, str]:
    found: dict[str, str] = {}
    answers: dict[str, list[tuple[int, object]]] = {worker_id: [] for worker_id in ids}
    for route in reading.routes:
        asked = [worker_id for worker_id in ids if worker_id not in found]
        if not asked:
            break
        said = _ask(rl, route, asked, timeout)
        for worker_id in asked:
            answer = said.get(worker_id)
            if isinstance(answer, str):
                found[worker_id] = answer
            if not isinstance(answer, CallResult):
                continue
            answers[worker_id].append((answer.status, answer.body))
            if status := reading.judge(answers[worker_id]):
                found[worker_id] = status
    return found


def _ask(rl: ControlPlane, route: str, ids: list[str], timeout: float | None) -> dict[str, CallResult | str]:
    """What each engine answers, or its status when it does not answer."""
    selector = Selector((Term("id", "in", tuple(ids)),))
    try:
        result = rl.fanout(route, selector=selector, method="GET", timeout=timeout, allow_partial=True)
    except TimeoutError:
        # One that hangs hides the others in a report that never comes.
        return _ask_each(rl, route, ids)
    except RlError as error:
        if error.code != "no_workers_match":
            raise
        return {}
    lost: dict[str, CallResult | str] = {
        failure.worker_id: UNREACHABLE for failure in result.failed if failure.error.startswith("upstream_")
    }
    return {**lost, **result.results}


def _ask_each(rl: ControlPlane, route: str, ids: list[str]) -> dict[str, CallResult | str]:
    """The same, each engine by itself, for at most `_ONE_SECONDS` or so."""
    found: dict[str, CallResult | str] = {}
    waiting = list(ids)
    end = time.monotonic() + _ONE_SECONDS

    def work() -> None:
        while waiting and time.monotonic() < end:
            try:
                worker_id = waiting.pop()
            except IndexError:
                return
            try:
                found[worker_id] = rl.call(worker_id, route, method="GET", timeout=_ONE_SECONDS)
            except RlError:
                found[worker_id] = UNREACHABLE

    in_parallel(work, min(_AT_ONCE, len(ids)))
    return found
