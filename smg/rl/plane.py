"""The methods of `RL` that it takes to ask engines, as those see it that ask: no import of the client."""

from typing import Protocol

from .results import CallResult, FanoutResult, Worker
from .selectors import Selector


class ControlPlane(Protocol):
    """See `RL` for each."""

    def match(self, selector: str | Selector, *, timeout: float | None = None) -> list[Worker]: ...

    def call(
        self, worker_id: str, path: str, body: object = None, *, method: str = "POST", timeout: float | None = None
    ) -> CallResult: ...

    def fanout(
        self,
        path: str,
        body: object = None,
        *,
        selector: str | Selector,
        method: str = "POST",
        timeout: float | None = None,
        allow_partial: bool = False,
    ) -> FanoutResult: ...
