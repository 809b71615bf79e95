"""The same requests to a mock and to a real engine: status, content type and JSON shape agree.

Runs when SMG_REAL_SGLANG or SMG_REAL_VLLM name running engines, as test_real_engines.py
does; prints how many requests agreed.
"""

import http.client
import json
import os
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import NamedTuple
from urllib.parse import urlsplit

import pytest

from reference_server import MockEngine

from .real import PROMPT, checkpoint, engine_urls

STEP_1, STEP_2 = "{step-1}", "{step-2}"


class Ask(NamedTuple):
    """One request; `body` is JSON, or bytes for what is none."""

    method: str
    path: str
    body: object = None


@dataclass(frozen=True)
class Answer:
    status: int
    type: str | None
    shape: object


def get(*paths: str) -> list[Ask]:
    return [Ask("GET", path) for path in paths]


def post(path: str, *bodies: object) -> list[Ask]:
    return [Ask("POST", path, body) for body in bodies or (None,)]


GENERATE = {"text": PROMPT, "sampling_params": {"max_new_tokens": 4, "temperature": 0, "ignore_eos": True}}
COMPLETE = {"model": "tiny", "prompt": PROMPT, "max_tokens": 4, "temperature": 0, "ignore_eos": True}
CHAT = {"model": "tiny", "messages": [{"role": "user", "content": "w1"}], "max_tokens": 4, "ignore_eos": True}

SGLANG: Sequence[Ask] = [
    *get("/health", "/ready", "/model_info", "/get_model_info", "/v1/models", "/ping", "/nope"),
    *get("/v1/loads", "/v1/loads?include=core", "/v1/loads?include=memory", "/v1/loads?include=queues,memory"),
    *get("/get_weight_version", "/pause_generation"),
    *post("/pause_generation", None, [1], {"mode": "bogus"}, {"mode": 7}, b"{"),
    *post("/continue_generation", None, {}),
    *post("/generate", GENERATE, {**GENERATE, "sampling_params": {"bogus": 1}}, {}, None, b"{"),
    *post(
        "/generate", {**GENERATE, "text": ["w1", "w2"]}, {"input_ids": [5, 6], "sampling_params": {"max_new_tokens": 2}}
    ),
    *post("/v1/completions", COMPLETE, {"model": "tiny"}),
    *post("/v1/chat/completions", CHAT, {"model": "tiny"}),
    *post("/pause_generation", {}),
    *get("/ready"),
    *post("/pause_generation", {"mode": "retract"}, {"mode": "in_place"}, {"mode": "abort"}),
    *post("/flush_cache"),
    *post("/update_weights_from_disk", None, {}, {"model_path": STEP_2, "weight_version": "42"}),
    *get("/model_info", "/v1/models"),
    *post("/update_weights_from_disk", {"model_path": "/no/such/folder"}, {"model_path": STEP_1}),
    *post("/update_weight_version", {}, {"new_version": "43"}, {"new_version": 44}),
    *post("/continue_generation", {}, {}),
    *post("/generate", GENERATE),
    *post("/abort_request", None, {}, {"rid": "unknown"}, {"abort_all": True}),
    *post("/flush_cache?timeout=1", None),
    *post("/flush_cache?timeout=x", None),
    *post("/begin_weight_update", {}),
    *post("/update_weights_from_distributed", {"names": ["a"], "dtypes": ["float32"], "shapes": [[1]]}),
    *post("/end_weight_update", {}),
    *post("/update_weights_from_distributed", {}, {"names": ["a"], "dtypes": ["float32"], "shapes": [[1]]}),
    *post("/init_weights_update_group", {}),
    *post("/destroy_weights_update_group", None, {}),
]
"""Requests to SGLang, in this order."""

