"""From a path to its handler, answering as FastAPI does: its 404, 405, 307 and the check of the key."""

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from urllib.parse import parse_qsl, unquote

from ...httpd.messages import Reply, Request


@dataclass(frozen=True)
class Call:
    """A request whose body has been read."""

    request: Request
    body: bytes

    @property
    def path(self) -> str:
        """The path, percent escapes decoded."""
        return unquote(self.request.path)

    def query(self, name: str) -> str | None:
        """A query parameter; of several the last."""
        return self.queries.get(name)

    @property
    def queries(self) -> dict[str, str]:
        """Every query parameter; of several of one name the last."""
        return dict(self._pairs)

    def repeated(self, name: str) -> list[str]:
        """A query parameter that may come more than once."""
        return [value for key, value in self._pairs if key == name]

    @property
    def _pairs(self) -> list[tuple[str, str]]:
        return parse_qsl(self.request.query, keep_blank_values=True)

    def gone(self) -> bool:
        """Whether the caller has gone away."""
        return self.request.caller.gone()


Handler = Callable[[Call], Reply]


@dataclass(frozen=True)
class Endpoint:
    """`methods` (separated by spaces) of a path and what answers them; `open` ones never need a key."""

    methods: str
    handler: Handler
    open: bool = False


Endpoints = Mapping[str, Endpoint]


def answer(routes: Endpoints, call: Call, api_key: str | None) -> Reply:
    """The answer of the route, or 401, 404, 405, or 307 to the path without its last slash."""
    route = routes.get(call.path)
    guarded = call.request.method != "OPTIONS" and not (route and route.open)
    if api_key is not None and guarded and not _has_key(call.request, api_key):
        return Reply.of_json(401, {"error": "Unauthorized"})
    if route is None:
        return _no_route(routes, call)
    if call.request.method not in route.methods.split():
        allow = ", ".join(route.methods.split())
        return Reply.of_json(405, {"detail": "Method Not Allowed"}, [("allow", allow)])
    return route.handler(call)


def paths(names: Iterable[str], route: Endpoint) -> dict[str, Endpoint]:
    """One route under several paths."""
    return dict.fromkeys(names, route)


def _has_key(request: Request, api_key: str) -> bool:
    scheme, _, key = (request.header("authorization") or "").partition(" ")
    return scheme.lower() == "bearer" and key == api_key


def _no_route(routes: Endpoints, call: Call) -> Reply:
    shorter = call.request.path.rstrip("/")
    if shorter == call.request.path or unquote(shorter) not in routes:
        return Reply.of_json(404, {"detail": "Not Found"})
    host = call.request.header("host") or ""
    query = call.request.query and "?" + call.request.query
    return Reply(307, (("location", f"http://{host}{shorter}{query}"),))
