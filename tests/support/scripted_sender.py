"""A client whose transport is a script: no socket, and every request to look at."""

import json
from typing import Any

from smg import __version__
from smg.rl import RL
from smg.rl.messages import Began, Failure, Request, Response

GATEWAY = "http://gateway:30000"
ALWAYS = {"Accept": "application/json", "User-Agent": f"smg-rl/{__version__}"}
JSON_TYPE = {"Content-Type": "application/json"}
OK = {"ok": True}
ENVELOPE: dict[str, Any] = {"worker_id": "w0", "url": "http://e0:1", "status": 200, "latency_ms": 3, "body": OK}
REPORT: dict[str, Any] = {"results": {"w0": ENVELOPE}, "failed": [], "total": 1, "succeeded": 1}

ROW: dict[str, Any] = {
    "id": "w0",
    "url": "http://e0:1@0",
    "base_url": "http://e0:1",
    "engine": "sglang",
    "engine_version": "0.5.15",
    "model_id": "test/model",
    "worker_type": "regular",
    "connection_mode": "http",
    "tp_size": 4,
    "dp_size": 2,
    "pp_size": 1,
    "dp_ranks": 2,
    "role": "policy",
    "health": "ready",
    "weight_version": "42",
    "labels": {"zone": "a"},
    "capabilities": {"pause_modes": ["abort"], "source": "static"},
}


def reply(status: int, value: object, location: str | None = None) -> Response:
    """An answer with this JSON, or with these very bytes."""
    return Response(status, value if isinstance(value, bytes) else json.dumps(value).encode(), location)


class Script:
    """Gives the answers in turn, then `{}`; keeps what was asked."""

    def __init__(self, *answers: Response | Failure) -> None:
        self.answers = list(answers)
        self.asked: list[Request] = []
        self.timeouts: list[float] = []

    def send(self, request: Request, timeout: float, began: Began | None = None) -> Response | Failure:
        self.asked.append(request)
        self.timeouts.append(timeout)
        return self.answers.pop(0) if self.answers else reply(200, {})


def only(script: Script) -> Request:
    """The one request that was sent."""
    (request,) = script.asked
    return request


def scripted(*answers: Response | Failure, base_url: str = GATEWAY, **options: Any) -> tuple[RL, Script]:
    script = Script(*answers)
    return RL(base_url, sender=script, **options), script


def calling(*answers: Response | Failure, **options: Any) -> tuple[RL, Script]:
    """A client for `call`: it gets an engine's answer unless told otherwise."""
    return scripted(*(answers or [reply(200, ENVELOPE)]), **options)


def fanning_out(*answers: Response | Failure, **options: Any) -> tuple[RL, Script]:
    """A client for `fanout`: every engine succeeds unless told otherwise."""
    return scripted(*(answers or [reply(200, REPORT)]), **options)
