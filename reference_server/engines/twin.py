"""One life of an engine: its answers, with their effect, or those of a twin without."""

from collections.abc import Callable, Mapping

from ..httpd.messages import Reply
from .fastapi.routing import Call
from .faults import broken_answers
from .kinds import DIALECTS
from .options import EngineOptions
from .state.clock import RealTicks
from .state.machine import EngineState
from .state.traits import Traits

# What is answered by an engine that was called before, or that a trainer has joined, which
# no twin was and none has.
_AFTER_OTHERS: Mapping[str, Mapping[str, object]] = {
    "vllm": {
        "/init_weight_transfer_engine": {"message": "Weight transfer initialized"},
        "/start_weight_update": {"message": "Weight update started"},
        "/start_draft_weight_update": {"message": "Draft weight update started"},
        "/update_weights": {"message": "Weights updated"},
        "/finish_weight_update": {"message": "Weight update finished"},
    },
    "tokenspeed": {
        "/init_weights_update_group": {
            "success": True,
            "message": "Succeeded to initialize custom process group.",
        },
    },
}


class Life:
    """An engine from its start to its stop: what its script knows of it.

    `die` is how it crashes, from a thread of its own.
    """

    def __init__(
        self, kind: str, options: EngineOptions, state: EngineState, port: int, die: Callable[[bool], None]
    ) -> None:
        self.kind, self.crash = kind, die
        self._options, self._state, self._port = options, state, port
        self._dialect = DIALECTS[kind].dialect(options, state, port)

    @property
    def stopped(self) -> bool:
        return self._state.stopped

    def answer(self, call: Call) -> Reply:
        return self._dialect.answer(call)

    def rehearse(self, call: Call) -> Reply:
        """What is answered by a twin: an engine in the same state, for which every checkpoint loads."""
        told = _AFTER_OTHERS.get(self.kind, {}).get(call.path)
        if told is not None:
            return Reply.of_json(200, told)
        twin = _twin(self._state, self._options, DIALECTS[self.kind].traits)
        ticks = RealTicks(0.0)
        ticks.start(twin)
        try:
            reply = DIALECTS[self.kind].dialect(self._options, twin, self._port).answer(call)
            return Reply(reply.status, reply.headers, broken_answers.whole(reply))
        finally:
            twin.stop()
            ticks.stop(twin)


def _twin(state: EngineState, options: EngineOptions, traits: Callable[[str], Traits]) -> EngineState:
    weights = state.weights
    twin = EngineState(
        weights.path, weights.version, generation_ticks=options.generation_ticks, traits=traits(options.version)
    )
    twin.pause_mode, twin.asleep = state.pause_mode, state.asleep
    return twin
