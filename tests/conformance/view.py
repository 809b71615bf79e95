"""What was seen, written the way vectors write it: placeholders for values, digests for what is long."""

import base64
import hashlib
import json
import re
from collections.abc import Iterable, Sequence

from .caller import Answer, Exchange
from .engine import Call
from .names import Names
from .vectors import JSON, Step

SHOWN_HEADERS = ("content-type", "allow", "www-authenticate", "location", "content-encoding", "retry-after")
LONG_TEXT = 2000
LONG_BODY = 4000

# A gateway asks engines for their load whenever it likes; no vector is about that.
BACKGROUND = {"/loads", "/v1/loads", "/metrics", "/get_load"}

_COLOUR = re.compile(r"\x1b\[[0-9;]*m")
_TIME_AND_PADDING = re.compile(r"^\d{4}-\S* \S+\s+")
_SOURCE = re.compile(r"\S+\.rs:\d+:\s")
_DURATION = re.compile(r"\b(latency(?:_ms)?)=\d+")
_VARYING_METRIC = re.compile(r'(_bucket\{(?!.*le="\+Inf").*|_sum(?:\{.*)?) \S+$')


def response(seen: Exchange, step: Step, names: Names, *, ordered_ids: bool) -> JSON:
    """One answer of the gateway, or the note why there is none."""
    answer = seen.answer
    if answer is None:
        return seen.notes
    out: dict[str, JSON] = {**seen.notes, "status": answer.status, "headers": _headers(answer, step, names)}
    out |= _body(answer.body, names)
    if "json" in out:
        out |= _ordered(out["json"]) if ordered_ids else {"json": _unordered(out["json"])}
        out["json"] = _shortened(out["json"])
    if "between" in step:
        out["in_time"] = _within(step, answer.elapsed)
    return out


def _headers(answer: Answer, step: Step, names: Names) -> JSON:
    values = {name: answer.header(name) for name in (*SHOWN_HEADERS, *step.get("show", []))}
    return {name: names.plain_text(value) for name, value in values.items() if value is not None}


def _body(raw: bytes, names: Names) -> dict[str, JSON]:
    if not raw:
        return {}
    try:
        return {"json": names.plain(json.loads(raw, parse_constant=_refuse_constant))}
    except ValueError:
        pass
    if len(raw) > LONG_BODY:
        return {"body_len": len(raw), "body_sha256": hashlib.sha256(raw).hexdigest()}
    return _text_or_bytes("text", raw, names)


def _refuse_constant(name: str) -> JSON:
    raise ValueError(f"{name} is not JSON, though Python reads it")


def _text_or_bytes(key: str, raw: bytes, names: Names) -> dict[str, JSON]:
    try:
        return {key: names.plain_text(raw.decode())}
    except UnicodeDecodeError:
        return {"body_b64": base64.b64encode(raw).decode()}


def _ordered(value: JSON) -> dict[str, JSON]:
    """The order of a fan-out's results is that of worker ids: seen only where the setup fixes it."""
    results = value.get("results") if isinstance(value, dict) else None
    return {"results_order": list(results)} if isinstance(results, dict) else {}


def _unordered(value: JSON) -> JSON:
    """A fan-out's failures come in that order too: elsewhere they are sorted by name."""
    failed = value.get("failed") if isinstance(value, dict) else None
    if isinstance(value, dict) and isinstance(failed, list):
        return value | {"failed": sorted(failed, key=json.dumps)}
    return value


def _shortened(value: JSON) -> JSON:
    if isinstance(value, dict):
        return {key: _shortened(item) for key, item in value.items()}
    if isinstance(value, list):
        return [_shortened(item) for item in value]
    if isinstance(value, str) and len(value) > LONG_TEXT:
        digest = hashlib.sha256(value.encode("utf-8", "surrogatepass")).hexdigest()
        return {"<<long>>": len(value), "sha256": digest}
    return value


def _within(step: Step, seconds: float) -> bool:
    low, high = step["between"]
    return low <= seconds <= high


# -- engines -------------------------------------------------------------------


def engine_calls(calls: Iterable[Call], names: Names) -> dict[str, JSON]:
    """The calls that each engine received; an engine that received none is not listed."""
    out: dict[str, JSON] = {}
    for call in counted(calls):
        listed = out.setdefault(call.engine, [])
        assert isinstance(listed, list)
        listed.append(_call(call, names))
    return out


def counted(calls: Iterable[Call]) -> list[Call]:
    return [call for call in calls if call.path not in BACKGROUND and call.framing != "grpc"]


def _call(call: Call, names: Names) -> JSON:
    headers: dict[str, str] = {}
    for name, value in call.headers:
        key, text = name.lower(), names.plain_text(value)
        headers[key] = f"{headers[key]}, {text}" if key in headers else text
    headers.pop("content-length", None)
    out: dict[str, JSON] = {"method": call.method, "target": names.plain_text(call.target)}
    out |= {"headers": {**headers}, "framing": call.framing}
    if len(call.body) > LONG_TEXT:
        out |= {"body_len": len(call.body), "body_sha256": hashlib.sha256(call.body).hexdigest()}
    elif call.body:
        out |= _text_or_bytes("body", call.body, names)
    return out


def peak(calls: Iterable[Call]) -> int:
    """The most calls that were open at one moment."""
    edges = [(call.arrived, 1) for call in calls] + [(call.ended, -1) for call in calls if call.ended is not None]
    open_now = most = 0
    for _, change in sorted(edges):
        open_now += change
        most = max(most, open_now)
    return most


def departures(calls: Iterable[Call], step: Step) -> JSON:
    """How many callers hung up on an engine, and whether all did so in time."""
    waits = [call.left - call.arrived for call in calls if call.left is not None]
    return {"disconnects": len(waits), "in_time": all(_within(step, wait) for wait in waits)}


# -- logs and metrics ------------------------------------------------------------


def log_lines(text: str, match: Sequence[str], names: Names) -> JSON:
    lines = _COLOUR.sub("", text).splitlines()
    return {"lines": [_log_line(line, names) for line in lines if any(word in line for word in match)]}


def _log_line(line: str, names: Names) -> JSON:
    try:
        return names.plain(json.loads(line))
    except ValueError:
        pass
    line = _TIME_AND_PADDING.sub("", names.plain_text(line))
    return _DURATION.sub(r"\1=<<ms>>", _SOURCE.sub("<<src>> ", line))


def metric_lines(answer: Answer, match: str, names: Names) -> JSON:
    lines = [names.plain_text(line) for line in answer.body.decode().splitlines() if match in line]
    return {
        "status": answer.status,
        "headers": {"content-type": answer.header("content-type") or ""},
        "lines": [_VARYING_METRIC.sub(r"\1 <<any>>", line) for line in lines],
    }
