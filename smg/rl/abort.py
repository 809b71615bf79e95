"""A sender whose exchanges can be cut short from another thread, or from a signal handler."""

from collections.abc import Callable

from .messages import Abortable, Began, Failure, Request, Response, Sender


class AbortableSender:
    """Sends through another sender, and can abort all that is in flight there.

    `sender` gives that other one when it is first needed.
    """

    def __init__(self, sender: Callable[[], Sender]) -> None:
        self._sender = sender
        self._exchanges: list[Abortable] = []
        self._aborted = False

    def send(self, request: Request, timeout: float, began: Began | None = None) -> Response | Failure:
        """See `messages.Sender`."""
        mine: list[Abortable] = []

        def note(exchange: Abortable) -> None:
            mine.append(exchange)
            self._exchanges.append(exchange)
            if self._aborted:
                exchange.abort()
            if began:
                began(exchange)

        try:
            return self._sender().send(request, timeout, note)
        finally:
            for exchange in mine:
                self._exchanges.remove(exchange)

    def abort(self) -> None:
        """End what is in flight; what is sent afterwards ends at once."""
        self._aborted = True
        for exchange in list(self._exchanges):
            exchange.abort()
