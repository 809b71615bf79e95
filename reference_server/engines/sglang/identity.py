"""What SGLang 0.5.23 tells about itself."""

import time
from collections.abc import Mapping
from datetime import datetime, timezone

from ...httpd.messages import Reply
from ..fastapi.routing import Call
from ..options import EngineOptions
from ..state.generation import Phase
from ..state.machine import EngineState

_CONTEXT_LENGTH = 32768
_MAX_RUNNING = 256
_MAX_TOKENS = 131072

_NOT_COUNTED = (
    "num_waiting_uncached_tokens",
    "num_used_tokens",
    "num_total_tokens",
    "num_active_tokens",
    "num_prealloc_ready_tokens",
    "total_prefill_uncached_tokens",
    "total_prefill_busy_us",
)
_QUEUES = ("waiting", "grammar", "paused", "retracted", "prealloc_ready")
_DISAGGREGATION = (
    "prefill_bootstrap_queue_reqs",
    "prefill_inflight_queue_reqs",
    "decode_prealloc_queue_reqs",
    "decode_transfer_queue_reqs",
    "decode_retracted_queue_reqs",
)
_SECTIONS: Mapping[str, object] = {
    "memory": {"weight_gb": 0.0, "kv_cache_gb": 0.0, "graph_gb": 0.0, "token_capacity": _MAX_TOKENS},
    "disaggregation": {
        "mode": "null",
        **dict.fromkeys(_DISAGGREGATION, 0),
        "kv_transfer_speed_gb_s": 0.0,
        "kv_transfer_latency_ms": 0.0,
    },
    "queues": dict.fromkeys(_QUEUES, 0),
}
_ASKED_AS = {"memory": "memory", "disaggregation": "disagg", "queues": "queues"}
_EMBEDDING: Mapping[str, object] = {
    **dict.fromkeys(("family", "task", "execution", "attention"), "none"),
    "pooling": "model_defined",
    "normalize": False,
    "postprocessor": "none",
    "tokenizer_special_tokens": "model_default",
    **dict.fromkeys(("supports_dimensions", "supports_token_embeddings", "supports_multimodal"), False),
    **dict.fromkeys(("requires_embedding_flag", "auto_enable_embedding"), False),
    "bcg_eligibility": "disabled",
    **dict.fromkeys(("safe_disable_kv_cache", "safe_disable_radix_cache", "safe_disable_chunked_prefill"), False),
    "enabled": False,
    "matryoshka_dimensions": [],
    "bcg": {
        "prefill_backend": "disabled",
        "enabled": False,
        "capture_token_budget": 2048,
        "capture_batch_sizes": [4, 8, 16, 32, 64, 128, 256, 512, 1024, 2048],
    },
    "cache": dict.fromkeys(("kv_cache_disabled", "radix_cache_disabled", "chunked_prefill_disabled"), False),
}
_NOT_MEASURED = ("token_usage", "gen_throughput", "cache_hit_rate", "utilization")


class SGLangIdentity:
    """Answers the routes that change nothing.

    `/model_info` and `/v1/models` follow a refit; `/server_info` goes on telling the
    values of the start, but for its `internal_states`.
    """

    def __init__(self, options: EngineOptions, state: EngineState, port: int) -> None:
        self._options, self._state, self._port = options, state, port
        self._started_with = state.weights

    def model_info(self, call: Call) -> Reply:
        reported = self._state.reported
        info = {
            "model_path": reported.path,
            "served_model_name": self._served_name(),
            "tokenizer_path": self._started_with.path,
            "is_generation": True,
            "preferred_sampling_params": None,
            "weight_version": reported.version,
            "load_format": "auto",
            "reasoning_parser": None,
            "tool_call_parser": None,
            "disaggregation_mode": "null",
            "has_image_understanding": False,
            "has_audio_understanding": False,
            "model_type": "llama",
            "architectures": ["LlamaForCausalLM"],
            "embedding": _EMBEDDING,
        }
        return Reply.of_json(200, info)

    def server_info(self, call: Call) -> Reply:
        options, started = self._options, self._started_with
        arguments = {
            "model_path": started.path,
            "tokenizer_path": started.path,
            "served_model_name": options.model,
            "weight_version": started.version,
            "load_format": "auto",
            "context_length": _CONTEXT_LENGTH,
            "is_embedding": False,
            "host": "127.0.0.1",
            "port": self._port,
            "tp_size": options.tp_size,
            "dp_size": options.dp_size,
            "pp_size": options.pp_size,
            "ep_size": 1,
            "load_balance_method": "round_robin",
            "disaggregation_mode": "null",
            "max_running_requests": _MAX_RUNNING,
            "max_total_tokens": _MAX_TOKENS,
        }
        now = {"model_path": self._state.reported.path, "weight_version": self._state.reported.version}
        info = {
            **arguments,
            "status": "ready",
            "max_total_num_tokens": _MAX_TOKENS,
            "max_req_input_len": _CONTEXT_LENGTH - 6,
            "startup_time": {},
            "kv_events": None,
            "launch_command": f"--model-path {started.path} --served-model-name {options.model}",
            "internal_states": [{**arguments, **now}] * options.dp_size,
            "version": options.version,
            "frontend": "python",
        }
        return Reply.of_json(200, info)

    def models(self, call: Call) -> Reply:
        name = self._served_name()
        base = _model(name, name, None, _CONTEXT_LENGTH)
        adapters = [_model(adapter, path, name, None) for adapter, path in self._state.adapters.items()]
        return Reply.of_json(200, {"object": "list", "data": [base, *adapters]})

    def loads(self, call: Call) -> Reply:
        now = datetime.now(timezone.utc)
        answer = {
            "timestamp": now.isoformat(),
            "version": self._options.version,
            "accelerator": None,
            "num_accelerators": self._options.tp_size * self._options.pp_size,
            "loads": [
                {**self._load(rank, now.timestamp()), **self._sections(call.query("include"))}
                for rank in range(self._options.dp_size)
            ],
        }
        return Reply.of_json(200, answer)

    def _sections(self, include: str | None) -> dict[str, object]:
        """What `include` asks for beyond the core, all of it by default."""
        asked = {"all"} if include is None else set(include.split(","))
        return {name: values for name, values in _SECTIONS.items() if asked & {_ASKED_AS[name], "all"}}

    def _load(self, rank: int, now: float) -> dict[str, object]:
        return {
            "timestamp": now,
            "dp_rank": rank,
            "num_running_reqs": self._share(rank, self._state.count(Phase.RUNNING)),
            "num_waiting_reqs": self._share(rank, self._state.count(Phase.QUEUED)),
            "max_total_num_tokens": _MAX_TOKENS,
            "max_running_requests": _MAX_RUNNING,
            **dict.fromkeys(_NOT_COUNTED, 0),
            **dict.fromkeys(_NOT_MEASURED, 0.0),
            "decode_moments": None,
        }

    def _share(self, rank: int, count: int) -> int:
        """A rank's part of `count`: the lower ranks have what does not divide."""
        return (count + self._options.dp_size - 1 - rank) // self._options.dp_size

    def _served_name(self) -> str:
        """After a refit the model goes by the path it was loaded from."""
        reported = self._state.reported
        return reported.path if reported.load else self._options.model


def _model(name: str, root: str, parent: str | None, max_model_len: int | None) -> dict[str, object]:
    """One of the models that are served: the base, or an adapter of it."""
    return {
        "id": name,
        "object": "model",
        "created": int(time.time()),
        "owned_by": "sglang",
        "root": root,
        "parent": parent,
        "max_model_len": max_model_len,
    }
