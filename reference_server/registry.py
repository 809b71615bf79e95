"""The set of workers: ids, labels, ranks that collapse, discovery rows.

Contract, chapters "Discovery row" and "Selectors" (derived keys).
"""

import random
import threading
import time
import uuid
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field, replace

from smg.rl.selectors import Selector

from .capability import capabilities

RANKLESS = -1


@dataclass(frozen=True, eq=False)
class Worker:
    """One registry entry: an engine address, or one rank of it.

    `labels` are the discovered ones overridden by those set at registration.
    """

    id: str
    base_url: str
    engine: str
    connection_mode: str = "http"
    worker_type: str = "regular"
    model_id: str = "unknown"
    labels: Mapping[str, str] = field(default_factory=dict)
    health: str = "ready"
    rank: int = RANKLESS
    priority: int = 50
    cost: float = 1.0
    api_key: str | None = field(default=None, repr=False)

    @property
    def url(self) -> str:
        """The registered URL; a rank's ends in `@<rank>`."""
        return self.base_url if self.rank == RANKLESS else f"{self.base_url}@{self.rank}"

    @property
    def lookup(self) -> Mapping[str, str]:
        """What a selector sees: the labels, shadowed by the derived keys."""
        return {
            **self.labels,
            "id": self.id,
            "url": self.url,
            "base_url": self.base_url,
            "engine": self.engine,
            "model": self.model_id,
            "worker_type": self.worker_type,
            "connection_mode": self.connection_mode,
            "health": self.health,
        }


def row(worker: Worker, dp_ranks: int) -> dict[str, object]:
    """One discovery row."""
    labels = worker.labels
    return {
        "id": worker.id,
        "url": worker.url,
        "base_url": worker.base_url,
        "engine": worker.engine,
        "engine_version": labels.get("version"),
        "model_id": worker.model_id,
        "worker_type": worker.worker_type,
        "connection_mode": worker.connection_mode,
        **{size: _size(labels.get(size)) for size in ("tp_size", "dp_size", "pp_size")},
        "dp_ranks": dp_ranks,
        "role": labels.get("role"),
        "health": worker.health,
        "weight_version": labels.get("weight_version"),
        "labels": dict(labels),
        "capabilities": capabilities(worker.engine, labels),
    }


def _size(label: str | None) -> int | None:
    text = (label or "").strip()
    return int(text) if text.isascii() and text.isdigit() else None


def collapse(workers: Iterable[Worker]) -> list[Worker]:
    """One worker an engine address, its lowest rank, sorted by address."""
    lowest: dict[str, Worker] = {}
    for worker in sorted(workers, key=lambda w: (w.base_url, w.rank)):
        lowest.setdefault(worker.base_url, worker)
    return list(lowest.values())


def targets(workers: Iterable[Worker], selector: Selector) -> list[Worker]:
    """Whom a fan-out calls, in the order of their addresses. Health is not considered."""
    return [worker for worker in collapse(workers) if selector.matches(worker.lookup)]


class Ids:
    """UUIDv7: time first, so that the order of ids is the order of registration."""

    def __init__(
        self, now_ms: Callable[[], int] = lambda: time.time_ns() // 1_000_000, rng: random.Random | None = None
    ) -> None:
        self._now_ms, self._rng = now_ms, rng or random.SystemRandom()
        self._last = 0
        self._lock = threading.Lock()

    def __call__(self) -> str:
        with self._lock:
            # 48 bits of milliseconds and 12 of a counter, taken together so that
            # a burst, or a clock set back, still counts upwards.
            self._last = max(self._now_ms() << 12, self._last + 1)
            stamp, counter = self._last >> 12, self._last & 0xFFF
        bits = stamp << 80 | 0x7 << 76 | counter << 64 | 0b10 << 62 | self._rng.getrandbits(62)
        return str(uuid.UUID(int=bits))


class Registry:
    """The only mutable collection of the gateway. Safe to use from any thread."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._workers: dict[str, Worker] = {}

    def add(self, workers: Iterable[Worker]) -> None:
        with self._lock:
            self._workers |= {worker.id: worker for worker in workers}

    def remove(self, worker_ids: Iterable[str]) -> None:
        with self._lock:
            for worker_id in worker_ids:
                self._workers.pop(worker_id, None)

    def change(self, worker_id: str, change: Callable[[Worker], Worker]) -> None:
        """Replace a worker by what `change` makes of it; nothing when it is gone."""
        with self._lock:
            if worker_id in self._workers:
                self._workers[worker_id] = change(self._workers[worker_id])

    def set_health(self, worker_id: str, health: str) -> None:
        self.change(worker_id, lambda worker: replace(worker, health=health))

    def all(self) -> list[Worker]:
        """Every worker, in the order of their ids."""
        with self._lock:
            return sorted(self._workers.values(), key=lambda worker: worker.id)

    def get(self, worker_id: str) -> Worker | None:
        with self._lock:
            return self._workers.get(worker_id)

    def ranks(self, base_url: str) -> list[Worker]:
        """The workers that share an engine address."""
        return [worker for worker in self.all() if worker.base_url == base_url]

    def rows(self) -> list[dict[str, object]]:
        """The discovery rows, sorted by `base_url`."""
        workers = self.all()
        counts: dict[str, int] = {}
        for worker in workers:
            counts[worker.base_url] = counts.get(worker.base_url, 0) + 1
        return [row(worker, counts[worker.base_url]) for worker in collapse(workers)]

    def row(self, worker: Worker) -> dict[str, object]:
        """The row of a worker's engine, under that worker's own id and URL."""
        ranks = self.ranks(worker.base_url)
        shown = collapse(ranks)[0] if ranks else worker
        return {**row(shown, max(len(ranks), 1)), "id": worker.id, "url": worker.url}
