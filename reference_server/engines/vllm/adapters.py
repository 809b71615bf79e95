"""LoRA adapters of a vLLM that was started with VLLM_ALLOW_RUNTIME_LORA_UPDATING=1 and --enable-lora."""

from collections.abc import Mapping

from ...httpd.messages import Reply
from ..fastapi.routing import Call
from ..fastapi.validation import REQUIRED, Fields, boolean, integer, optional, string
from ..options import EngineOptions
from ..state.machine import Adapted, EngineState
from . import errors
from .errors import ApiError

_LOAD: Fields = {
    "lora_name": (string, REQUIRED),
    "lora_path": (string, REQUIRED),
    "load_inplace": (boolean, False),
    "is_3d_lora_weight": (boolean, False),
}
_UNLOAD: Fields = {"lora_name": (string, REQUIRED), "lora_int_id": (optional(integer), None)}

_BAD = "InvalidUserInput"
_NOT_LOADED: Mapping[Adapted, tuple[int, str, str]] = {
    Adapted.TAKEN: (400, _BAD, "LoRA adapter '{name}' is loaded already; load_inplace replaces it."),
    Adapted.NO_CHECKPOINT: (404, "NotFoundError", "No files of LoRA adapter '{name}' were found at '{path}'."),
}


class VLLMAdapters:
    """Answers the two routes. An unload forgets the name and waits for nobody."""

    def __init__(self, options: EngineOptions, state: EngineState) -> None:
        self._options, self._state = options, state

    def load(self, call: Call) -> Reply:
        body = errors.body(call, _LOAD)
        name, path = body["lora_name"], body["lora_path"]
        if not (name and path):
            raise ApiError(400, "lora_name and lora_path must not be empty.", _BAD)
        if name == self._options.model:
            raise ApiError(400, f"'{name}' is the name of a served base model.", _BAD)
        loaded = self._state.load_adapter(name, path, in_place=body["load_inplace"])
        if loaded in _NOT_LOADED:
            status, kind, sentence = _NOT_LOADED[loaded]
            raise ApiError(status, sentence.format(name=name, path=path), kind)
        return Reply.of_text(200, f"Success: LoRA adapter '{name}' added successfully.")

    def unload(self, call: Call) -> Reply:
        name = errors.body(call, _UNLOAD)["lora_name"]
        if not name:
            raise ApiError(400, "lora_name must not be empty.", _BAD)
        if not self._state.unload_adapter(name):
            raise ApiError(404, f"There is no LoRA adapter '{name}'.", "NotFoundError")
        return Reply.of_text(200, f"Success: LoRA adapter '{name}' removed successfully.")
