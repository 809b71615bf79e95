"""What a test may not leave behind at an engine, and what to do about it."""

from collections.abc import Callable, Collection, Iterator, Sequence
from dataclasses import dataclass

from smg.rl.engines import EngineFacts

from ..httpd.request_log import Entry
from .faults.fault import Fault
from .faults.schedule import Rule

_WAKE_UPS = ("wake_up", "resume_memory_occupation")
"""A wake-up resumes some engines, and begins another step with every one."""


@dataclass(frozen=True)
class Left:
    """An engine at the end: its `url`, its `state` as `MockEngine` tells it, why it `died` unasked,
    what memory is `asleep`, which refits came twice, which faults nobody met."""

    url: str
    state: str
    died: str | None
    asleep: Collection[str]
    repeated: Sequence[tuple[Entry, Entry]]
    unused: Sequence[Rule[Fault]]

    def problems(self) -> Iterator[str]:
        """A sentence for each, with the URL."""
        yield from (sentence for tell in _CHECKS for sentence in tell(self))


def repeated_refits(entries: Sequence[Entry], facts: EngineFacts) -> list[tuple[Entry, Entry]]:
    """Pairs of requests that change weights and are equal in path, query and body, no resume or wake-up between.

    One without a body does not say which refit it belongs to, and is left out.
    """
    resumes = {*_WAKE_UPS, *([facts.pause.resume] if facts.pause else [])}
    seen: dict[tuple[str, str, bytes], Entry] = {}
    pairs = []
    for entry in entries:
        path = entry.path.lstrip("/")
        if path in resumes:
            seen.clear()
        elif path.startswith(facts.refits) and entry.body:
            key = (entry.path, entry.query, entry.body)
            if key in seen:
                pairs.append((seen[key], entry))
            seen[key] = entry
    return pairs


def _paused(left: Left) -> Iterator[str]:
    if left.state == "paused":
        yield f"paused and never resumed: {left.url}; resume it before the end"


def _dead(left: Left) -> Iterator[str]:
    if left.died is not None:
        yield f"died unasked: {left.url}, {left.died}; if that is what the test is about, crash() or restart() it"


def _asleep(left: Left) -> Iterator[str]:
    if left.asleep and left.state != "dead":
        yield f"asleep and never woken up: {left.url}, {', '.join(sorted(left.asleep))}; wake it up before the end"


def _repeated(left: Left) -> Iterator[str]:
    for one, other in left.repeated:
        yield (
            f"the same refit twice without a resume between: {left.url}, {other.method} {other.path}, "
            f"numbers {one.number} and {other.number} of its log; if it is meant, fleet.check(refits_repeated=True)"
        )


def _unused(left: Left) -> Iterator[str]:
    for rule in left.unused:
        fault = type(rule.plan).__name__
        yield f"planned and never used: {left.url}, {fault} for {rule.path}; if it is not needed, clear_faults()"


_CHECKS: Sequence[Callable[[Left], Iterator[str]]] = (_dead, _paused, _asleep, _repeated, _unused)
