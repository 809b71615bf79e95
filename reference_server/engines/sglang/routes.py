"""SGLang 0.5.23: its routes, and the control among them."""

from collections.abc import Callable

from ...httpd.messages import Reply
from ..fastapi import routing, validation
from ..fastapi.completions import Completions
from ..fastapi.generate import NativeGenerate
from ..fastapi.routing import Call, Endpoint
from ..fastapi.validation import REQUIRED, Fields, boolean, list_of, one_of, optional, string
from ..options import EngineOptions
from ..state.machine import EngineState, Flush, Refit
from .adapters import SGLangAdapters
from .identity import SGLangIdentity
from .weights import AssertionFailed, SGLangWeights

_MEMORY = ("kv_cache", "weights", "cuda_graph")

_PAUSE: Fields = {"mode": (one_of("abort", "retract", "in_place"), "abort")}
_CONTINUE: Fields = {"torch_empty_cache": (boolean, True)}
_REFIT: Fields = {
    "model_path": (string, REQUIRED),
    "weight_version": (optional(string), None),
    "flush_cache": (boolean, True),
    "abort_all_requests": (boolean, False),
}
_RENAME: Fields = {"new_version": (string, REQUIRED), "abort_all_requests": (boolean, True)}
_ABORT: Fields = {"rid": (optional(string), ""), "abort_all": (boolean, False)}
_TAGS: Fields = {"tags": (optional(list_of(string)), None)}

_FLUSHES = {
    Flush.DONE: (
        200,
        "Cache flushed.\nPlease check backend logs for more details. "
        "(When there are running or waiting requests, the operation will not be performed.)\n",
    ),
    Flush.BUSY: (400, "Flush cache failed.\n"),
    Flush.TIMED_OUT: (400, "Timed out waiting for idle state."),
}
_NOT_FLUSHED = (
    "Weights were updated, but the cache was not flushed because requests are still running or queued. "
    "Retract or finish them, then call /flush_cache."
)


