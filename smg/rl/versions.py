"""Which weights does each engine hold? Asked of the engines, each in its dialect.

Never a path, never what was sent: only what an engine reports under `weight_version`.
"""

from collections.abc import Iterable

from .engines import UNKNOWN, facts_of
from .errors import FanoutError, WeightVersionError
from .plane import ControlPlane
from .results import CallResult, FanoutResult, Worker
from .selectors import Selector, Term

_NO_SUCH_ROUTE = (404, 405, 501)


def read(rl: ControlPlane, selector: str | Selector, timeout: float | None) -> dict[str, str | None]:
    """The version that each matching engine reports, None where it reports none."""
    workers = rl.match(selector, timeout=timeout)
    found: dict[str, str | None] = {}
    for route in dict.fromkeys(route for worker in workers for route in _routes(worker)):
        ids = [w.id for w in workers if w.id not in found and route in _routes(w)]
        if ids:
            found |= _ask(rl, route, ids, timeout)
    return {worker.id: found.get(worker.id) for worker in workers}


def expect(rl: ControlPlane, selector: str | Selector, version: str, timeout: float | None) -> None:
    """Raise `WeightVersionError` for every matching engine that reports something else."""
    urls = {worker.id: worker.url for worker in rl.match(selector, timeout=timeout)}
    versions = read(rl, selector, timeout)
    differing = {key: found for key, found in versions.items() if found != version}
    if differing or not versions:
        shown = [f"{key} ({urls.get(key, '?')}) {_said(found)}" for key, found in list(differing.items())[:8]]
        more = [f"and {len(differing) - 8} more"] if len(differing) > 8 else []
        said = "; ".join([*shown, *more]) or f"no engine matches {selector}"
        raise WeightVersionError(f"weight_version_differs: expected {version!r}: {said}", versions)


def _said(found: str | None) -> str:
    return "reports no version" if found is None else f"has {found!r}"


def _routes(worker: Worker) -> tuple[str, ...]:
    # In this order; the next is for those that do not have the one before.
    return facts_of(worker.engine).version_routes or UNKNOWN.version_routes


def _ask(rl: ControlPlane, route: str, ids: Iterable[str], timeout: float | None) -> dict[str, str | None]:
    """What a route tells, by worker id; who does not have it is left out."""
    selector = Selector((Term("id", "in", tuple(ids)),))
    result = rl.fanout(route, selector=selector, method="GET", timeout=timeout, allow_partial=True)
    lost = [f for f in result.failed if f.status not in _NO_SUCH_ROUTE]
    if lost:
        text = (
            f"{len(lost)} of {result.total} engines did not tell their weight version: {'; '.join(map(str, lost[:8]))}"
        )
        raise FanoutError(text, 207, FanoutResult(result.results, lost, result.total, result.succeeded))
    answers = {key: answer for key, answer in result.results.items() if answer.status not in _NO_SUCH_ROUTE}
    return {key: version for key, answer in answers.items() if (version := _version(answer)) is not None}


def _version(answer: CallResult) -> str | None:
    found = answer.body.get("weight_version") if isinstance(answer.body, dict) else None
    return found if isinstance(found, str) else None
