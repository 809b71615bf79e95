"""What TokenSpeed tells about itself."""

import time

from ...httpd.messages import Reply
from ..fastapi.routing import Call
from ..options import EngineOptions
from ..state.generation import Phase
from ..state.machine import EngineState

_MAX_MODEL_LEN = 32768
_PAGE = 64


class TokenSpeedIdentity:
    """Answers the routes that change nothing."""

    def __init__(self, options: EngineOptions, state: EngineState) -> None:
        self._options, self._state = options, state

    def models(self, call: Call) -> Reply:
        model = {
            "id": self._options.model,
            "object": "model",
            "created": int(time.time()),
            "owned_by": "tokenspeed",
            "root": self._options.model,
            "parent": None,
            "max_model_len": _MAX_MODEL_LEN,
        }
        return Reply.of_json(200, {"object": "list", "data": [model]})

    def model_info(self, call: Call) -> Reply:
        weights = self._state.reported
        return Reply.of_json(200, {"model_path": weights.path, "weight_version": weights.version})

    def weight_version(self, call: Call) -> Reply:
        return Reply.of_json(200, {"weight_version": self._state.reported.version})

    def loads(self, call: Call) -> Reply:
        """What there is, on the first rank: the others are idle."""
        waiting = self._state.count(Phase.QUEUED, Phase.PARKED)
        running = self._state.count(Phase.RUNNING)
        first = {"num_reqs": running + waiting, "num_waiting_reqs": waiting, "num_pages": running * _PAGE}
        idle = dict.fromkeys(first, 0)
        loads = [{"dp_rank": rank, **(idle if rank else first)} for rank in range(self._options.dp_size)]
        return Reply.of_json(200, {"loads": loads})
