"""Ask an engine what it is: kind, model, labels, ranks.

Contract, chapter "Discovery row" (labels read at registration).
"""

import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

from smg.rl.engines import ENGINES, Question, facts_of

from .outcome import Answered

Ask = Callable[[str], Answered | None]
"""GET a path of the engine; None when it gave no answer."""


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
    if not _lives(ask):
        return None
    model = _first_model(_object(ask("/v1/models")) or {})
    engine = runtime or _kind(ask, model)
    if engine is None:
        return None
    labels: dict[str, str] = {}
    for question in facts_of(engine).registration:
        labels |= _labels(_first_object(ask, question), question.labels)
    labels |= _labels(model, {"max_model_len": int})
    model_id = _text(model.get("id"))
    named = {"served_model_name": model_id, "model_path": _text(model.get("root")) or model_id}
    labels = {**{name: value for name, value in named.items() if value}, **labels}
    return Findings(engine, model_id or "unknown", labels)


def _lives(ask: Ask) -> bool:
    """Whether the engine is there: by its health or, where that stands still, by what it says of itself.

    A paused SGLang answers its health check with nothing for 20 seconds, then with 503.
    """
    health = ask("/health")
    if health is not None and health.status != 503:
        return health.succeeded
    return _object(ask("/server_info")) is not None


def _kind(ask: Ask, model: Mapping[str, object]) -> str | None:
    owner = _text(model.get("owned_by"))
    if owner in ENGINES:
        return owner
    signs = ((kind, facts.sign) for kind, facts in ENGINES.items() if facts.sign)
    return next((kind for kind, sign in signs if _object(ask(sign)) is not None), None)


def _first_model(models: Mapping[str, object]) -> Mapping[str, object]:
    data = models.get("data")
    return data[0] if isinstance(data, list) and data and isinstance(data[0], dict) else {}


def _first_object(ask: Ask, question: Question) -> Mapping[str, object]:
    return next((found for path in question.paths if (found := _object(ask(path))) is not None), {})


def _object(answer: Answered | None) -> Mapping[str, object] | None:
    if answer is None or not answer.succeeded:
        return None
    try:
        value = json.loads(answer.body)
    except (ValueError, RecursionError):
        return None
    return value if isinstance(value, dict) else None


def _labels(found: Mapping[str, object], fields: Mapping[str, type]) -> dict[str, str]:
    # One field of an unexpected type hides itself, not the others; a boolean is no number.
    return {
        name: _label(found[name])
        for name, kind in fields.items()
        if type(found.get(name)) is kind and found[name] != ""
    }


def _label(value: object) -> str:
    return value if isinstance(value, str) else json.dumps(value, separators=(",", ":"))


def _text(value: object) -> str:
    return value if isinstance(value, str) else ""
