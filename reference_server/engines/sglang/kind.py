"""SGLang as a kind of engine."""

from smg.rl.engines import ENGINES

from ..kind import Kind, unsuccessful
from .adapters import refusal
from .routes import SGLang


def _failure(path: str, message: str) -> object:
    return refusal(message) if path.endswith("load_lora_adapter") else unsuccessful(path, message)


SGLANG = Kind("sglang", ENGINES["sglang"], "0.5.23", SGLang, failure=_failure)
