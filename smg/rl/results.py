"""The values a gateway answers with, field by field, and how they are read from JSON.

Contract, chapters "Discovery row", "Call envelope", "Fan-out", "The Python client".
Fields of a later gateway are ignored, missing ones become None.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, fields
from typing import TypeVar

from .selectors import Selector, Term

Json = None | bool | int | float | str | list["Json"] | dict[str, "Json"]
"""What JSON decodes to."""

_T = TypeVar("_T")


@dataclass(frozen=True)
class Worker:
    """One row of discovery: an engine the gateway manages.

    `id` names it in calls; `health` is one of pending, ready, not_ready, failed,
    draining; `weight_version` is the one recorded at registration, never refreshed.
    `control_url` is where a gateway of 1.13 or later sends control calls.
    """

    id: str
    url: str
    base_url: str
    engine: str
    engine_version: str | None
    model_id: str
    worker_type: str
    connection_mode: str
    tp_size: int | None
    dp_size: int | None
    pp_size: int | None
    dp_ranks: int
    role: str | None
    health: str
    weight_version: str | None
    labels: dict[str, str]
    capabilities: dict[str, Json]
    control_url: str | None = None

    @property
    def lookup(self) -> dict[str, str]:
        """What a selector sees of this worker: its labels, shadowed by the derived keys."""
        derived = {
            "id": self.id,
            "url": self.url,
            "base_url": self.base_url,
            "engine": self.engine,
            "model": self.model_id,
            "worker_type": self.worker_type,
            "connection_mode": self.connection_mode,
            "health": self.health,
        }
        return {**self.labels, **derived}

    @classmethod
    def of(cls, row: Mapping[str, Json]) -> "Worker":
        """Read a discovery row."""
        return _read(cls, {**row, "labels": row.get("labels") or {}, "capabilities": row.get("capabilities") or {}})


@dataclass(frozen=True)
class CallResult:
    """One engine's answer: its HTTP status, milliseconds it took, its body.

    `body` is parsed JSON, or text when the engine did not answer JSON. `truncated`
    tells that the engine sent more than the gateway passes on (1 MiB).
    """

    worker_id: str
    url: str
    status: int
    latency_ms: int
    body: Json
    truncated: bool = False

    @property
    def success(self) -> bool:
        """Whether the status is 2xx."""
        return 200 <= self.status < 300

    @property
    def ok(self) -> bool:
        """Whether the status is 2xx and the body does not say otherwise
        (`success: false`, `status: error`)."""
        said = self.body if isinstance(self.body, dict) else {}
        return self.success and said.get("success") is not False and said.get("status") != "error"

    @classmethod
    def of(cls, envelope: Mapping[str, Json]) -> "CallResult":
        """Read a call envelope."""
        return _read(cls, {**envelope, "truncated": envelope.get("body_truncated") is True})


@dataclass(frozen=True)
class FanoutFailure:
    """One target of a fan-out without a 2xx.

    `error` is one of upstream_error (then `status` is the engine's HTTP status),
    upstream_unreachable, upstream_timeout, unsupported_connection_mode (then
    `connection_mode` is the worker's).
    """

    worker_id: str
    url: str
    status: int | None
    error: str
    message: str
    connection_mode: str | None = None

    @classmethod
    def of(cls, entry: Mapping[str, Json]) -> "FanoutFailure":
        """Read an entry of `failed`."""
        return _read(cls, entry)

    def __str__(self) -> str:
        return f"{self.worker_id} ({self.url}): {self.error}: {self.message}"


@dataclass(frozen=True)
class FanoutResult:
    """One fan-out: who answered (by worker id, whatever the status), who failed, how many."""

    results: dict[str, CallResult] = field(default_factory=dict)
    failed: list[FanoutFailure] = field(default_factory=list)
    total: int = 0
    succeeded: int = 0

    def failed_selector(self) -> Selector:
        """Selects those that failed, for a second call; raises `ValueError` when none did."""
        if not self.failed:
            raise ValueError("nobody failed: there is nothing to select")
        return Selector((Term("id", "in", tuple(failure.worker_id for failure in self.failed)),))

    @classmethod
    def merged(cls, parts: Iterable["FanoutResult"]) -> "FanoutResult":
        """One report of several, for different engines."""
        parts = list(parts)
        return cls(
            {key: result for part in parts for key, result in part.results.items()},
            sorted((failure for part in parts for failure in part.failed), key=lambda failure: failure.worker_id),
            sum(part.total for part in parts),
            sum(part.succeeded for part in parts),
        )

    @classmethod
    def of(cls, report: Mapping[str, Json]) -> "FanoutResult":
        """Read the report of a fan-out."""
        results, failed = report.get("results"), report.get("failed")
        total, succeeded = report.get("total"), report.get("succeeded")
        return cls(
            {key: CallResult.of({**value, "worker_id": key}) for key, value in _objects(results).items()},
            [FanoutFailure.of(entry) for entry in failed if isinstance(entry, dict)]
            if isinstance(failed, list)
            else [],
            total if isinstance(total, int) else 0,
            succeeded if isinstance(succeeded, int) else 0,
        )


def _objects(value: Json) -> dict[str, dict[str, Json]]:
    items = value.items() if isinstance(value, dict) else ()
    return {key: item for key, item in items if isinstance(item, dict)}


def _read(kind: type[_T], row: Mapping[str, Json]) -> _T:
    # The wire is trusted for the types it promises, not for which fields are there.
    return kind(*map(row.get, _NAMES[kind]))


_NAMES: dict[object, tuple[str, ...]] = {
    kind: tuple(f.name for f in fields(kind)) for kind in (Worker, CallResult, FanoutFailure)
}
