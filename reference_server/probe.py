"""Ask an engine what it is: kind, model, labels, ranks.

Contract, chapter "Discovery row" (labels read at registration).
"""

import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

from .outcome import Answered

Ask = Callable[[str], Answered | None]
"""GET a path of the engine; None when it gave no answer."""

_TEXT, _WHOLE, _FLAG = (str,), (int,), (bool,)

# Which fields become labels, and of which type they must be to be believed.
_SERVER_INFO: Mapping[str, tuple[type, ...]] = {
    "model_path": _TEXT,
    "served_model_name": _TEXT,
    "tokenizer_path": _TEXT,
    "version": _TEXT,
    "weight_version": _TEXT,
    "load_balance_method": _TEXT,
    "tp_size": _WHOLE,
    "dp_size": _WHOLE,
    "pp_size": _WHOLE,
    "max_running_requests": _WHOLE,
    "max_total_tokens": _WHOLE,
    "context_length": _WHOLE,
    "is_embedding": _FLAG,
}
_MODEL_INFO: Mapping[str, tuple[type, ...]] = {
    "model_path": _TEXT,
    "tokenizer_path": _TEXT,
    "model_type": _TEXT,
    "is_generation": _FLAG,
    "has_image_understanding": _FLAG,
    "has_audio_understanding": _FLAG,
    "architectures": (list,),
}
_VERSION: Mapping[str, tuple[type, ...]] = {"version": _TEXT}

# For each kind: the paths to ask, with an older name behind a newer one, and their fields.
_SGLANG = ((("/server_info", "/get_server_info"), _SERVER_INFO), (("/model_info", "/get_model_info"), _MODEL_INFO))
_METADATA: Mapping[str, tuple[tuple[tuple[str, ...], Mapping[str, tuple[type, ...]]], ...]] = {
    "sglang": _SGLANG,
    "tokenspeed": _SGLANG,
    "vllm": ((("/version",), _VERSION),),
}
# What an engine says that does not name itself as the owner of its models.
_SIGNS = (("/server_info", "sglang"), ("/version", "vllm"))


@dataclass(frozen=True)
class Findings:
    """What an engine said about itself."""

    engine: str
    model_id: str = "unknown"
    labels: Mapping[str, str] = field(default_factory=dict)

    def ranks(self) -> int:
        size = self.labels.get("dp_size", "")
        return int(size) if size.isdigit() else 1


def probe(ask: Ask, runtime: str | None) -> Findings | None:
    """Everything the engine tells; None when it is not healthy, or of no kind we know.

    `runtime` is the kind when the registration names it.
    """
    health = ask("/health")
    if health is None or not health.succeeded:
        return None
    model = _first_model(_object(ask("/v1/models")) or {})
    engine = runtime or _kind(ask, model)
    if engine is None:
        return None
    labels: dict[str, str] = {}
    for paths, fields in _METADATA.get(engine, ()):
        labels |= _labels(_first_object(ask, paths), fields)
    labels |= _labels(model, {"max_model_len": _WHOLE})
    model_id = _text(model.get("id"))
    named = {"served_model_name": model_id, "model_path": _text(model.get("root")) or model_id}
    labels = {**{name: value for name, value in named.items() if value}, **labels}
    return Findings(engine, model_id or "unknown", labels)


def _kind(ask: Ask, model: Mapping[str, object]) -> str | None:
    owner = _text(model.get("owned_by"))
    if owner in _METADATA:
        return owner
    return next((kind for path, kind in _SIGNS if _object(ask(path)) is not None), None)


def _first_model(models: Mapping[str, object]) -> Mapping[str, object]:
    data = models.get("data")
    return data[0] if isinstance(data, list) and data and isinstance(data[0], dict) else {}


def _first_object(ask: Ask, paths: tuple[str, ...]) -> Mapping[str, object]:
    return next((found for path in paths if (found := _object(ask(path))) is not None), {})


def _object(answer: Answered | None) -> Mapping[str, object] | None:
    if answer is None or not answer.succeeded:
        return None
    try:
        value = json.loads(answer.body)
    except (ValueError, RecursionError):
        return None
    return value if isinstance(value, dict) else None


def _labels(found: Mapping[str, object], fields: Mapping[str, tuple[type, ...]]) -> dict[str, str]:
    # One field of an unexpected type hides itself, not the others.
    return {
        name: _label(found[name])
        for name, types in fields.items()
        if type(found.get(name)) in types and found[name] != ""
    }


def _label(value: object) -> str:
    return value if isinstance(value, str) else json.dumps(value, separators=(",", ":"))


def _text(value: object) -> str:
    return value if isinstance(value, str) else ""
