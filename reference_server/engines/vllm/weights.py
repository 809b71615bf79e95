"""How weights come to a vLLM: from disk by a call to its workers, or handed over by a trainer."""

from collections.abc import Callable, Mapping
from typing import Any

from ...httpd.messages import Reply
from ..fastapi.routing import Call
from ..fastapi.validation import REQUIRED, Fields, either, list_of, mapping, string
from ..options import EngineOptions
from ..state.machine import EngineState, Refit
from . import errors
from .errors import ApiError, worker_failed

_RENAME: Fields = {"new_version": (string, REQUIRED)}
_INIT: Fields = {"init_info": (mapping, REQUIRED)}
_UPDATE: Fields = {"update_info": (either(list_of(mapping), mapping), REQUIRED)}
_FINISH: Fields = {"weight_version": (string, None)}

_RELOAD_ARGUMENTS = {"weights_path", "weights_iterator", "is_checkpoint_format"}


class VLLMWeights:
    """Answers the routes that change the weights or their name.

    None of them waits for the requests in flight, or empties the prefix cache.
    """

    def __init__(self, options: EngineOptions, state: EngineState) -> None:
        self._state = state
        self._workers = options.tp_size * options.pp_size
        self._methods: Mapping[str, Callable[[Mapping[str, Any]], object]] = {
            "reload_weights": self._reload,
            "check_health": lambda arguments: None,
            "determine_available_memory": lambda arguments: 1 << 30,
        }
        self._trainer = self._updating = False
        self._transfers = 0

    def collective_rpc(self, call: Call) -> Reply:
        body = errors.undeclared(call, "JSON decode error: {}")
        method, arguments = body.get("method"), body.get("kwargs") or {}
        if method is None:
            raise ApiError(400, "Missing 'method' in request body", "Bad Request")
        if not isinstance(method, str):
            raise worker_failed("the first argument must be callable")
        if method not in self._methods:
            raise worker_failed(f"'Worker' object has no attribute '{method}'")
        if not isinstance(arguments, dict):
            raise worker_failed(f"{method}() argument after ** must be a mapping, not {type(arguments).__name__}")
        result = self._methods[method](arguments)
        # Over this route, what a worker returns is text.
        return Reply.of_json(200, {"results": [None if result is None else str(result)] * self._workers})

    def rename(self, call: Call) -> Reply:
        version = errors.embedded(call, _RENAME)["new_version"]
        self._state.rename(version, abort=False)
        return Reply.of_json(200, {"success": True, "new_version": version})

    def init_transfer(self, call: Call) -> Reply:
        errors.embedded(call, _INIT)
        self._state.wait_for_trainer(call.gone)
        self._trainer = True
        return _message("Weight transfer initialized")

    def shut_transfer(self, call: Call) -> Reply:
        self._trainer = self._updating = False
        return _message("Weight transfer shut down")

    def start_update(self, call: Call) -> Reply:
        self._start()
        return _message("Weight update started")

    def start_draft_update(self, call: Call) -> Reply:
        self._start()
        return _message("Draft weight update started")

    def update(self, call: Call) -> Reply:
        """The new weights serve at once. They are named for how many updates there were: no path says more."""
        errors.embedded(call, _UPDATE)
        self._need_update()
        self._state.refit(f"transfer-{self._transfers}", flush=False, at_once=True, handed=True)
        return _message("Weights updated")

    def finish_update(self, call: Call) -> Reply:
        version = errors.embedded(call, _FINISH)["weight_version"]
        self._need_update()
        self._updating = False
        if version is not None:
            self._state.rename(version, abort=False)
        return _message("Weight update finished")

    def _start(self) -> None:
        self._need_trainer()
        self._updating = True
        self._transfers += 1

    def _reload(self, arguments: Mapping[str, Any]) -> None:
        for unknown in arguments.keys() - _RELOAD_ARGUMENTS:
            raise worker_failed(f"reload_weights() got an unexpected keyword argument '{unknown}'")
        # Without a path it is the one of the last time, even if nothing of its weights is left.
        path = arguments.get("weights_path") or self._state.reported.path
        if self._state.refit(str(path), flush=False, at_once=True) is Refit.NO_CHECKPOINT:
            sentence = f"Repo id must be in the form 'repo_name' or 'namespace/repo_name': '{path}'."
            raise worker_failed(f"{sentence} Use `repo_type` argument if needed.")

    def _need_trainer(self) -> None:
        if not self._trainer:
            sentence = "Weight transfer not configured. Please set weight_transfer_config to enable weight transfer."
            raise worker_failed(sentence)

    def _need_update(self) -> None:
        self._need_trainer()
        if not self._updating:
            raise worker_failed("No weight update was started. Call start_weight_update first.")


def _message(text: str) -> Reply:
    return Reply.of_json(200, {"message": text})
