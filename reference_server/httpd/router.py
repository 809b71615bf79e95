"""From a request to its handler: the route, its guard, its method, a request id.

The order of the checks is: an unknown route, an announced body that is too large,
credentials, the method, and only then what the handler has to say.
"""

import random
import re
import string
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from .messages import BodyTooLarge, Refusal, Reply, Request
from .request_log import Log

Handler = Callable[..., Reply]
"""Called with the request and the raw path parameters of its route."""

Guard = Callable[[Request, str], Reply | None]
"""Sees a request and its id before the handler does; a reply keeps it out, None lets it in."""

Interceptor = Callable[[Request], Reply | None]
"""Sees each request before its route is looked for; what it returns is the answer, None lets it go on."""

_ALPHANUMERIC = string.ascii_letters + string.digits
_VISIBLE = re.compile(r"[\x20-\x7e]*")


@dataclass(frozen=True)
class Route:
    """A raw path, and who handles which method of it. HEAD rides on GET.

    `path` is a regular expression for the whole path; each of its groups is an argument of
    the handler. `id_prefix` begins the ids of requests that brought none.
    """

    path: str
    methods: Mapping[str, Handler]
    guard: Guard
    id_prefix: str = "req"

    @property
    def allow(self) -> str:
        return ",".join(m for method in self.methods for m in (["GET", "HEAD"] if method == "GET" else [method]))

    def handler(self, method: str) -> Handler | None:
        return self.methods.get("GET" if method == "HEAD" else method)


class BodyReader:
    """Reads request bodies up to a limit in bytes; raises `Refusal` for what cannot be read."""

    def __init__(self, limit: int) -> None:
        self._limit = limit

    def check_announced(self, request: Request) -> None:
        if (request.body.announced or 0) > self._limit:
            raise Refusal.of_text(413, "length limit exceeded")

    def __call__(self, request: Request) -> bytes:
        reason = "error reading a body from connection"
        try:
            return request.body.read(self._limit)
        except BodyTooLarge:
            raise Refusal.of_text(413, "Failed to buffer the request body: length limit exceeded") from None
        except ValueError:
            raise Refusal.of_text(400, f"Failed to buffer the request body: {reason}") from None


class Router:
    """The application: finds the route of a request and lets its checks and handler answer."""

    def __init__(
        self,
        routes: Sequence[Route],
        read_body: BodyReader,
        id_headers: Sequence[str],
        rng: random.Random,
        log: Log | None = None,
        interceptor: Interceptor | None = None,
    ) -> None:
        self._routes = [(re.compile(route.path), route) for route in routes]
        self._read_body, self._id_headers, self._rng = read_body, id_headers, rng
        self._log, self._interceptor = log, interceptor

    def __call__(self, request: Request) -> Reply:
        if self._log is None:
            return self._routed(request)
        number = self._log.arrived(request.method, request.path, request.query, request.headers, b"")
        reply = self._routed(request)
        self._log.answered(number, reply.status, hung_up=not reply.status, body=request.body.content)
        return reply

    def _routed(self, request: Request) -> Reply:
        if self._interceptor and (reply := self._interceptor(request)):
            return reply
        for path, route in self._routes:
            if match := path.fullmatch(request.path):
                request_id = self._request_id(request, route.id_prefix)
                reply = self._answer(route, request, match.groups(), request_id)
                return reply.with_headers({"x-request-id": request_id})
        return Reply(404)

    def _answer(self, route: Route, request: Request, parameters: tuple[str, ...], request_id: str) -> Reply:
        try:
            self._read_body.check_announced(request)
            if request.method == "OPTIONS":
                # A browser's preflight carries no credentials; no web page gets any further.
                return Reply(405, (("allow", route.allow),))
            handler = route.handler(request.method)
            refused = route.guard(request, request_id)
            if refused is None and handler is not None:
                return handler(request, *parameters)
            # A refusal for want of credentials names the methods as well.
            allow = {} if handler is not None else {"allow": route.allow}
            return (refused or Reply(405)).with_headers(allow)
        except Refusal as refusal:
            return refusal.reply

    def _request_id(self, request: Request, prefix: str) -> str:
        given = map(request.header, self._id_headers)
        for value in given:
            if value is not None and _VISIBLE.fullmatch(value):
                return value
        return f"{prefix}-{''.join(self._rng.choices(_ALPHANUMERIC, k=24))}"
