"""vLLM 0.33: its routes, and the control among them."""

from collections.abc import Iterable

from ...httpd.messages import Reply
from ..fastapi import routing, validation
from ..fastapi.routing import Call, Endpoint, Endpoints
from ..fastapi.validation import Fields, Invalid, between, boolean, one_of
from ..options import EngineOptions
from ..state.machine import EngineState, Flush
from . import errors
from .adapters import VLLMAdapters
from .errors import ApiError
from .features import Features
from .generation import VLLMGenerate
from .identity import VLLMIdentity
from .weights import VLLMWeights

_MODE = one_of("abort", "wait", "keep")
_PAUSE: Fields = {
    "mode": (_MODE, "abort"),
    "clear_cache": (boolean, True),
    "wait_for_inflight_requests": (boolean, False),
}
_SLEEP: Fields = {"level": (between(0, 2), 1), "mode": (_MODE, "abort")}
_RESET: Fields = {"reset_running_requests": (boolean, False)}

_MEMORY = frozenset({"weights", "kv_cache"})
_DISCARDS = 2
_IN_FLIGHT = "a pause is still in flight"
_DIFFERENT = "Engines returned different values while a pause is in flight"
_GUARDED = ("/v1", "/v2", "/inference")
_NEW = (
    "/abort_requests /release_kv_cache_memory /shutdown_weight_transfer_engine /start_draft_weight_update "
    "/update_weight_version /weight_info".split()
)
"""Endpoints that older versions do not have."""


