"""vLLM's error answers, and how it reads a body."""

import json
from collections.abc import Mapping
from typing import Any

from ...httpd.messages import Reply
from ..fastapi import validation
from ..fastapi.routing import Call
from ..fastapi.validation import Fields, Invalid


class ApiError(Exception):
    """A request that cannot be served, in the envelope of the OpenAI API."""

    def __init__(self, status: int, message: str, kind: str, param: str | None = None) -> None:
        super().__init__(message)
        self.status, self.kind, self.param = status, kind, param

    def reply(self) -> Reply:
        error = {"message": str(self), "type": self.kind, "param": self.param, "code": self.status}
        return Reply.of_json(self.status, {"error": error})


def bad_request(message: str, param: str | None = None) -> ApiError:
    """Something in a request for tokens is wrong."""
    return ApiError(400, message, "BadRequestError", param)


def failed(method: str, why: str) -> ApiError:
    """The engine behind the HTTP server failed at `method`, and lives on."""
    return ApiError(500, f"Call to {method} method failed: {why}", "InternalServerError")


def worker_failed(why: str) -> ApiError:
    """A worker of the engine failed."""
    sentence = f"Worker failed with error '{why}', please check the stack trace above for the root cause"
    return failed("collective_rpc", sentence)


def dead() -> ApiError:
    """The engine behind the HTTP server died."""
    message = "EngineCore encountered an issue. See stack trace (above) for the root cause."
    return ApiError(500, message, "InternalServerError")


def invalid(problem: Invalid) -> ApiError:
    """A request that does not validate."""
    problems = [_flat(one) if isinstance(one, Mapping) else one for one in problem.problems]
    first = problems[0]
    param = str(first["loc"]) if isinstance(first, Mapping) else None
    return ApiError(400, Invalid(*problems).sentence, "Bad Request", param)


def _flat(problem: Mapping[str, Any]) -> dict[str, object]:
    return {**problem, "loc": ".".join(map(str, problem["loc"])), "input": _shown(problem["input"])}


def _shown(value: object) -> str:
    return f"<{type(value).__name__} of {len(value)} items>" if isinstance(value, dict | list) else str(value)


def body(call: Call, fields: Fields) -> dict[str, Any]:
    """The fields of a body that must be a JSON object, and be declared so."""
    if not validation.is_json(call):
        raise Invalid("Unsupported Media Type: Only 'application/json' is allowed")
    return validation.body(call, fields)


def embedded(call: Call, fields: Fields) -> dict[str, Any]:
    """The fields of a body that may be left out: they are absent then, as they are if null."""
    sent = validation.read_json(call) if call.body and validation.is_json(call) else None
    present = {name: value for name, value in sent.items() if value is not None} if isinstance(sent, dict) else {}
    return validation.checked(present, fields)


def undeclared(call: Call, not_json: str) -> dict[str, Any]:
    """A body that must be a JSON object, whatever it is declared to be; `not_json` begins the refusal."""
    try:
        value = json.loads(call.body)
    except (ValueError, RecursionError) as problem:
        raise ApiError(400, not_json.format(problem), "Bad Request") from None
    if not isinstance(value, dict):
        raise ApiError(400, "Request body must be a JSON object", "Bad Request")
    return value
