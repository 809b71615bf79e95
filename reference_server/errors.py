"""Refusals of the control plane: one table from code to status.

Contract, chapter "Errors".
"""

from enum import Enum

from .httpd.messages import Refusal, Reply


class Code(Enum):
    """The values of the `error` field."""

    INVALID_ENGINE_PATH = "invalid_engine_path"
    SELECTOR_REQUIRED = "selector_required"
    INVALID_SELECTOR = "invalid_selector"
    NO_WORKERS_MATCH = "no_workers_match"
    WORKER_NOT_FOUND = "worker_not_found"
    UNSUPPORTED_CONNECTION_MODE = "unsupported_connection_mode"
    UPSTREAM_ERROR = "upstream_error"
    UPSTREAM_UNREACHABLE = "upstream_unreachable"
    UPSTREAM_TIMEOUT = "upstream_timeout"


STATUS = {
    Code.INVALID_ENGINE_PATH: 400,
    Code.SELECTOR_REQUIRED: 400,
    Code.INVALID_SELECTOR: 400,
    Code.NO_WORKERS_MATCH: 400,
    Code.WORKER_NOT_FOUND: 404,
    Code.UNSUPPORTED_CONNECTION_MODE: 422,
    Code.UPSTREAM_ERROR: 502,
    Code.UPSTREAM_UNREACHABLE: 502,
    Code.UPSTREAM_TIMEOUT: 504,
}


def refusal(code: Code, message: str, **context: object) -> Refusal:
    """`{"error", "message", …context}` with the status of the code."""
    return Refusal(Reply.of_json(STATUS[code], {"error": code.value, "message": message, **context}))
