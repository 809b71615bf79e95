"""What vLLM tells about itself."""

import time
import uuid

from ...httpd.messages import Reply
from ..fastapi import validation
from ..fastapi.routing import Call
from ..fastapi.validation import Fields, boolean, one_of
from ..options import EngineOptions
from ..state.generation import Phase
from ..state.machine import EngineState

MAX_MODEL_LEN = 32768

_WORLD: Fields = {"include_dp": (boolean, True)}
_CONFIG: Fields = {"config_format": (one_of("text", "json"), "text")}
_SLEEP_STATE = "vllm:engine_sleep_state"
_SLEEP_STATES = ("awake", "weights_offloaded", "discard_all")
_PROMETHEUS = "text/plain; version=0.0.4; charset=utf-8"
_PERMISSION = {
    "object": "model_permission",
    "allow_create_engine": False,
    "allow_sampling": True,
    "allow_logprobs": True,
    "allow_search_indices": False,
    "allow_view": True,
    "allow_fine_tuning": False,
    "organization": "*",
    "group": None,
    "is_blocking": False,
}


class VLLMIdentity:
    """Answers the routes that change nothing. A refit changes no name and no path here."""

    def __init__(self, options: EngineOptions, state: EngineState) -> None:
        self._options, self._state = options, state

    def version(self, call: Call) -> Reply:
        return Reply.of_json(200, {"version": self._options.version})

    def models(self, call: Call) -> Reply:
        base = _model(self._options.model, self._options.model_path, None, MAX_MODEL_LEN)
        adapters = self._state.adapters.items()
        models = [base, *(_model(name, path, self._options.model, None) for name, path in adapters)]
        return Reply.of_json(200, {"object": "list", "data": models})

    def load(self, call: Call) -> Reply:
        """All the requests there are; a real engine counts them only if it was started to."""
        return Reply.of_json(200, {"server_load": self._state.count(Phase.RUNNING, Phase.QUEUED, Phase.PARKED)})

    def world_size(self, call: Call) -> Reply:
        with_dp = validation.checked(call.queries, _WORLD, "query")["include_dp"]
        options = self._options
        size = options.tp_size * options.pp_size * (options.dp_size if with_dp else 1)
        return Reply.of_json(200, {"world_size": size})

    def server_info(self, call: Call) -> Reply:
        options = self._options
        parallel = {
            "tensor_parallel_size": options.tp_size,
            "pipeline_parallel_size": options.pp_size,
            "data_parallel_size": options.dp_size,
        }
        config: dict[str, dict[str, object]] = {
            "model_config": {
                "model": options.model_path,
                "served_model_name": options.model,
                "max_model_len": MAX_MODEL_LEN,
            },
            "parallel_config": dict(parallel),
        }
        text = ", ".join(f"{name}={value!r}" for part in config.values() for name, value in part.items())
        as_json = validation.checked(call.queries, _CONFIG, "query")["config_format"] == "json"
        info = {
            "vllm_config": config if as_json else text,
            "vllm_env": {"VLLM_SERVER_DEV_MODE": options.dev_mode},
            "system_env": {"vllm_version": options.version},
        }
        return Reply.of_json(200, info)

    def weight_info(self, call: Call) -> Reply:
        return Reply.of_json(200, {"weight_version": self._state.weights.version})

    def metrics(self, call: Call) -> Reply:
        """What memory sleeps, which a pause alone does not change."""
        now = self._sleep_state()
        lines = [
            f"# HELP {_SLEEP_STATE} Whether the engine is in this sleep state.",
            f"# TYPE {_SLEEP_STATE} gauge",
            *(f'{_SLEEP_STATE}{{sleep_state="{one}"}} {float(one == now)}' for one in _SLEEP_STATES),
        ]
        return Reply(200, (("content-type", _PROMETHEUS),), ("\n".join(lines) + "\n").encode())

    def _sleep_state(self) -> str:
        if "weights" not in self._state.asleep:
            return "awake"
        return "weights_offloaded" if self._state.weights.path else "discard_all"


def _model(name: str, path: str, parent: str | None, max_model_len: int | None) -> dict[str, object]:
    """One of the models that are served: the base, or an adapter of it."""
    now = int(time.time())
    return {
        "id": name,
        "object": "model",
        "created": now,
        "owned_by": "vllm",
        "root": path,
        "parent": parent,
        "max_model_len": max_model_len,
        "permission": [{"id": f"modelperm-{uuid.uuid4().hex[:16]}", "created": now, **_PERMISSION}],
    }
