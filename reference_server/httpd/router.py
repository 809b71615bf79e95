"""The route table and the order of checks.

Contract, chapters "Routes" and "Errors": an unknown route, an announced body that is
too large, credentials, the method, and only then what the handler has to say.
"""

import random
import re
import string
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from ..auth import Admission, Guard
from ..errors import Refusal, text_refusal
from .messages import BodyTooLarge, Reply, Request
from .request_log import Log

Handler = Callable[..., Reply]
"""Called with the request and the raw path parameters of its route."""

Audit = Callable[[Request, str, Admission], None]
"""Hears of each request to a guarded route, its request id and what was decided."""

First = Callable[[Request], Reply | None]
"""Sees each request before its route is looked for; what it returns is the answer, None lets it go on."""

_ALPHANUMERIC = string.ascii_letters + string.digits
_VISIBLE = re.compile(r"[\x20-\x7e]*")


@dataclass(frozen=True)
class Route:
    """A raw path, by pattern, and who handles which method. HEAD rides on GET."""

    pattern: re.Pattern[str]
    handlers: dict[str, Handler]
    guard: Guard
    id_prefix: str = "req"

    @property
    def allow(self) -> str:
        return ",".join(m for method in self.handlers for m in (["GET", "HEAD"] if method == "GET" else [method]))

    def handler(self, method: str) -> Handler | None:
        return self.handlers.get("GET" if method == "HEAD" else method)


def route(pattern: str, guard: Guard, *, id_prefix: str = "req", **handlers: Handler) -> Route:
    """A route from a pattern and handlers by method name."""
    return Route(re.compile(pattern), handlers, guard, id_prefix)


class BodyReader:
    """Reads request bodies up to a limit; raises `Refusal` for what cannot be read."""

    def __init__(self, limit: int) -> None:
        self._limit = limit

    def check_announced(self, request: Request) -> None:
        if (request.body.announced or 0) > self._limit:
            raise text_refusal(413, "length limit exceeded")

    def __call__(self, request: Request) -> bytes:
        reason = "error reading a body from connection"
        try:
            return request.body.read(self._limit)
        except BodyTooLarge:
            raise text_refusal(413, "Failed to buffer the request body: length limit exceeded") from None
        except ValueError:
            raise text_refusal(400, f"Failed to buffer the request body: {reason}") from None


class Router:
    """The application: finds the route of a request and lets its checks and handler answer."""

    def __init__(
        self,
        routes: Sequence[Route],
        read_body: BodyReader,
        id_headers: Sequence[str],
        rng: random.Random,
        audit: Audit | None = None,
        log: Log | None = None,
        first: First | None = None,
    ) -> None:
        self._routes, self._read_body, self._id_headers, self._rng = routes, read_body, id_headers, rng
        self._audit, self._log, self._first = audit, log, first

    def __call__(self, request: Request) -> Reply:
        if self._log is None:
            return self._routed(request)
        number = self._log.arrived(request.method, request.path, request.query, request.headers, b"")
        reply = self._routed(request)
        self._log.answered(number, reply.status, hung_up=not reply.status, body=request.body.content)
        return reply

    def _routed(self, request: Request) -> Reply:
        if self._first and (reply := self._first(request)):
            return reply
        for route in self._routes:
            if match := route.pattern.fullmatch(request.path):
                request_id = self._request_id(request, route.id_prefix)
                reply = self._answer(route, request, match.groups(), request_id)
                return reply.with_headers({"x-request-id": request_id})
        return Reply(404)

    def _admit(self, route: Route, request: Request, request_id: str) -> Reply | None:
        admission = route.guard(request)
        if self._audit and admission.principal:
            self._audit(request, request_id, admission)
        return admission.refusal

    def _answer(self, route: Route, request: Request, parameters: tuple[str, ...], request_id: str) -> Reply:
        try:
            self._read_body.check_announced(request)
            if request.method == "OPTIONS":
                # A browser's preflight carries no credentials; no web page gets any further.
                return Reply(405, (("allow", route.allow),))
            handler = route.handler(request.method)
            refused = self._admit(route, request, request_id)
            if refused is None and handler is not None:
                return handler(request, *parameters)
            # A refusal for want of credentials names the methods as well.
            allow = {} if handler is not None else {"allow": route.allow}
            return (refused or Reply(405)).with_headers(allow)
        except Refusal as refused_here:
            return refused_here.reply

    def _request_id(self, request: Request, prefix: str) -> str:
        given = map(request.header, self._id_headers)
        for value in given:
            if value is not None and _VISIBLE.fullmatch(value):
                return value
        return f"{prefix}-{''.join(self._rng.choices(_ALPHANUMERIC, k=24))}"
