"""Refusals: what the gateway answers itself. One table from code to status.

Contract, chapter "Errors".
"""

from enum import Enum

from .httpd.messages import Reply


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


class Refusal(Exception):
    """Ends the handling of a request with this answer."""

    def __init__(self, reply: Reply) -> None:
        super().__init__(f"refused with {reply.status}")
        self.reply = reply


def refusal(code: Code, message: str, **context: object) -> Refusal:
    """`{"error", "message", …context}` with the status of the code."""
    return Refusal(Reply.of_json(STATUS[code], {"error": code.value, "message": message, **context}))


def text_refusal(status: int, text: str) -> Refusal:
    """The plain-text form, for what is wrong before the control plane has its say."""
    return Refusal(Reply.of_text(status, text))
