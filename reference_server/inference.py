"""Inference through the gateway: pick a ready worker, pass its answer through.

Round robin, no retries. A refitting or paused engine keeps getting requests, as
with SMG: routing knows nothing of the control plane.
"""

import itertools
import json
from collections.abc import Callable, Sequence

from .breaker import Breakers
from .fanout import Window
from .httpd.messages import Reply, Request
from .outcome import Outcome, TimedOut
from .registry import Registry, Worker, collapse
from .upstream import EngineCall, EngineRequest, Head, forwarded

_DROPPED = frozenset(
    "connection content-length date keep-alive proxy-authenticate server te trailer transfer-encoding upgrade".split()
)


class Inference:
    """`/generate`, the `/v1/*` inference routes and `/v1/models`."""

    def __init__(
        self,
        registry: Registry,
        window: Window,
        connect: Callable[[Worker, EngineRequest], EngineCall],
        read_body: Callable[[Request], bytes],
        breakers: Breakers,
    ) -> None:
        self._registry, self._window, self._connect = registry, window, connect
        self._read_body, self._breakers = read_body, breakers
        self._turn = itertools.count()

    def models(self, request: Request) -> Reply:
        names = dict.fromkeys(worker.model_id for worker in self._registry.all() if worker.health == "ready")
        if not names:
            return Reply.of_text(503, "No models available")
        data = [{"id": name, "object": "model", "created": 0, "owned_by": "self_hosted"} for name in names]
        return Reply.of_json(200, {"object": "list", "data": data})

    def pass_through(self, request: Request) -> Reply:
        body = self._read_body(request)
        model = _model(body)
        workers = serving(self._registry.all(), model)
        if not workers:
            return error(404, "Not Found", "model_not_found", f"No worker available for model '{model or 'unknown'}'")
        ready = [worker for worker in workers if worker.health == "ready" and self._breakers.allows(worker.id)]
        if not ready:
            message = "No available workers (all circuits open or unhealthy)"
            return error(503, "Service Unavailable", "no_available_workers", message)
        worker = ready[next(self._turn) % len(ready)]
        headers = forwarded(request, body)
        if worker.api_key:
            headers = (*headers, ("authorization", f"Bearer {worker.api_key}"))
        target = f"{request.path}?{request.query}" if request.query else request.path
        call = self._connect(worker, EngineRequest(request.method, target, headers, body))
        if not self._window.run([call], request.caller.gone):
            return Reply.hang_up()
        # An engine that asks to be asked later is paused or full, not ill.
        status = call.outcome.status if isinstance(call.outcome, Head) else 500
        if status != 503:
            self._breakers.note(worker.id, status < 500)
        return _relayed(worker, call.outcome)


def serving(workers: Sequence[Worker], model: str | None) -> list[Worker]:
    """The HTTP workers that serve a model (any model when none is named), one an address."""
    return [
        worker
        for worker in collapse(workers)
        if worker.connection_mode == "http" and model in (None, worker.model_id, worker.labels.get("served_model_name"))
    ]


def error(status: int, kind: str, code: str, message: str) -> Reply:
    """The error form of the inference routes."""
    body = {"error": {"type": kind, "code": code, "message": message, "param": None}}
    return Reply.of_json(status, body, [("x-smg-error-code", code)])


def _relayed(worker: Worker, outcome: Outcome | Head | None) -> Reply:
    if isinstance(outcome, TimedOut):
        return error(504, "Gateway Timeout", "upstream_timeout", f"no answer from {worker.url}")
    if not isinstance(outcome, Head):
        return error(502, "Bad Gateway", "upstream_unreachable", f"cannot reach {worker.url}")
    headers = [(name, value) for name, value in outcome.headers.items() if name not in _DROPPED]
    headers.append(("x-smg-routed-worker-id", worker.url))
    if "content-length" in outcome.headers:
        return Reply(outcome.status, tuple(headers), b"".join(outcome.pieces))
    return Reply(outcome.status, tuple(headers), stream=outcome.pieces)


def _model(body: bytes) -> str | None:
    try:
        request = json.loads(body)
    except (ValueError, RecursionError):
        return None
    model = request.get("model") if isinstance(request, dict) else None
    return model if isinstance(model, str) else None
