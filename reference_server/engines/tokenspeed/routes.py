"""TokenSpeed: SGLang's names, a behaviour of its own, and a control that may be missing."""

import threading

from ...httpd.messages import Reply
from ..fastapi import routing, validation
from ..fastapi.completions import Completions
from ..fastapi.generate import NativeGenerate
from ..fastapi.routing import Call, Endpoint, Endpoints, Handler
from ..options import EngineOptions
from ..state.machine import EngineState, Refit
from ..state.traits import Traits
from . import errors as requests
from .errors import MEMORY, Rejected, UnreadableBody
from .identity import TokenSpeedIdentity

_NO_CONTROL = {"error": "weight-sync control plane is unavailable on this server"}


def traits(version: str) -> Traits:
    """How a TokenSpeed behaves beneath its routes."""
    return Traits(locks=frozenset(), queues=True, needs_memory=True)


class TokenSpeed:
    """Translates between HTTP and an engine's state."""

    def __init__(self, options: EngineOptions, state: EngineState, port: int) -> None:
        self._options, self._state = options, state
        self._releasing = threading.Lock()
        self._transfers = 0
        identity = TokenSpeedIdentity(options, state)
        generate, openai = NativeGenerate(state), Completions(state)
        self.routes: Endpoints = {
            "/health": Endpoint("GET", lambda call: Reply(200), open=True),
            "/v1/models": Endpoint("GET", identity.models),
            "/generate": Endpoint("POST", generate.generate),
            "/v1/completions": Endpoint("POST", openai.completions),
            "/v1/chat/completions": Endpoint("POST", openai.chat),
            "/health_generate": Endpoint("GET", lambda call: Reply.of_json(200, {"status": "ok"}), open=True),
            "/pause_generation": self._control("POST", self._pause),
            "/continue_generation": self._control("POST", self._continue),
            "/update_weights_from_disk": self._control("POST", self._refit),
            "/update_weights_from_tensor": self._control("POST", self._take_tensors),
            "/update_weights_from_distributed": self._control("POST", self._take_broadcast),
            "/init_weights_update_group": self._control("POST", self._init_group),
            "/destroy_weights_update_group": self._control("POST", self._destroy_group),
            "/flush_cache": self._control("GET", self._flush),
            "/release_memory_occupation": self._control("POST", self._release),
            "/resume_memory_occupation": self._control("POST", self._retake),
            "/abort_request": self._control("POST", self._abort),
            "/get_weight_version": self._control("GET", identity.weight_version),
            "/update_weight_version": self._control("POST", self._rename),
            "/model_info": self._control("GET", identity.model_info),
            "/v1/loads": self._control("GET", identity.loads),
        }

    def _control(self, methods: str, handler: Handler) -> Endpoint:
        return Endpoint(methods, handler if self._options.control else lambda call: Reply.of_json(503, _NO_CONTROL))

    def answer(self, call: Call) -> Reply:
        try:
            return routing.answer(self.routes, call, self._options.api_key)
        except Rejected as rejected:
            return rejected.reply()
        except UnreadableBody:
            return Reply.of_text(500, "Internal Server Error")
        except validation.Invalid as invalid:
            return invalid.reply()

    def _pause(self, call: Call) -> Reply:
        # It drains, whatever mode it is asked for.
        self._state.pause("wait")
        return _done("Paused generation.")

    def _continue(self, call: Call) -> Reply:
        self._state.resume()
        return _done("Continued generation.")

    def _refit(self, call: Call) -> Reply:
        sent = requests.body(call, "model_path")
        path = requests.text(sent, "model_path")
        if self._state.refit(path, requests.version(sent)) is Refit.NO_CHECKPOINT:
            raise Rejected(f"Failed to update weights from {path}", 500)
        return _done("Succeeded to update model weights.")

    def _take_tensors(self, call: Call) -> Reply:
        return self._handed(call, "serialized_named_tensors")

    def _take_broadcast(self, call: Call) -> Reply:
        return self._handed(call, "names", "dtypes", "shapes")

    def _handed(self, call: Call, *required: str) -> Reply:
        sent = requests.body(call, *required)
        self._need_one_rank()
        flush = bool(sent.get("flush_cache", False))
        # No path says what came: it is named for how often something came.
        self._transfers += 1
        self._state.refit(f"transfer-{self._transfers}", requests.version(sent), flush=flush, handed=True)
        return _done("Succeeded to update parameter online.")

    def _init_group(self, call: Call) -> Reply:
        requests.body(call, "master_address", "master_port", "rank_offset", "world_size")
        self._need_one_rank()
        self._state.wait_for_trainer(call.gone)
        return _done("Succeeded to initialize custom process group.")

    def _destroy_group(self, call: Call) -> Reply:
        return _done("Succeeded to destroy custom process group.")

    def _need_one_rank(self) -> None:
        if self._options.dp_size != 1:
            raise Rejected("dp_size must be 1 for weight updates", 500)

    def _flush(self, call: Call) -> Reply:
        self._state.flush()
        # It does not look at what came of that.
        return _done("Cache flushed.")

    def _release(self, call: Call) -> Reply:
        tags = requests.tags(call, MEMORY)
        if not self._releasing.acquire(blocking=False):
            raise Rejected("a release waits for the requests in flight already")
        try:
            if tags & self._state.asleep:
                raise Rejected(f"tags already released: {requests.listed(tags & self._state.asleep)}")
            self._state.pause("wait")
            if not self._state.paused:
                raise Rejected("the release was cancelled by a resume")
            self._state.sleep(tags)
        finally:
            self._releasing.release()
        return _done("Released memory occupation.")

    def _retake(self, call: Call) -> Reply:
        tags = requests.tags(call, self._state.asleep)
        if tags - self._state.asleep:
            raise Rejected(f"tags not released: {requests.listed(tags - self._state.asleep)}")
        self._state.rouse(tags)
        return _done("Resumed memory occupation.")

    def _abort(self, call: Call) -> Reply:
        sent = requests.body(call, needed=True)
        if sent.get("abort_all"):
            # It pauses, ends all, and resumes, even an engine that was paused before.
            self._state.pause("abort")
            self._state.resume()
        elif sent.get("rid"):
            self._state.abort(requests.text(sent, "rid"))
        return Reply.of_json(200, {"success": True})

    def _rename(self, call: Call) -> Reply:
        version = requests.text(requests.body(call, "new_version"), "new_version")
        self._state.rename(version, abort=False)
        answer = {"success": True, "message": f"Weight version updated to {version}", "new_version": version}
        return Reply.of_json(200, answer)


def _done(message: str) -> Reply:
    return Reply.of_json(200, {"success": True, "message": message})