VLLM: Sequence[Ask] = [
    *get("/health", "/version", "/v1/models", "/load", "/is_paused", "/is_sleeping", "/weight_info", "/nope", "/pause"),
    *get("/get_world_size"),
    *post("/v1/completions", COMPLETE, {**COMPLETE, "prompt": ["w1", "w2"]}, {"model": "tiny"}, None, b"{"),
    *post(
        "/v1/completions",
        {**COMPLETE, "model": "other"},
        {**COMPLETE, "max_tokens": 0},
    ),
    *post("/v1/chat/completions", CHAT, {"model": "tiny"}),
    *post("/pause?mode=bogus"),
    *post("/pause"),
    *get("/is_paused", "/health"),
    *post("/resume"),
    *post("/pause?mode=wait&clear_cache=false"),
    *post("/resume"),
    *post("/pause?mode=keep"),
    *post("/collective_rpc", {"method": "reload_weights", "kwargs": {"weights_path": STEP_2}}),
    *post("/collective_rpc", {}, {"method": "nope"}, {"method": "check_health"}, None, b"{"),
    *post("/reset_prefix_cache"),
    *post("/update_weight_version", None, {}, {"new_version": "42"}, {"new_version": 42}),
    *get("/weight_info", "/is_paused"),
    *post("/resume"),
    *get("/is_paused"),
    *post("/v1/completions", COMPLETE),
    *post("/abort_requests", {"request_ids": ["unknown"]}, {}),
    *post("/collective_rpc", {"method": "reload_weights", "kwargs": {"weights_path": STEP_1}}),
]
"""Requests to vLLM with VLLM_SERVER_DEV_MODE=1, in this order."""


@contextmanager
def connected(url: str) -> Iterator[http.client.HTTPConnection]:
    where = urlsplit(url)
    connection = http.client.HTTPConnection(where.hostname or "", where.port, timeout=60)
    try:
        yield connection
    finally:
        connection.close()


def tell(url: str, ask: Ask, steps: Mapping[str, str]) -> Answer:
    body, headers = None, {}
    if ask.body is not None:
        text = ask.body if isinstance(ask.body, bytes) else json.dumps(ask.body).encode()
        for name, path in steps.items():
            text = text.replace(name.encode(), path.encode())
        body, headers = text, {"content-type": "application/json"}
    with connected(url) as connection:
        connection.request(ask.method, ask.path, body, headers)
        got = connection.getresponse()
        content = got.read()
    kind = got.getheader("content-type")
    return Answer(got.status, kind, shape(json.loads(content)) if kind == "application/json" else bool(content))


def shape(value: object) -> object:
    """The keys and types of JSON, whole and other numbers alike."""
    if isinstance(value, dict):
        # `decode_moments` is null until something was decoded.
        return {key: shape(one) for key, one in sorted(value.items()) if key != "decode_moments"}
    if isinstance(value, list):
        return [shape(value[0])] if value else []
    if isinstance(value, (int, float)) and not isinstance(value, bool):
        return "number"
    return type(value).__name__


@pytest.mark.parametrize(
    ("kind", "variable", "asks"), [("sglang", "SMG_REAL_SGLANG", SGLANG), ("vllm", "SMG_REAL_VLLM", VLLM)]
)
def test_a_mock_answers_as_the_real_engine(
    kind: str, variable: str, asks: Sequence[Ask], capsys: pytest.CaptureFixture[str]
) -> None:
    (real, *_) = engine_urls(variable)
    steps = {f"{{step-{n}}}": checkpoint(variable, n) for n in (1, 2)}
    version = os.environ.get(f"{variable}_VERSION")
    with MockEngine(kind, model="tiny", model_path=steps[STEP_1], version=version, checkpoints=steps.values()) as mock:
        differ = [
            f"{ask.method} {ask.path} {ask.body}\n  real {theirs}\n  mock {ours}"
            for ask in asks
            if (theirs := tell(real, ask, steps)) != (ours := tell(mock.url, ask, steps))
        ]
    with capsys.disabled():
        print(f"\n{kind}: {len(asks) - len(differ)} of {len(asks)} requests agree")
    assert not differ, "\n".join(differ)
