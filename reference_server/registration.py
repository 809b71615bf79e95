"""From a worker's URL to entries of the registry, in the background; and out again.

A registration is tried until the engine answers: engines start more slowly than
gateways. Contract, chapter "Discovery row".
"""

import contextlib
import heapq
import itertools
import threading
import time
from collections.abc import Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from urllib.parse import urlsplit

from .probe import Ask, Findings, probe
from .registry import RANKLESS, Ids, Registry, Worker
from .upstream import Address

_MODES = {"http": "http", "https": "http", "grpc": "grpc", "grpcs": "grpc", "ipc": "zmq"}
RUNTIMES = ("sglang", "vllm", "trtllm", "mlx", "tokenspeed", "generic", "external")
WORKER_TYPES = ("regular", "prefill", "decode", "encode")

_JOBS = 16
_FIRST_RETRY, _LAST_RETRY = 0.1, 2.0


@dataclass(frozen=True)
class Spec:
    """What a registration asks for: `Spec("http://rollout-0:30000", labels={"role": "policy"})`.

    `labels` count more than what the engine says of itself, `api_key` is what it is shown.
    `runtime` None asks the engine for its kind; `worker_type` is one of `WORKER_TYPES`.
    Raises `ValueError` for a URL that names no engine.
    """

    url: str
    labels: Mapping[str, str] = field(default_factory=dict)
    api_key: str | None = field(default=None, repr=False)
    runtime: str | None = None
    worker_type: str = "regular"
    priority: int = 50
    cost: float = 1.0

    def __post_init__(self) -> None:
        scheme = self.url.partition("://")[0]
        if scheme not in _MODES or "://" not in self.url:
            raise ValueError("URL must start with a lowercase http://, https://, grpc://, grpcs://, or ipc:// scheme")
        if self.mode != "zmq":
            try:
                parts = urlsplit(self.url)
                empty, _ = not parts.hostname, parts.port
            except ValueError:
                raise ValueError("Invalid URL format: invalid host or port number") from None
            if empty:
                raise ValueError("Invalid URL format: empty host")
        if self.mode == "http":
            Address.of(self.url)

    @property
    def mode(self) -> str:
        """The connection mode that the URL's scheme names."""
        return _MODES[self.url.partition("://")[0]]


@dataclass(order=True)
class _Job:
    due: float
    number: int
    worker_id: str = field(compare=False)
    run: Callable[[], bool] = field(compare=False)
    retry: float = field(compare=False, default=_FIRST_RETRY)
    tried: threading.Event = field(compare=False, default_factory=threading.Event)


class Registrar:
    """Adds and removes workers in the background.

    `asker` gives the function that asks one engine; `startup_timeout` and
    `drain_seconds` are seconds.
    """

    def __init__(
        self,
        registry: Registry,
        asker: Callable[[Spec], Ask],
        ids: Ids,
        *,
        dp_aware: bool = False,
        startup_timeout: float = 1800.0,
        drain_seconds: float = 5.0,
    ) -> None:
        self._registry, self._asker, self._ids, self._dp_aware = registry, asker, ids, dp_aware
        self._startup_timeout, self._drain_seconds = startup_timeout, drain_seconds
        self._changed = threading.Condition()
        self._numbers = itertools.count()
        self._due: list[_Job] = []
        self._pending: dict[str, Spec] = {}
        self._closing = False
        self._pool = ThreadPoolExecutor(_JOBS, thread_name_prefix="register")
        self._thread = threading.Thread(target=self._schedule, daemon=True, name="registrar")

    def start(self) -> None:
        self._thread.start()

    def add(self, spec: Spec, worker_id: str | None = None) -> tuple[str, threading.Event]:
        """Begin a registration: its worker id, and what is set after the first attempt.

        A `worker_id` registers an existing worker anew.
        """
        worker_id = worker_id or self._ids()
        deadline = time.monotonic() + self._startup_timeout
        with self._changed:
            self._pending[worker_id] = spec
        return worker_id, self._later(0.0, worker_id, lambda: self._attempt(worker_id, spec, deadline))

    def remove(self, worker: Worker) -> None:
        """Drain a worker, all ranks of its engine with it, then forget it."""
        workers = [w.id for w in self._registry.ranks(worker.base_url)]
        for worker_id in workers:
            self._registry.set_health(worker_id, "draining")
        self._later(self._drain_seconds, worker.id, lambda: self._forget(workers))

    def pending(self) -> dict[str, Spec]:
        """Registrations that have not come through, by worker id."""
        with self._changed:
            return dict(self._pending)

    def cancel(self, worker_id: str) -> None:
        """Give up a registration that has not come through."""
        with self._changed:
            self._pending.pop(worker_id, None)

    def close(self) -> None:
        with self._changed:
            self._closing = True
            self._changed.notify_all()
        if self._thread.is_alive():
            self._thread.join()
        self._pool.shutdown(wait=True)

    def _attempt(self, worker_id: str, spec: Spec, deadline: float) -> bool:
        findings = self._find(spec)
        with self._changed:
            if self._pending.get(worker_id) is not spec:
                return True
            if findings is None and time.monotonic() < deadline:
                return False
            del self._pending[worker_id]
        if findings is not None:
            self._registry.add(self._workers(worker_id, spec, findings))
        return True

    def _find(self, spec: Spec) -> Findings | None:
        if spec.mode == "http":
            return probe(self._asker(spec), spec.runtime)
        # Nobody here speaks gRPC or ZMQ: what the registration says is believed.
        return Findings(spec.runtime or "unknown")

    def _workers(self, worker_id: str, spec: Spec, findings: Findings) -> list[Worker]:
        ranks = findings.ranks() if self._dp_aware else 1
        return [
            Worker(
                id=worker_id if rank == 0 else self._ids(),
                base_url=spec.url,
                rank=rank if ranks > 1 else RANKLESS,
                engine=findings.engine,
                connection_mode=spec.mode,
                worker_type=spec.worker_type,
                model_id=findings.model_id,
                labels={**findings.labels, **spec.labels},
                priority=spec.priority,
                cost=spec.cost,
                api_key=spec.api_key,
            )
            for rank in range(ranks)
        ]

    def _forget(self, worker_ids: list[str]) -> bool:
        self._registry.remove(worker_ids)
        return True

    def _later(self, seconds: float, worker_id: str, run: Callable[[], bool]) -> threading.Event:
        job = _Job(time.monotonic() + seconds, next(self._numbers), worker_id, run)
        self._push(job)
        return job.tried

    def _push(self, job: _Job) -> None:
        with self._changed:
            heapq.heappush(self._due, job)
            self._changed.notify_all()

    def _schedule(self) -> None:
        with self._changed:
            while not self._closing:
                now = time.monotonic()
                while self._due and self._due[0].due <= now:
                    self._pool.submit(self._perform, heapq.heappop(self._due))
                self._changed.wait(self._due[0].due - now if self._due else None)

    def _perform(self, job: _Job) -> None:
        finished = False
        with contextlib.suppress(OSError):
            finished = job.run()
        job.tried.set()
        if not finished and not self._closing:
            job.due, job.retry = time.monotonic() + job.retry, min(job.retry * 2, _LAST_RETRY)
            self._push(job)
