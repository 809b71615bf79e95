"""The `/v1/rl` handlers: discovery, one call, one fan-out.

Contract, chapters "Routes", "Engine paths, query, headers, body", "Fan-out", "Errors".
"""

import time
from collections.abc import Callable, Mapping

from smg.rl.selectors import SPACE, Selector, SelectorError

from .errors import Code, refusal
from .events import CallEnded, FanoutEnded, Observer
from .fanout import Window
from .httpd.messages import Reply, Request
from .outcome import Answered, Outcome, Unsupported, call_refusal, envelope, report, verdict
from .paths import decode_part, engine_path, selectors_in, without_selector
from .registry import Registry, Worker, targets
from .upstream import EngineCall, EngineRequest, forwarded

PROTOCOL_VERSION = 1

HUNG_UP = Reply.hang_up()
"""Nobody is there to be answered."""


class Control:
    """The control plane over a registry; `connect` makes the call of a message to a worker."""

    def __init__(
        self,
        registry: Registry,
        window: Window,
        connect: Callable[[Worker, EngineRequest], EngineCall],
        read_body: Callable[[Request], bytes],
        observe: Observer,
    ) -> None:
        self._registry, self._window, self._connect = registry, window, connect
        self._read_body, self._observe = read_body, observe

    def list_workers(self, request: Request) -> Reply:
        rows = self._registry.rows()
        return Reply.of_json(200, {"protocol_version": PROTOCOL_VERSION, "workers": rows, "total": len(rows)})

    def one_worker(self, request: Request, raw_id: str) -> Reply:
        return Reply.of_json(200, self._registry.row(self._find(decode_part(raw_id, "id"))))

    def call(self, request: Request, raw_id: str, raw_path: str) -> Reply:
        worker_id, path = decode_part(raw_id, "id"), decode_part(raw_path, "path")
        body = self._read_body(request)
        path = engine_path(path)
        worker = self._find(worker_id)
        outcomes = self._run([worker], request, path, body)
        if outcomes is None:
            return HUNG_UP
        outcome = outcomes[worker]
        if not isinstance(outcome, Answered):
            raise call_refusal(worker, outcome)
        return Reply.of_json(outcome.status, envelope(worker, outcome))

    def fan_out(self, request: Request, raw_path: str) -> Reply:
        path = decode_part(raw_path, "path")
        values = selectors_in(request.query)
        if len(values) > 1:
            message = "invalid selector at byte 0: the `selector` parameter was given more than once"
            raise refusal(Code.INVALID_SELECTOR, message, offset=0)
        body = self._read_body(request)
        text, selector = _selector(values)
        path = engine_path(path)
        started = time.monotonic()
        workers = targets(self._registry.all(), selector)
        outcomes = self._run(workers, request, path, body)
        if outcomes is None:
            return HUNG_UP
        self._observe(FanoutEnded(path, text, tuple(outcomes.values()), time.monotonic() - started))
        if not workers:
            raise refusal(Code.NO_WORKERS_MATCH, f"no workers match selector `{text}`", selector=text)
        return Reply.of_json(verdict(list(outcomes.values())), report(outcomes))

    def _find(self, worker_id: str) -> Worker:
        worker = self._registry.get(worker_id)
        if worker is None:
            raise refusal(Code.WORKER_NOT_FOUND, f"worker `{worker_id}` not found", id=worker_id)
        return worker

    def _run(self, workers: list[Worker], request: Request, path: str, body: bytes) -> Mapping[Worker, Outcome] | None:
        """The outcome of every target, or None when the caller went away."""
        query = without_selector(request.query)
        target = f"/{path}?{query}" if query else f"/{path}"
        headers = forwarded(request, body)
        calls = {
            self._connect(w, EngineRequest(request.method, target, _with_key(headers, w), body)): w
            for w in workers
            if w.connection_mode == "http"
        }

        def ended(call: EngineCall, seconds: float) -> None:
            self._observe(CallEnded(calls[call], request.method, path, call.settled(), seconds))

        if not self._window.run(list(calls), request.caller.gone, ended):
            return None
        outcomes = {worker: call.settled() for call, worker in calls.items()}
        return {worker: outcomes.get(worker, Unsupported()) for worker in workers}


def _selector(values: list[str]) -> tuple[str, Selector]:
    text = values[0] if values else ""
    try:
        selector = Selector.parse(text)
    except SelectorError as error:
        if not error.source:
            message = "a non-empty `selector` query parameter is required"
            raise refusal(Code.SELECTOR_REQUIRED, message) from None
        raise refusal(Code.INVALID_SELECTOR, str(error), offset=error.offset) from None
    return text.strip(SPACE), selector


def _with_key(headers: tuple[tuple[str, str], ...], worker: Worker) -> tuple[tuple[str, str], ...]:
    return (*headers, ("authorization", f"Bearer {worker.api_key}")) if worker.api_key else headers
