"""vLLM as a kind of engine."""

from smg.rl.engines import ENGINES

from ..kind import Kind
from .features import traits
from .routes import VLLM as VLLMDialect

# These succeed once a trainer has joined, whom a rehearsal does not have.
_REHEARSALS = {
    "/init_weight_transfer_engine": {"message": "Weight transfer initialized"},
    "/start_weight_update": {"message": "Weight update started"},
    "/start_draft_weight_update": {"message": "Draft weight update started"},
    "/update_weights": {"message": "Weights updated"},
    "/finish_weight_update": {"message": "Weight update finished"},
}


def _failure(path: str, message: str) -> object:
    """In the words of the framework that wraps its routes."""
    return {"success": False} if path == "/reset_prefix_cache" else {"status": "error", "message": message}


VLLM = Kind("vllm", ENGINES["vllm"], "0.33.0", VLLMDialect, traits, _failure, _REHEARSALS)
