"""What a pause did, and what became of it: the value that `paused` gives."""

from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import NamedTuple

from .results import CallResult, FanoutFailure, FanoutResult, Worker


class Target(NamedTuple):
    """One engine of a fan-out, by the id and the URL it had then."""

    worker_id: str
    url: str

    @classmethod
    def of(cls, seen: "Worker | CallResult | FanoutFailure") -> "Target":
        """Whom a row, an answer or a failure is about; a report that leaves out a URL has an empty one here."""
        return cls(seen.id if isinstance(seen, Worker) else seen.worker_id, seen.url or "")

    @property
    def address(self) -> str:
        """The engine's own URL, without the rank behind it."""
        address, at, rank = self.url.rpartition("@")
        return address if at and rank.isdigit() else self.url

    def __str__(self) -> str:
        return f"{self.worker_id} ({self.url or 'URL unknown'})"


@dataclass(frozen=True)
class Pause(FanoutResult):
    """The result of the pause; its lists are filled as more becomes known.

    From the pause on: `paused` answered it with 2xx, `uncertain` may have been paused or may
    be yet (no answer came, or a 5xx, or nobody knows whom it reached). After the resume:
    `resumed` are proven to run; `missed` were not reached by its fan-out and were resumed by
    themselves; `joined` match now and were not paused; `restarted` have another id at the
    same URL; `left` the gateway no longer knows; `quarantined` were not resumed because their
    refit failed; `still_paused` are not proven to run, `unreachable` of them do not answer.
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
    unreachable: list[Target] = field(default_factory=list)
    kept: set[str] = field(default_factory=set, repr=False)

    @classmethod
    def after(cls, result: FanoutResult) -> "Pause":
        """What the answer to the pause tells. Who answers that it failed may be paused all the same."""
        refused = [refusal(answer) for answer in result.results.values() if answer.success and not answer.ok]
        failed = [*result.failed, *refused]
        return cls(
            result.results,
            failed,
            result.total,
            result.succeeded - len(refused),
            paused=succeeded(result),
            uncertain=[Target.of(f) for f in failed if _may_have_run(f)],
        )

    def quarantine(self, worker_ids: Iterable[str]) -> None:
        """Leave these engines paused: their refit failed where this process could not see it."""
        if isinstance(worker_ids, str):
            raise TypeError(f"worker_ids must be a collection of ids, not one str: pass [{worker_ids!r}]")
        self.kept.update(worker_ids)

    @property
    def concerned(self) -> list[Target]:
        """Everybody who must be proven to run."""
        return [*self.paused, *self.uncertain]


def succeeded(result: FanoutResult) -> list[Target]:
    """The targets of a fan-out that did what they were asked."""
    return [Target(key, answer.url or "") for key, answer in result.results.items() if answer.ok]


def others(targets: Iterable[Target], known: Iterable[Target]) -> list[Target]:
    """The targets that are none of the known ones, neither by id nor by URL."""
    known = list(known)
    ids, urls = {t.worker_id for t in known}, {t.url for t in known if t.url}
    return [t for t in targets if t.worker_id not in ids and t.url not in urls]


def refusal(answer: CallResult) -> FanoutFailure:
    """A 2xx whose body says that it was not done, as the failure it is."""
    message = f"HTTP {answer.status}, and its body says that it was not done"
    return FanoutFailure(answer.worker_id, answer.url, answer.status, "upstream_error", message)


def _may_have_run(failure: FanoutFailure) -> bool:
    if failure.error == "upstream_error":
        # A 4xx is a refusal. A 2xx is one that says it failed, which says nothing about the state.
        return not 300 <= (failure.status or 0) < 500
    # One that nobody here has heard of may mean anything.
    return failure.error not in _NOT_SENT


_NOT_SENT = ("unsupported_connection_mode", "no_control_endpoint")
