"""The route table: path, methods with their handlers, guard, and what request ids begin with.

Contract, chapter "Routes". The first row whose path fits is the route; the groups of a path
are the arguments of its handler, still percent-escaped. HEAD rides on GET.
"""

from .auth import everybody
from .control import Control
from .httpd.router import Guard, Route
from .inference import Inference
from .readiness import Readiness
from .workers import Workers

# fmt: off


def control_routes(control: Control, admin: Guard) -> list[Route]:
    """`/v1/rl/*`; without `--enable-rl` none of them is there."""
    return [
        Route("/v1/rl/workers",                       {"GET": control.list_workers}, admin),
        Route("/v1/rl/workers/([^/]+)",               {"GET": control.one_worker}, admin),
        Route("/v1/rl/workers/([^/]*)/engine/(.+)",   {"GET": control.call, "POST": control.call}, admin),
        Route("/v1/rl/engine/(.+)",                   {"GET": control.fan_out, "POST": control.fan_out}, admin),
    ]


def other_routes(
    workers: Workers, inference: Inference, readiness: Readiness, admin: Guard, data: Guard
) -> list[Route]:
    """Registration, health, inference."""
    generate = {"POST": inference.pass_through}
    one_worker = {
        "GET": workers.one, "PUT": workers.replace, "PATCH": workers.patch, "DELETE": workers.remove
    }
    return [
        Route("/workers",                {"GET": workers.list, "POST": workers.add}, admin),
        Route("/workers/([^/]+)",        one_worker, admin),
        Route("/(?:health|liveness)",    {"GET": readiness.alive}, everybody),
        Route("/readiness",              {"GET": readiness.ready}, everybody),
        Route("/v1/models",              {"GET": inference.models}, everybody),
        Route("/generate",               generate, data, "gnt"),
        Route("/v1/chat/completions",    generate, data, "chatcmpl"),
        Route("/v1/completions",         generate, data, "cmpl"),
        Route("/v1/(?!rl(?:/|$)).+",     generate, data),
    ]
