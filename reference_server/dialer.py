"""Makes calls to engines: trust in their certificates, probes, and cutting off what is open."""

import ssl
import threading
import weakref
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from urllib.parse import urlsplit

from .fanout import Window
from .health import HealthPolicy
from .outcome import Answered, Cancelled, Outcome
from .probe import Ask
from .registration import Spec
from .registry import Worker
from .upstream import Address, EngineCall, EngineRequest

_PROBES_AT_ONCE = 32
PROBE_SECONDS = 5.0
"""How long an engine may take to answer one question of its registration."""


class Dialer:
    """Makes every call of one gateway, so that it can end them all.

    `stopping` tells that the gateway stops: questions of its own are given up then.
    """

    def __init__(self, pool: ThreadPoolExecutor, ca_cert_paths: Sequence[str], stopping: threading.Event) -> None:
        self._pool, self._ca_cert_paths, self._stopping = pool, ca_cert_paths, stopping
        self._probes = Window(pool, _PROBES_AT_ONCE, PROBE_SECONDS)
        self._calls: weakref.WeakSet[EngineCall] = weakref.WeakSet()
        self._lock = threading.Lock()
        self._tls: ssl.SSLContext | None = None

    def call(self, worker: Worker, request: EngineRequest) -> EngineCall:
        """A call whose outcome is the engine's whole answer."""
        return self._make(worker.base_url, request)

    def call_for_head(self, worker: Worker, request: EngineRequest) -> EngineCall:
        """A call that ends with the head of the answer; the body can be streamed."""
        return self._make(worker.base_url, request, head_only=True)

    def asker(self, spec: Spec) -> Ask:
        """How a registration asks its engine."""

        def ask(path: str) -> Answered | None:
            call = self._make(spec.url, _get(path, spec.api_key))
            self._probes.run([call], self._stopping.is_set)
            return call.outcome if isinstance(call.outcome, Answered) else None

        return ask

    def ask_health(
        self, policy: HealthPolicy
    ) -> Callable[[Sequence[Worker], Callable[[], bool]], Mapping[Worker, Outcome]]:
        """How health checks ask many workers at once; no outcomes when they were given up."""
        window = Window(self._pool, _PROBES_AT_ONCE, policy.timeout)

        def ask(workers: Sequence[Worker], gone: Callable[[], bool]) -> Mapping[Worker, Outcome]:
            calls = {w: self._make(w.base_url, _get(policy.endpoint, w.api_key)) for w in workers}
            if not window.run(list(calls.values()), gone):
                return {}
            return {worker: call.settled() for worker, call in calls.items()}

        return ask

    def fetch(self, url: str) -> bytes | None:
        """GET a document of an identity provider; None for anything but a whole 2xx."""
        parts = urlsplit(url)
        target = f"{parts.path or '/'}?{parts.query}" if parts.query else parts.path or "/"
        call = self._make(f"{parts.scheme}://{parts.netloc}", _get(target, None))
        self._probes.run([call], self._stopping.is_set)
        answer = call.outcome
        return answer.body if isinstance(answer, Answered) and answer.succeeded and not answer.truncated else None

    def cut(self) -> None:
        """End every call that is open."""
        with self._lock:
            calls = list(self._calls)
        for call in calls:
            call.release(Cancelled())

    def _make(self, url: str, request: EngineRequest, head_only: bool = False) -> EngineCall:
        address = Address.of(url)
        call = EngineCall(address, request, self._trust() if address.scheme == "https" else None, head_only)
        with self._lock:
            self._calls.add(call)
        return call

    def _trust(self) -> ssl.SSLContext:
        # Reading the system's certificates takes 20 ms: once, and only when needed.
        with self._lock:
            if self._tls is None:
                self._tls = ssl.create_default_context()
                for path in self._ca_cert_paths:
                    self._tls.load_verify_locations(path)
            return self._tls


def _get(path: str, key: str | None) -> EngineRequest:
    return EngineRequest("GET", path, (("authorization", f"Bearer {key}"),) if key else ())
