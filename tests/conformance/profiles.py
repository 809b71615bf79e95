"""What an engine answers when no rule says otherwise: enough to be registered, and to be told apart."""

import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass

from .vectors import JSON, Reply

Options = dict[str, JSON]


@dataclass(frozen=True)
class Question:
    method: str
    path: str
    body: bytes
    options: Options

    @property
    def model(self) -> JSON:
        return self.options.get("model", "test/model")


Handler = Callable[[Question], Reply]
NOT_FOUND: Reply = {"status": 404, "json": {"detail": "Not Found"}}


def default_reply(profile: str, question: Question) -> Reply:
    routes = PROFILES[profile]
    handler = routes.get(question.path) or routes.get(f"{question.method} {question.path}")
    if handler is None and profile == "sglang" and question.path.startswith("/inference/"):
        handler = _echo
    return handler(question) if handler else NOT_FOUND


def _healthy(question: Question) -> Reply:
    return {"body": ""}


def _echo(question: Question) -> Reply:
    return {"json": {"method": question.method, "path": question.path, "len": len(question.body)}}


def _models(owner: str, **more: JSON) -> Handler:
    def answer(question: Question) -> Reply:
        model: dict[str, JSON] = {
            "id": question.model,
            "object": "model",
            "created": 0,
            "owned_by": owner,
            "root": question.model,
            "max_model_len": 4096,
        }
        return {"json": {"object": "list", "data": [model | more]}}

    return answer


def _overridden(base: dict[str, JSON], extra: JSON) -> Reply:
    return {"json": base | extra if isinstance(extra, dict) else base}


def _server_info(question: Question) -> Reply:
    options = question.options
    info: dict[str, JSON] = {
        "model_path": question.model,
        "served_model_name": question.model,
        "tokenizer_path": question.model,
        "tp_size": options.get("tp_size", 1),
        "dp_size": options.get("dp_size", 1),
        "pp_size": options.get("pp_size", 1),
        "version": options.get("version", "0.5.15.post1"),
        "weight_version": options.get("weight_version", "default"),
        "max_running_requests": 16,
        "internal_states": [{}],
    }
    return _overridden(info, options.get("server_info"))


def _model_info(question: Question) -> Reply:
    info: dict[str, JSON] = {
        "model_path": question.model,
        "tokenizer_path": question.model,
        "is_generation": True,
        "weight_version": question.options.get("weight_version", "default"),
    }
    return _overridden(info, question.options.get("model_info"))


def _generate(question: Question) -> Reply:
    version = question.options.get("weight_version", "default")
    about: JSON = {"id": "g", "weight_version": version, "finish_reason": {"type": "stop"}}
    return {"json": {"text": "ok", "meta_info": about}}


def _wants_json(question: Question) -> Reply:
    try:
        json.loads(question.body)
    except ValueError:
        return {"status": 400, "json": {"detail": "a JSON body is required"}}
    return {"json": {"status": "ok", "message": question.path.strip("/")}}


def _flush(question: Question) -> Reply:
    return {"content_type": "text/plain; charset=utf-8", "body": "Cache flushed.\n"}


def _version(question: Question) -> Reply:
    return {"json": {"version": question.options.get("version", "0.11.0")}}


def _done(question: Question) -> Reply:
    return {"json": {"status": question.path.strip("/")}}


PROFILES: Mapping[str, Mapping[str, Handler]] = {
    "bare": {"/health": _healthy},
    "sglang": {
        "/health": _healthy,
        "/server_info": _server_info,
        "/get_server_info": _server_info,
        "/model_info": _model_info,
        "/get_model_info": _model_info,
        "/v1/models": _models("sglang"),
        "POST /generate": _generate,
        "POST /pause_generation": _wants_json,
        "POST /continue_generation": _wants_json,
        "/flush_cache": _flush,
        "/echo": _echo,
    },
    "vllm": {
        "/health": _healthy,
        "/version": _version,
        "/v1/models": _models("vllm", parent=None),
        "POST /pause": _done,
        "POST /resume": _done,
    },
}
