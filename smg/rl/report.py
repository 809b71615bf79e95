"""What a pause did, and what became of it: the value that `paused` gives."""

from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import NamedTuple

from .results import FanoutFailure, FanoutResult


class Target(NamedTuple):
    """One engine of a fan-out, by the id and the URL it had then."""

    worker_id: str
    url: str

    def __str__(self) -> str:
        return f"{self.worker_id} ({self.url})"


@dataclass(frozen=True)
class Pause(FanoutResult):
    """The result of the pause; its lists are filled as more becomes known.

    From the pause on: `paused` answered it with 2xx, `uncertain` may have been paused (no
    answer came, or a 5xx). After the resume: `resumed` answered it; `missed` were not reached
    by its fan-out and were resumed by themselves; `joined` match now and were not paused;
    `restarted` have another id at the same URL; `left` the gateway no longer knows;
    `quarantined` were not resumed because their refit failed; `still_paused` were paused, or
    may have been, and have not answered a resume.
    """

    paused: list[Target] = field(default_factory=list)
    uncertain: list[Target] = field(default_factory=list)
    resumed: list[Target] = field(default_factory=list)
    missed: list[Target] = field(default_factory=list)
    joined: list[Target] = field(default_factory=list)
    restarted: list[Target] = field(default_factory=list)
    left: list[Target] = field(default_factory=list)
    quarantined: list[Target] = field(default_factory=list)
    still_paused: list[Target] = field(default_factory=list)

    @classmethod
    def after(cls, result: FanoutResult) -> "Pause":
        """What the answer to the pause tells."""
        return cls(
            result.results,
            result.failed,
            result.total,
            result.succeeded,
            paused=succeeded(result),
            uncertain=[Target(f.worker_id, f.url) for f in result.failed if _may_have_run(f)],
        )

    @property
    def concerned(self) -> list[Target]:
        """Everybody who must answer a resume."""
        return [*self.paused, *self.uncertain]


def succeeded(result: FanoutResult) -> list[Target]:
    """The targets of a fan-out that answered with 2xx."""
    return [Target(key, r.url) for key, r in result.results.items() if 200 <= r.status < 300]


def others(targets: Iterable[Target], known: Iterable[Target]) -> list[Target]:
    """The targets that are none of the known ones, neither by id nor by URL."""
    known = list(known)
    ids, urls = {t.worker_id for t in known}, {t.url for t in known}
    return [t for t in targets if t.worker_id not in ids and t.url not in urls]


def _may_have_run(failure: FanoutFailure) -> bool:
    if failure.error == "upstream_error":
        return (failure.status or 0) >= 500
    return failure.error in ("upstream_timeout", "upstream_unreachable")
