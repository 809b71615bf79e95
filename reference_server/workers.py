"""The `/workers` handlers: list, register, change, remove. Work happens in the background."""

import json
import uuid
from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import replace

from .httpd.messages import JSON, Refusal, Reply, Request
from .registration import RUNTIMES, WORKER_TYPES, Registrar, Spec
from .registry import Registry, Worker

_MISFIT = "Failed to deserialize the JSON body into the target type: "


class Workers:
    """`/workers` over a registry and its registrar."""

    def __init__(self, registry: Registry, registrar: Registrar, read_body: Callable[[Request], bytes]) -> None:
        self._registry, self._registrar, self._read_body = registry, registrar, read_body

    def list(self, request: Request) -> Reply:
        workers = self._registry.all()
        kinds = Counter(worker.worker_type for worker in workers)
        stats = {f"{kind}_count": kinds[kind] for kind in ("prefill", "decode", "regular")}
        return Reply.of_json(200, {"workers": [_row(w) for w in workers], "total": len(workers), "stats": stats})

    def add(self, request: Request) -> Reply:
        spec = _spec(self._json(request))
        for worker_id, pending in self._registrar.pending().items():
            if pending.url == spec.url:
                text = f"Worker creation already in progress for URL '{spec.url}' with ID {worker_id}. "
                return _error(409, "WORKER_CREATE_IN_PROGRESS", f"{text}Poll GET /workers/{worker_id}.")
        for worker in self._registry.ranks(spec.url):
            text = f"Worker already exists for URL '{spec.url}' with ID {worker.id}"
            return _error(409, "WORKER_ALREADY_EXISTS", text)
        worker_id, _ = self._registrar.add(spec)
        location = f"/workers/{worker_id}"
        accepted = {
            "status": "accepted",
            "worker_id": worker_id,
            "url": spec.url,
            "location": location,
            "message": "Worker addition queued for background processing",
        }
        return Reply.of_json(202, accepted, [("location", location)])

    def one(self, request: Request, worker_id: str) -> Reply:
        worker_id = _uuid(worker_id)
        if worker := self._registry.get(worker_id):
            return Reply.of_json(200, _row(worker))
        if spec := self._registrar.pending().get(worker_id):
            return Reply.of_json(200, _pending_row(worker_id, spec))
        raise _not_found(worker_id)

    def replace(self, request: Request, worker_id: str) -> Reply:
        worker = self._find(worker_id)
        self._registrar.add(_spec({"url": worker.base_url, **self._json(request)}), worker.id)
        return _accepted(worker.id, "update")

    def patch(self, request: Request, worker_id: str) -> Reply:
        worker = self._find(worker_id)
        change = self._json(request)
        labels, priority, cost = _labels(change), _whole(change, "priority"), _number(change, "cost")
        key = _optional_text(change, "api_key")

        def changed(before: Worker) -> Worker:
            return replace(
                before,
                labels={**before.labels, **labels},
                priority=before.priority if priority is None else priority,
                cost=before.cost if cost is None else cost,
                api_key=before.api_key if key is None else key,
            )

        self._registry.change(worker.id, changed)
        return _accepted(worker.id, "update")

    def remove(self, request: Request, worker_id: str) -> Reply:
        worker_id = _uuid(worker_id)
        if worker_id in self._registrar.pending():
            self._registrar.cancel(worker_id)
        else:
            self._registrar.remove(self._find(worker_id))
        return _accepted(worker_id, "removal")

    def _find(self, worker_id: str) -> Worker:
        worker = self._registry.get(_uuid(worker_id))
        if worker is None:
            raise _not_found(worker_id)
        return worker

    def _json(self, request: Request) -> Mapping[str, object]:
        if JSON not in (request.header("content-type") or "").lower():
            raise Refusal.of_text(415, f"Expected request with `Content-Type: {JSON}`")
        body = self._read_body(request)
        try:
            value = json.loads(body)
        except (ValueError, RecursionError):
            raise Refusal.of_text(400, "Failed to parse the request body as JSON") from None
        if not isinstance(value, dict):
            raise Refusal.of_text(422, f"{_MISFIT}expected an object")
        return value


