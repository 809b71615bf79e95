"""A gateway's answer -> what the client returns, or the exception it raises.

Contract, chapters "Call envelope", "Fan-out", "Errors", "The Python client".
"""

import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

from .engines import ENGINES
from .errors import FanoutError, RlConnectionError, RlError, RlTimeoutError, named
from .messages import Failure, Response
from .results import FanoutResult, Json

Hide = Callable[[str], str]
"""Gives a text without the API key."""

# What to do next, by error code or, for answers that have none, by HTTP status.
_HINTS: Mapping[str | int, str] = {
    "worker_not_found": "rl.workers() lists the ids; an engine that registers again gets a new one",
    "no_workers_match": "rl.workers() shows the labels",
    "selector_required": "pass selector=, for example 'engine=sglang'",
    "unsupported_connection_mode": "only workers with connection_mode http can be called",
    "upstream_unreachable": "is the engine running? whether the call had an effect is unknown",
    "upstream_timeout": "the call may still be running on the engine; --rl-control-timeout-secs sets this limit",
    "client_timeout": "what was asked may still be running on the engines; pass a longer timeout=,"
    " longer than the gateway's own (--rl-control-timeout-secs)",
    "connection_failed": "is the gateway running there?",
    "bad_response": "whether the call had an effect is unknown",
    401: "the gateway wants a key: pass api_key=",
    403: "the key is valid but has no admin role",
    404: "is the gateway started with --enable-rl, and is base_url right?",
    405: "/v1/rl takes GET and POST",
    413: "the body is larger than the gateway's --max-payload-size",
}


@dataclass(frozen=True)
class Answer:
    """One HTTP answer of the gateway: `value` is its JSON, or its text."""

    asked: str
    status: int
    value: Json = field(repr=False)
    location: str | None
    hide: Hide = field(repr=False)

    @classmethod
    def of(cls, response: Response, asked: str, hide: Hide) -> "Answer":
        text = response.body.decode("utf-8", "replace")
        try:
            value = json.loads(text)
        except (ValueError, RecursionError):
            value = text
        return cls(asked, response.status, value, response.location and hide(response.location), hide)

    @property
    def bodiless(self) -> bool:
        """An engine's answer whose envelope HTTP has no room for."""
        head = self.asked.startswith("HEAD ") and self.status < 400
        return self.value == "" and (self.status in (204, 304) or head)

    def envelope(self) -> dict[str, Json]:
        """The envelope of an engine's answer, of whatever status; raises `RlError` else."""
        if isinstance(self.value, dict) and "latency_ms" in self.value and "error" not in self.value:
            return self.value
        raise self.error()

    def report(self) -> dict[str, Json]:
        """The report of a fan-out; raises `RlError` else, for one that cannot be true too."""
        if self.status not in (200, 207) or not isinstance(self.value, dict) or "results" not in self.value:
            raise self.error()
        if problem := _untrue(self.status, self.value):
            said = f"the report of the fan-out cannot be true: {problem}"
            raise _error(RlConnectionError, self.asked, self.status, "bad_response", said, None, self.hide)
        return self.value

    def expect(self, key: str) -> dict[str, Json]:
        """A JSON object that has this key; raises `RlError` else."""
        if self.status == 200 and isinstance(self.value, dict) and key in self.value:
            return self.value
        raise self.error()

    def error(self) -> RlError:
        """The exception that this answer is."""
        if isinstance(self.value, dict) and (self.status >= 400 or "error" in self.value):
            code = str(self.value.get("error", "unknown"))
            said = str(self.value.get("message", ""))
            return _error(RlError, self.asked, self.status, code, said, self.value, self.hide)
        said = str(self.value)[:200] if self.value != "" else "no body"
        if self.location:
            said = f"a redirect to {self.location[:200]}, which is not followed"
        code = "http_error" if self.status >= 400 else "unexpected_response"
        return _error(RlError, self.asked, self.status, code, said, None, self.hide)


def _untrue(status: int, report: Mapping[str, Json]) -> str | None:
    """What contradicts itself in a report; None for one that can be believed."""
    results, failed = report.get("results"), report.get("failed", [])
    if not isinstance(results, dict) or not isinstance(failed, list):
        return "`results` is no object, or `failed` no list"
    if not all(isinstance(answer, dict) and type(answer.get("status")) is int for answer in results.values()):
        return "an answer in `results` has no status"
    names = [entry.get("worker_id") if isinstance(entry, dict) else None for entry in failed]
    if not all(isinstance(name, str) for name in names):
        return "an entry of `failed` names no worker"
    if status == 207 and not failed:
        return "HTTP 207, and nobody failed"
    total = len({*results, *map(str, names)})
    return next(
        (
            f"`{name}` is {report[name]!r}, and it names {count}"
            for name, count in (("total", total), ("succeeded", total - len(set(names))))
            if name in report and report[name] != count
        ),
        None,
    )


def failure(failure: Failure, asked: str, hide: Hide) -> RlError:
    """The exception for an exchange that got no answer."""
    kind = RlTimeoutError if failure.code == "client_timeout" else RlConnectionError
    return _error(kind, asked, 0, failure.code, failure.detail, None, hide)


def partial(status: int, result: FanoutResult, path: str, hide: Hide, *, without_body: bool) -> FanoutError:
    """The exception for a fan-out with failed targets."""
    text = f"{len(result.failed)} of {result.total} workers failed {path}: {named(result)}"
    if without_body and any(failure.status == 400 for failure in result.failed):
        text += " (the call had no body: SGLang wants one, send {})"
    if any(failure.status == 404 for failure in result.failed):
        guards = (facts.guarded for facts in ENGINES.values() if facts.guarded)
        text += "".join(f" ({guard.how})" for guard in guards if path in guard.routes)
    return FanoutError(hide(f"fanout_partial (HTTP {status}): {text}"), status, result)


def _error(
    kind: type[RlError],
    asked: str,
    status: int,
    code: str,
    said: str,
    payload: Mapping[str, Json] | None,
    hide: Hide,
) -> RlError:
    where = f" (HTTP {status})" if status else ""
    hint = _HINTS.get(code) or _HINTS.get(status)
    text = f"{code}{where}: {said} [{asked}]" + (f": {hint}" if hint else "")
    shown = {"error": code, "message": said} if payload is None else payload
    return kind(hide(text), status, hide(code), {hide(key): _hidden(value, hide) for key, value in shown.items()})


def _hidden(value: Json, hide: Hide) -> Json:
    """A gateway, or what stands before it, may repeat what it was sent: not the key."""
    if isinstance(value, str):
        return hide(value)
    if isinstance(value, list):
        return [_hidden(item, hide) for item in value]
    return {hide(key): _hidden(item, hide) for key, item in value.items()} if isinstance(value, dict) else value
