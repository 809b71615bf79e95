"""What became of one engine call, and what is said about it: envelope, entry, verdict.

Contract, chapters "Call envelope" and "Fan-out".
"""

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from .errors import Code, refusal
from .httpd.messages import Refusal
from .registry import Worker

BODY_LIMIT = 1 << 20
"""Bytes of an engine's answer that are passed on."""

_SPARE_DEPTH = 50


@dataclass(frozen=True)
class Answered:
    """The engine's whole answer: `body` is at most `BODY_LIMIT` bytes, the rest cut off."""

    status: int
    content_type: str
    body: bytes
    truncated: bool
    latency_ms: int

    @property
    def succeeded(self) -> bool:
        return 200 <= self.status < 300


@dataclass(frozen=True)
class Unreachable:
    """No connection, or no readable answer."""

    detail: str


@dataclass(frozen=True)
class TimedOut:
    """No complete answer within `seconds` of the start."""

    seconds: float


@dataclass(frozen=True)
class Unsupported:
    """A worker that does not speak HTTP."""


@dataclass(frozen=True)
class Cancelled:
    """The caller went away first."""


Outcome = Answered | Unreachable | TimedOut | Unsupported | Cancelled


def succeeded(outcome: Outcome) -> bool:
    return isinstance(outcome, Answered) and outcome.succeeded


def verdict(outcomes: Sequence[Outcome]) -> int:
    """200 when every target answered 2xx, else 207, even when all failed."""
    return 200 if all(map(succeeded, outcomes)) else 207


def report(outcomes: Mapping[Worker, Outcome]) -> dict[str, object]:
    """The body of a fan-out's answer; both lists in the order of worker ids."""
    ordered = sorted(outcomes.items(), key=lambda item: item[0].id)
    return {
        "results": {w.id: envelope(w, o) for w, o in ordered if isinstance(o, Answered)},
        "failed": [failed_entry(w, o) for w, o in ordered if not succeeded(o)],
        "total": len(outcomes),
        "succeeded": sum(map(succeeded, outcomes.values())),
    }


def envelope(worker: Worker, answer: Answered) -> dict[str, object]:
    """The JSON object around one engine's answer."""
    return {
        "worker_id": worker.id,
        "url": worker.url,
        "status": answer.status,
        "latency_ms": answer.latency_ms,
        "body": _body(answer),
        **({"body_truncated": True} if answer.truncated else {}),
    }


def failed_entry(worker: Worker, outcome: Outcome) -> dict[str, object]:
    """One row of `failed`: who, which error, and what it needs to be understood."""
    code, message, context = _failure(worker, outcome)
    return {"worker_id": worker.id, "url": worker.url, "error": code.value, "message": message, **context}


def call_refusal(worker: Worker, outcome: Outcome) -> Refusal:
    """The answer of a one-worker call that got no answer from its engine."""
    code, message, context = _failure(worker, outcome)
    return refusal(code, message, worker_id=worker.id, url=worker.url, **context)


def _failure(worker: Worker, outcome: Outcome) -> tuple[Code, str, dict[str, object]]:
    match outcome:
        case Answered(status=status):
            return Code.UPSTREAM_ERROR, f"HTTP {status}", {"status": status}
        case Unreachable(detail):
            return Code.UPSTREAM_UNREACHABLE, f"upstream `{worker.url}` unreachable: {detail}", {}
        case TimedOut(seconds):
            return Code.UPSTREAM_TIMEOUT, f"upstream `{worker.url}` timed out after {seconds:g}s", {}
        case Cancelled():
            return Code.UPSTREAM_UNREACHABLE, f"upstream `{worker.url}` unreachable: the gateway is stopping", {}
        case Unsupported():
            mode = worker.connection_mode
            message = f"worker `{worker.id}` uses connection mode `{mode}`, which cannot be proxied"
            return Code.UNSUPPORTED_CONNECTION_MODE, message, {"connection_mode": mode}


def _body(answer: Answered) -> object:
    if "json" in answer.content_type.lower() and not answer.truncated:
        try:
            return _strict_json(answer.body)
        except (ValueError, RecursionError):
            pass
    return answer.body.decode("utf-8", "replace")


def _strict_json(body: bytes) -> object:
    """Parse what every JSON reader agrees on: no NaN, no overflow, no lone surrogate."""

    def refuse(word: str) -> object:
        raise ValueError(word)

    def number(text: str) -> float:
        value = float(text)
        if value in (float("inf"), float("-inf")):
            raise ValueError(text)
        return value

    value: object = json.loads(body.decode(), parse_constant=refuse, parse_float=number)
    # Fails here, and not in the middle of the answer, if the value cannot be written
    # out again: a lone surrogate, or nesting too deep for the envelope around it.
    probe = value
    for _ in range(_SPARE_DEPTH):
        probe = [probe]
    json.dumps(probe, ensure_ascii=False).encode()
    return value