def _row(worker: Worker) -> dict[str, object]:
    model = {"id": worker.model_id, "tokenizer_path": worker.labels.get("tokenizer_path")}
    return {
        "id": worker.id,
        "model_id": worker.model_id,
        "url": worker.url,
        "models": [model],
        "worker_type": worker.worker_type,
        "connection_mode": worker.connection_mode,
        "runtime_type": worker.engine,
        "labels": dict(worker.labels),
        "priority": worker.priority,
        "cost": worker.cost,
        "is_healthy": worker.health == "ready",
        "status": worker.health,
        "load": 0,
    }


def _pending_row(worker_id: str, spec: Spec) -> dict[str, object]:
    return {
        "id": worker_id,
        "url": spec.url,
        "worker_type": spec.worker_type,
        "connection_mode": spec.mode,
        "runtime_type": spec.runtime or "unspecified",
        "priority": spec.priority,
        "cost": spec.cost,
        "is_healthy": False,
        "status": "pending",
        "load": 0,
        "job_status": {"job_type": "AddWorker", "worker_url": spec.url, "status": "processing", "message": None},
    }


def _spec(body: Mapping[str, object]) -> Spec:
    url = _optional_text(body, "url")
    if url is None:
        raise Refusal.of_text(422, f"{_MISFIT}missing field `url`")
    runtime = _one_of(body, "runtime_type", ("unspecified", *RUNTIMES))
    fields = {"priority": _whole(body, "priority"), "cost": _number(body, "cost")}
    if not url:
        raise Refusal(_error(400, "BAD_REQUEST", "Invalid value for field 'worker_url':  - URL cannot be empty"))
    try:
        return Spec(
            url=url,
            labels=_labels(body),
            api_key=_optional_text(body, "api_key"),
            runtime=None if runtime == "unspecified" else runtime,
            worker_type=_one_of(body, "worker_type", WORKER_TYPES) or "regular",
            priority=50 if fields["priority"] is None else int(fields["priority"]),
            cost=1.0 if fields["cost"] is None else fields["cost"],
        )
    except ValueError as problem:
        raise Refusal(_error(400, "BAD_REQUEST", f"Invalid value for field 'worker_url': {url} - {problem}")) from None


def _labels(body: Mapping[str, object]) -> dict[str, str]:
    given = body.get("labels")
    if given is None:
        return {}
    if not isinstance(given, dict):
        raise Refusal.of_text(422, f"{_MISFIT}labels: invalid type, expected a map")
    for name, value in given.items():
        if not isinstance(value, str):
            raise Refusal.of_text(422, f"{_MISFIT}labels.{name}: invalid type: {json.dumps(value)}, expected a string")
    return given


def _optional_text(body: Mapping[str, object], name: str) -> str | None:
    value = body.get(name)
    if value is None or isinstance(value, str):
        return value
    raise Refusal.of_text(422, f"{_MISFIT}{name}: invalid type, expected a string")


def _one_of(body: Mapping[str, object], name: str, known: tuple[str, ...]) -> str | None:
    value = _optional_text(body, name)
    if value is None or value in known:
        return value
    expected = ", ".join(f"`{one}`" for one in known)
    raise Refusal.of_text(422, f"{_MISFIT}{name}: unknown variant `{value}`, expected one of {expected}")


def _number(body: Mapping[str, object], name: str) -> float | None:
    value = body.get(name)
    if value is None or (isinstance(value, (int, float)) and not isinstance(value, bool)):
        return value
    raise Refusal.of_text(422, f"{_MISFIT}{name}: invalid type, expected a number")


def _whole(body: Mapping[str, object], name: str) -> int | None:
    value = _number(body, name)
    if value is None or isinstance(value, int):
        return value
    raise Refusal.of_text(422, f"{_MISFIT}{name}: invalid type, expected an integer")


def _uuid(text: str) -> str:
    try:
        return str(uuid.UUID(text))
    except ValueError:
        message = f"Invalid worker_id '{text}' (expected UUID)"
        raise Refusal(_error(400, "BAD_REQUEST", message)) from None


def _not_found(worker_id: str) -> Refusal:
    return Refusal(_error(404, "WORKER_NOT_FOUND", f"Worker {worker_id} not found"))


def _accepted(worker_id: str, what: str) -> Reply:
    message = f"Worker {what} queued for background processing"
    return Reply.of_json(202, {"status": "accepted", "worker_id": worker_id, "message": message})


def _error(status: int, code: str, message: str) -> Reply:
    return Reply.of_json(status, {"error": message, "code": code})
