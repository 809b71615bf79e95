"""What a client sends and gets, as values, and the seam that it sends through.

Everything above the seam works without a socket: a test, a model or another transport
brings its own `Sender`.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Protocol


@dataclass(frozen=True)
class Request:
    """What to send. `url` is absolute, `body` None sends none. The API key is not in it."""

    method: str
    url: str
    headers: Mapping[str, str]
    body: bytes | None = field(repr=False)


@dataclass(frozen=True)
class Response:
    """The answer, whatever its status. `location` is where a redirect points."""

    status: int
    body: bytes = field(repr=False)
    location: str | None = None


@dataclass(frozen=True)
class Failure:
    """No answer. `code`: connection_failed, bad_response or client_timeout."""

    code: str
    detail: str


class Abortable(Protocol):
    """An exchange that is under way."""

    def abort(self) -> None:
        """End it from another thread; it is a `Failure` then."""


Began = Callable[[Abortable], None]
"""Hears of an exchange when it begins, and may abort it from then on."""


class Sender(Protocol):
    """What a client sends through."""

    def send(self, request: Request, timeout: float, began: Began | None = None) -> Response | Failure:
        """One request, sent once, and its answer within `timeout` seconds.

        Never raises for what network or gateway may do: that is a `Failure`.
        """
