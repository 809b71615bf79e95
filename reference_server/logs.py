"""The events as log lines, in text or JSON. Contract, chapter "Logs".

What a caller supplied is escaped, so that no request can forge a line; query
strings are never logged.
"""

import json
import logging
import sys
from collections.abc import Mapping
from datetime import datetime, timezone

from .auth import Admission
from .events import CallEnded, FanoutEnded
from .httpd.messages import Request
from .outcome import Answered, succeeded

CONTROL = "smg_rl"
AUDIT = "smg.audit"

LEVELS = {"debug": logging.DEBUG, "info": logging.INFO, "warn": logging.WARNING, "error": logging.ERROR}
_LEVEL_NAMES = {level: name.upper() for name, level in LEVELS.items()}


def log_event(event: CallEnded | FanoutEnded) -> None:
    """An observer that writes `rl.proxy` and `rl.fanout`."""
    if isinstance(event, FanoutEnded):
        if event.outcomes:
            good = sum(map(succeeded, event.outcomes))
            total = len(event.outcomes)
            log(
                CONTROL, "rl.fanout", path=event.path, selector=event.selector, total=total, succeeded=good,
                failed=total - good, latency_ms=int(event.seconds * 1000),
            )  # fmt: skip
    elif isinstance(event.outcome, Answered):
        log(
            CONTROL, "rl.proxy", worker_id=event.worker.id, url=event.worker.url, method=event.method,
            path=event.path, status=event.outcome.status, latency_ms=event.outcome.latency_ms,
        )  # fmt: skip


def log_audit(request: Request, request_id: str, admission: Admission) -> None:
    """Writes `control_plane_audit`: who asked for what, and whether they were let in."""
    principal = admission.principal
    details = {"details": admission.reason} if admission.reason else {}
    log(
            AUDIT, "control_plane_audit", principal=principal.id, auth_method=principal.method, role=principal.role,
            method=request.method, path=request.path, outcome="denied" if admission.refusal else "success",
            request_id=request_id, **details,
        )  # fmt: skip


def log(logger: str, event: str, **fields: object) -> None:
    """One INFO line of an event and its fields."""
    target = logging.getLogger(logger)
    if target.isEnabledFor(logging.INFO):
        text = " ".join([event, *(f"{name}={printable(str(value))}" for name, value in fields.items())])
        target.info("%s", text, extra={"event": event, "fields": fields})


def printable(text: str) -> str:
    """Text in which whatever could break or disguise a line is an escape."""
    return "".join(c if c.isprintable() else c.encode("unicode_escape").decode() for c in text)


class TextFormatter(logging.Formatter):
    """`TIME LEVEL target: event field=value …`"""

    def format(self, record: logging.LogRecord) -> str:
        return f"{_time(record)} {_level(record):>5} {_target(record)}: {record.getMessage()}"


class JsonFormatter(logging.Formatter):
    """One flat JSON object a line, the event in `message`."""

    def format(self, record: logging.LogRecord) -> str:
        fields: Mapping[str, object] = getattr(record, "fields", {})
        line = {
            "timestamp": _time(record),
            "level": _level(record),
            "message": getattr(record, "event", record.getMessage()),
            **fields,
            "target": _target(record),
        }
        # ASCII, so that no reader splits a line where Unicode allows it.
        return json.dumps(line)


def write_to_stderr(level: str, *, as_json: bool) -> logging.Handler:
    """Send both loggers to standard error; undo with `stop_writing`."""
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(JsonFormatter() if as_json else TextFormatter())
    for name in (CONTROL, AUDIT):
        logger = logging.getLogger(name)
        logger.addHandler(handler)
        logger.setLevel(LEVELS[level])
        logger.propagate = False
    return handler


def stop_writing(handler: logging.Handler) -> None:
    for name in (CONTROL, AUDIT):
        logger = logging.getLogger(name)
        logger.removeHandler(handler)
        logger.setLevel(logging.NOTSET)
        logger.propagate = True


def _time(record: logging.LogRecord) -> str:
    return datetime.fromtimestamp(record.created, timezone.utc).isoformat(timespec="milliseconds")


def _level(record: logging.LogRecord) -> str:
    return _LEVEL_NAMES.get(record.levelno, record.levelname)


def _target(record: logging.LogRecord) -> str:
    return record.name.replace(".", "::")
