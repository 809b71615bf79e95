"""LoRA adapters of an SGLang that was started with --enable-lora."""

import threading
from collections.abc import Mapping

from ...httpd.messages import Reply
from ..fastapi import validation
from ..fastapi.routing import Call
from ..fastapi.validation import REQUIRED, Fields, boolean, string
from ..options import EngineOptions
from ..state.machine import Adapted, EngineState
from .weights import need_one_rank

_LOAD: Fields = {"lora_name": (string, REQUIRED), "lora_path": (string, REQUIRED), "pinned": (boolean, False)}
_UNLOAD: Fields = {"lora_name": (string, REQUIRED)}

_NOT_LOADED: Mapping[Adapted, str] = {
    Adapted.TAKEN: "LoRA adapter {name!r} is loaded already; unload it first.",
    Adapted.NO_CHECKPOINT: "Failed to load LoRA adapter {name!r}: there is nothing at {path!r}.",
}


class SGLangAdapters:
    """Answers the two routes, one call at a time: a load waits behind an unload that waits for requests."""

    def __init__(self, options: EngineOptions, state: EngineState) -> None:
        self._options, self._state = options, state
        self._one_at_a_time = threading.Lock()

    def load(self, call: Call) -> Reply:
        body = validation.body(call, _LOAD)
        name, path = body["lora_name"], body["lora_path"]
        need_one_rank(self._options)
        with self._one_at_a_time:
            loaded = self._state.load_adapter(name, path)
        return self._said(_NOT_LOADED.get(loaded, "").format(name=name, path=path))

    def unload(self, call: Call) -> Reply:
        name = validation.body(call, _UNLOAD)["lora_name"]
        need_one_rank(self._options)
        with self._one_at_a_time:
            there = self._state.unload_adapter(name, wait=True)
        return self._said("" if there else f"LoRA adapter {name!r} is not loaded.")

    def _said(self, problem: str) -> Reply:
        if problem:
            return Reply.of_json(400, refusal(problem))
        return Reply.of_json(200, {"success": True, "error_message": None, "loaded_adapters": self._state.adapters})


def refusal(problem: str) -> dict[str, object]:
    """The answer to a call that was not done. What was wrong has another name than on the other routes."""
    return {"success": False, "error_message": problem, "loaded_adapters": None}
