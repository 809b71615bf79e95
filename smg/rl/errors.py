"""The exception family. Contract, chapter "The Python client".

All of them survive pickle and copy; none holds the API key or the request's body;
none prints as more than 2 kB.
"""

from collections.abc import Mapping

from .report import Target
from .results import FanoutFailure, FanoutResult, Json

_LIMIT = 1900
_NAMED = 8


class RlError(Exception):
    """The gateway, or the way to it, did not do what was asked.

    `still_paused`: engines that a `paused` block could not resume, by id and URL; `remedy`:
    the commands that free them, None when nobody is stuck. `answered`: of a fan-out sent in
    several pieces, what the pieces that got an answer tell. `status`: the HTTP status, 0
    when there was no answer. `code`: the `error` field of the answer, `http_error` when it
    was not a JSON object. `payload`: that object, or one made up with `error` and `message`.
    """

    def __init__(
        self, message: str, status: int = 0, code: str = "http_error", payload: Mapping[str, Json] | None = None
    ) -> None:
        text = message if len(message.encode("utf-8", "replace")) <= _LIMIT else _shortened(message)
        super().__init__(text)
        self.still_paused: list[Target] = []
        self.remedy: str | None = None
        self.answered: FanoutResult | None = None
        self.status = status
        self.code = code
        self.payload: dict[str, Json] = dict(payload) if payload is not None else {"error": code, "message": text}

    def __reduce__(self) -> "tuple[object, ...]":
        return _rebuild, (type(self), self.args[0], {**self.__dict__})


class RlConnectionError(RlError, ConnectionError):
    """No usable answer. `code` is `connection_failed` (nothing was asked) or
    `bad_response` (asked, but the answer was lost or was not HTTP)."""


class RlTimeoutError(RlError, TimeoutError):
    """No complete answer within the timeout; `code` is `client_timeout`.

    What was asked may still be running on the engines.
    """


class FanoutError(RlError):
    """At least one target of a fan-out failed; `code` is `fanout_partial`.

    `result` is the whole `FanoutResult`: those that succeeded keep the change.
    """

    def __init__(self, message: str, status: int, result: FanoutResult) -> None:
        super().__init__(message, status, "fanout_partial")
        self.result = result


class WeightVersionError(RlError):
    """Engines do not report the version they should; `code` is `weight_version_differs`.

    `versions` has every engine asked, by worker id; None for one that reports none.
    """

    def __init__(self, message: str, versions: Mapping[str, str | None]) -> None:
        super().__init__(message, 0, "weight_version_differs")
        self.versions = dict(versions)


def named(result: FanoutResult) -> str:
    """The failed targets of a fan-out, the first few with their reason."""
    shown = [f"{failure}{_said(result, failure)}"[:300] for failure in result.failed[:_NAMED]]
    more = len(result.failed) - len(shown)
    return "; ".join([*shown, f"and {more} more"] if more else shown)


def _said(result: FanoutResult, failure: FanoutFailure) -> str:
    """The first line of what the engine said; later ones may repeat what it was sent."""
    answer = result.results.get(failure.worker_id)
    # An answer that was cut is a piece of JSON, and what it repeats is anywhere.
    text: Json = answer.body if answer and not answer.truncated else None
    for key in ("error", "message", "detail"):
        if isinstance(text, dict):
            text = text.get(key, text)
    lines = text.splitlines() if isinstance(text, str) else []
    return f" ({lines[0][:160]})" if lines else ""


def _shortened(message: str) -> str:
    return message.encode("utf-8", "replace")[: _LIMIT - 3].decode("utf-8", "ignore") + "..."


def _rebuild(kind: type[RlError], message: str, state: dict[str, object]) -> RlError:
    # Subclasses may want other arguments: what an error holds is its text and its state.
    error = kind.__new__(kind, message)
    error.args = (message,)
    error.__dict__.update(state)
    return error
