"""What this engine would answer, found out on a copy, so that a fault can have the answer without the effect."""

from ..httpd.messages import Reply
from .fastapi.routing import Call
from .faults import broken_answers
from .kind import Kind
from .options import EngineOptions
from .state.clock import RealTicks
from .state.machine import EngineState


def rehearse(kind: Kind, options: EngineOptions, state: EngineState, port: int, call: Call) -> Reply:
    """The whole answer of a twin: an engine in the same state, for which every checkpoint loads."""
    told = kind.rehearsals.get(call.path)
    if told is not None:
        return Reply.of_json(200, told)
    twin = state.twin()
    ticks = RealTicks(0.0)
    ticks.start(twin)
    try:
        reply = kind.dialect(options, twin, port).answer(call)
        return Reply(reply.status, reply.headers, broken_answers.whole(reply))
    finally:
        twin.stop()
        ticks.stop(twin)