class SGLang:
    """Translates between HTTP and an engine's state."""

    def __init__(self, options: EngineOptions, state: EngineState, port: int) -> None:
        self._options, self._state = options, state
        identity = SGLangIdentity(options, state, port)
        generate, openai = NativeGenerate(state, adapters=True), Completions(state)
        weights, adapters = SGLangWeights(options, state), SGLangAdapters(options, state)
        frame = {
            "/begin_weight_update": Endpoint("POST", weights.begin),
            "/end_weight_update": Endpoint("POST", weights.end),
        }
        self.routes = {
            "/": Endpoint("GET", lambda call: Reply.of_json(200, "SGLang is running")),
            "/pause_generation": Endpoint("POST", self._pause),
            "/continue_generation": Endpoint("POST", self._continue),
            "/update_weights_from_disk": Endpoint("POST", self._refit),
            "/update_weight_version": Endpoint("POST", self._rename),
            "/update_weights_from_distributed": Endpoint("POST", weights.from_group),
            "/update_weights_from_tensor": Endpoint("POST", weights.from_tensors),
            "/init_weights_update_group": Endpoint("POST", weights.init_group),
            "/destroy_weights_update_group": Endpoint("POST", weights.destroy_group),
            "/load_lora_adapter": Endpoint("POST", adapters.load),
            "/unload_lora_adapter": Endpoint("POST", adapters.unload),
            **(frame if weights.framed else {}),
            "/flush_cache": Endpoint("GET POST", self._flush),
            "/abort_request": Endpoint("POST", self._abort),
            "/release_memory_occupation": Endpoint("GET POST", lambda call: self._memory(call, state.release)),
            "/resume_memory_occupation": Endpoint("GET POST", lambda call: self._memory(call, state.wake)),
            "/generate": Endpoint("POST PUT", generate.generate),
            "/v1/completions": Endpoint("POST", openai.completions),
            "/v1/chat/completions": Endpoint("POST", openai.chat),
            "/v1/models": Endpoint("GET", identity.models),
            "/v1/loads": Endpoint("GET", identity.loads),
            **routing.paths(("/health", "/health_generate"), Endpoint("GET", self._health, open=True)),
            "/ready": Endpoint("GET", self._ready, open=True),
            "/ping": Endpoint("GET", self._ready),
            **routing.paths(("/model_info", "/get_model_info"), Endpoint("GET", identity.model_info)),
            **routing.paths(("/server_info", "/get_server_info"), Endpoint("GET", identity.server_info)),
        }

    def answer(self, call: Call) -> Reply:
        try:
            return routing.answer(self.routes, call, self._options.api_key)
        except validation.Invalid as invalid:
            return invalid.reply()
        except AssertionFailed:
            return Reply.of_text(500, "Internal Server Error")

    def _pause(self, call: Call) -> Reply:
        self._state.pause(validation.body(call, _PAUSE)["mode"])
        return Reply.of_json(200, {"message": "Generation paused successfully.", "status": "ok"})

    def _continue(self, call: Call) -> Reply:
        validation.body(call, _CONTINUE)
        self._state.resume()
        return Reply.of_json(200, {"message": "Generation continued successfully.", "status": "ok"})

    def _refit(self, call: Call) -> Reply:
        body = validation.body(call, _REFIT)
        path, version = body["model_path"], body["weight_version"]
        refit = self._state.refit(path, version, flush=body["flush_cache"], abort=body["abort_all_requests"])
        message = {
            Refit.DONE: "Succeeded to update model weights.",
            Refit.NOT_FLUSHED: _NOT_FLUSHED,
            Refit.NO_CHECKPOINT: f"Failed to get weights iterator: {_why_not(path)}",
        }[refit]
        done = refit is Refit.DONE
        ranks = self._options.dp_size
        message = " | ".join([message] * ranks)
        if done and version is not None:
            message += f" Weight version updated to {version}."
        paused = 0 if ranks == 1 else [0] * ranks
        answer = {"success": done, "message": message, "num_paused_requests": paused}
        return Reply.of_json(200 if done else 400, answer)

    def _rename(self, call: Call) -> Reply:
        body = validation.body(call, _RENAME)
        version = body["new_version"]
        self._state.rename(version, abort=body["abort_all_requests"])
        message = f"Weight version updated to {version}"
        return Reply.of_json(200, {"success": True, "message": message, "new_version": version})

    def _flush(self, call: Call) -> Reply:
        status, text = _FLUSHES[self._state.flush(validation.seconds(call, "timeout"))]
        return Reply(status, (), text.encode())

    def _abort(self, call: Call) -> Reply:
        body = validation.body(call, _ABORT)
        if body["abort_all"] or body["rid"]:
            self._state.abort(None if body["abort_all"] else body["rid"])
        return Reply(200)

    def _memory(self, call: Call, act: Callable[[frozenset[str]], None]) -> Reply:
        act(frozenset(validation.body(call, _TAGS)["tags"] or _MEMORY))
        return Reply.of_json(200, None)

    def _health(self, call: Call) -> Reply:
        # A real engine asks itself for one token, which is parked like any other request.
        asks = self._options.health_generation
        return Reply(200 if not asks or self._state.wait_until_running(self._options.health_timeout) else 503)

    def _ready(self, call: Call) -> Reply:
        return Reply(503 if self._state.paused else 200)


def _why_not(path: str) -> str:
    """Why nothing loads from `path`: it is no folder, or no model of the hub that is on this disk."""
    if path.startswith("/") or path.count("/") > 1:
        return (
            f"Repo id must be in the form 'repo_name' or 'namespace/repo_name': '{path}'. "
            "Use `repo_type` argument if needed.."
        )
    return (
        "Cannot find an appropriate cached snapshot folder for the specified revision on the local disk "
        "and outgoing traffic has been disabled. To enable repo look-ups and downloads online, "
        "pass 'local_files_only=False' as input.."
    )