class VLLM:
    """Translates between HTTP and an engine's state."""

    def __init__(self, options: EngineOptions, state: EngineState, port: int) -> None:
        self._options, self._state = options, state
        self._features = Features.of(options.version)
        identity, generate = VLLMIdentity(options, state), VLLMGenerate(options, state, self._features)
        adapters = VLLMAdapters(options, state)
        self.routes: Endpoints = {
            "/health": Endpoint("GET", lambda call: Reply(200)),
            "/ping": Endpoint("GET POST", lambda call: Reply(200)),
            "/version": Endpoint("GET", identity.version),
            "/metrics": Endpoint("GET", identity.metrics),
            "/load": Endpoint("GET", identity.load),
            "/v1/models": Endpoint("GET", identity.models),
            "/v1/completions": Endpoint("POST", generate.completions),
            "/v1/chat/completions": Endpoint("POST", generate.chat),
            "/v1/load_lora_adapter": Endpoint("POST", adapters.load),
            "/v1/unload_lora_adapter": Endpoint("POST", adapters.unload),
            **(self._control(identity) if options.dev_mode else {}),
        }

    def _control(self, identity: VLLMIdentity) -> Endpoints:
        weights = VLLMWeights(self._options, self._state)
        control = {
            "/pause": Endpoint("POST", self._pause),
            "/resume": Endpoint("POST", self._resume),
            "/is_paused": Endpoint("GET", self._is_paused),
            "/abort_requests": Endpoint("POST", self._abort),
            "/sleep": Endpoint("POST", self._sleep),
            "/wake_up": Endpoint("POST", self._wake),
            "/is_sleeping": Endpoint("GET", self._is_sleeping),
            "/release_kv_cache_memory": Endpoint("POST", self._release),
            "/reset_prefix_cache": Endpoint("POST", self._reset),
            **routing.paths(("/reset_mm_cache", "/reset_encoder_cache"), Endpoint("POST", lambda call: Reply(200))),
            "/collective_rpc": Endpoint("POST", weights.collective_rpc),
            "/update_weight_version": Endpoint("POST", weights.rename),
            "/weight_info": Endpoint("GET", identity.weight_info),
            "/init_weight_transfer_engine": Endpoint("POST", weights.init_transfer),
            "/shutdown_weight_transfer_engine": Endpoint("POST", weights.shut_transfer),
            "/start_weight_update": Endpoint("POST", weights.start_update),
            "/start_draft_weight_update": Endpoint("POST", weights.start_draft_update),
            "/update_weights": Endpoint("POST", weights.update),
            "/finish_weight_update": Endpoint("POST", weights.finish_update),
            "/get_world_size": Endpoint("GET", identity.world_size),
            "/server_info": Endpoint("GET", identity.server_info),
        }
        missing: Iterable[str] = () if self._features.weight_routes else _NEW
        return {path: route for path, route in control.items() if path not in missing}

    def answer(self, call: Call) -> Reply:
        # The control is open to everyone: a key guards what generates.
        key = self._options.api_key if call.path.startswith(_GUARDED) else None
        try:
            return routing.answer(self.routes, call, key)
        except Invalid as invalid:
            return errors.invalid(invalid).reply()
        except ApiError as error:
            return error.reply()

    def _pause(self, call: Call) -> Reply:
        query = validation.checked(call.queries, _PAUSE, "query")
        drains = query["wait_for_inflight_requests"] and self._features.wait_flag
        mode = "wait" if drains else query["mode"]
        self._state.pause(mode)
        if query["clear_cache"] and mode != "keep":
            self._state.flush()
        return Reply.of_json(200, {"status": "paused"})

    def _resume(self, call: Call) -> Reply:
        if self._unsettled():
            return Reply.of_json(500, {"error": f"Failed to resume generation: {_IN_FLIGHT}"})
        # It does not look whether the memory is there.
        self._state.resume()
        return Reply.of_json(200, {"status": "resumed"})

    def _abort(self, call: Call) -> Reply:
        ids = errors.undeclared(call, "Invalid JSON format").get("request_ids")
        if not ids:
            return Reply.of_json(200, {"status": "aborted", "aborted": self._state.abort()})
        if not isinstance(ids, list | str | dict):
            why = f"Failed to abort requests: '{type(ids).__name__}' object is not iterable"
            return Reply.of_json(500, {"error": why})
        for id in ids:
            self._state.abort(str(id))
        # vLLM counts the ids it was given, known or not.
        return Reply.of_json(200, {"status": "aborted", "aborted": len(ids)})

    def _sleep(self, call: Call) -> Reply:
        query = validation.checked(call.queries, _SLEEP, "query")
        level = query["level"]
        self._state.pause(query["mode"])
        if level and self._state.asleep != _MEMORY:
            self._state.sleep(_MEMORY, discard=level == _DISCARDS)
        return self._told({"status": "sleeping", "level": level})

    def _wake(self, call: Call) -> Reply:
        tags = call.repeated("tags") or None
        awake = self._state.rouse(None if tags is None else frozenset(tags), early=not self._features.sleep_is_a_pause)
        return self._told({"status": "awake" if awake else "sleeping", "tags": tags})

    def _is_paused(self, call: Call) -> Reply:
        if self._unsettled():
            return Reply.of_json(500, {"error": f"Failed to fetch pause status: {_DIFFERENT}"})
        return Reply.of_json(200, {"is_paused": self._state.paused})

    def _unsettled(self) -> bool:
        """Whether data parallel ranks are on their way into a pause; a single engine is there at once."""
        return self._options.dp_size > 1 and self._state.pausing

    def _is_sleeping(self, call: Call) -> Reply:
        if self._unsettled():
            raise ApiError(500, _DIFFERENT, "InternalServerError")
        paused = self._features.sleep_is_a_pause and self._state.paused
        return Reply.of_json(200, {"is_sleeping": paused or bool(self._state.asleep)})

    def _release(self, call: Call) -> Reply:
        method = "release_kv_cache_memory"
        if self._state.asleep:
            raise errors.failed(method, f"{method}() requires all executor memory to be resident")
        if not self._state.frozen:
            raise errors.failed(method, f"{method}() requires a completed pause first")
        self._state.sleep(frozenset({"kv_cache"}))
        return Reply.of_json(200, {"status": "kv_cache_released"})

    def _reset(self, call: Call) -> Reply:
        retract = validation.checked(call.queries, _RESET, "query")["reset_running_requests"]
        return self._told({"success": self._state.flush(retract=retract) is Flush.DONE})

    def _told(self, answer: dict[str, object]) -> Reply:
        """An answer that older versions give without a body."""
        return Reply.of_json(200, answer) if self._features.json_answers else Reply(200)
