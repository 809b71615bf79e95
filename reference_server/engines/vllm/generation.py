"""`/v1/completions` and `/v1/chat/completions`, as vLLM takes them in."""

import uuid
from collections.abc import Sequence
from typing import Any

from ...httpd.messages import Reply
from ..fastapi import openai_input
from ..fastapi.routing import Call
from ..fastapi.sse import event_stream
from ..fastapi.validation import REQUIRED, Fields, boolean, integer, list_of, mapping, number, optional, string
from ..options import EngineOptions
from ..state.batch import DuplicateRequest
from ..state.generation import Adapter, Generation, Wanted
from ..state.machine import EngineState, EngineStopped, NothingNew
from ..state.weights import Tokens
from . import errors
from .answers import Chat, Completion, Shape
from .errors import ApiError, bad_request
from .features import Features
from .identity import MAX_MODEL_LEN

_COMMON: Fields = {
    "model": (optional(string), None),
    "n": (optional(integer), None),
    "temperature": (optional(number), None),
    "ignore_eos": (boolean, False),
    "stream": (optional(boolean), False),
    "stream_options": (optional(mapping), None),
    "request_id": (optional(string), None),
    "return_token_ids": (optional(boolean), False),
    "return_weight_versions": (optional(boolean), False),
}
_COMPLETION: Fields = {
    **_COMMON,
    "prompt": (optional(openai_input.PROMPT), None),
    "max_tokens": (optional(integer), 16),
}
_CHAT: Fields = {
    **_COMMON,
    "messages": (list_of(mapping), REQUIRED),
    "max_tokens": (optional(integer), None),
    "max_completion_tokens": (optional(integer), None),
}

_Asked = tuple[Tokens, int | None, bool, Adapter | None]
"""Prompt, limit, whether it ignores the end, adapter."""

_PAUSED = "Generation is paused. Please retry after it resumes."
_NO_PROMPT = "Either prompt or prompt_embeds must be provided and non-empty. (parameter=prompt)"
_NO_MESSAGES = "Cannot apply chat template to an empty conversation. Provide at least one message."


class VLLMGenerate:
    """Answers the two routes; `vllm_answers` has in what their answers differ."""

    def __init__(self, options: EngineOptions, state: EngineState, features: Features) -> None:
        self._options, self._state, self._features = options, state, features

    def completions(self, call: Call) -> Reply:
        body = errors.body(call, _COMPLETION)
        self._check_model(body)
        if body["prompt"] in (None, ""):
            raise bad_request(_NO_PROMPT, "prompt")
        prompts = openai_input.prompts(body["prompt"])
        if not prompts:
            raise bad_request("You must pass at least one prompt")
        return self._generate(call, body, prompts, body["max_tokens"], Completion)

    def chat(self, call: Call) -> Reply:
        body = errors.body(call, _CHAT)
        self._check_model(body)
        if not body["messages"]:
            raise bad_request(_NO_MESSAGES)
        limit = body["max_tokens"] if body["max_completion_tokens"] is None else body["max_completion_tokens"]
        return self._generate(call, body, [openai_input.conversation(body["messages"])], limit, Chat)

    def _generate(
        self, call: Call, body: dict[str, Any], prompts: Sequence[Tokens], limit: int | None, shape: type[Shape]
    ) -> Reply:
        samples = _samples(body)
        _check_limit(limit)
        id = f"{shape.prefix}-{body['request_id'] or call.request.header('x-request-id') or uuid.uuid4().hex[:16]}"
        each = [prompt for prompt in prompts for _ in range(samples)]
        adapter = self._state.adapter(body["model"] or "")
        asked = [(prompt, limit, body["ignore_eos"], adapter) for prompt in each]
        generations = self._arrive(asked, shape.ids(id, len(each)))
        spans = bool(body["return_weight_versions"]) and self._features.weight_spans
        answers = shape(id, self._options, body, each, spans=spans)
        if body["stream"]:
            new = openai_input.pieces(self._state, call, generations)
            return event_stream(self._state, generations, answers.events(new))
        try:
            return Reply.of_json(200, answers.whole(self._state.results(generations, call.gone)))
        except EngineStopped:
            # What was asked of an engine that dies is answered by the HTTP server in front of it.
            if self._state.crashed is None:
                raise
            raise errors.dead() from None

    def _arrive(self, asked: Sequence[_Asked], ids: Sequence[str]) -> list[Generation]:
        wanted = [Wanted(id, *one) for id, one in zip(ids, asked, strict=True)]
        try:
            return self._state.arrive(wanted)
        except NothingNew:
            raise ApiError(503, _PAUSED, "ServiceUnavailableError") from None
        except DuplicateRequest:
            # Two requests may go by one id here.
            return self._arrive(asked, [f"{id}-{uuid.uuid4().hex}" for id in ids])

    def _check_model(self, body: dict[str, Any]) -> None:
        name, served = body["model"], self._options.model
        if name not in (None, "", served, *self._state.adapters):
            sentence = f"The model `{name}` does not exist. Valid aliases: {served}."
            raise ApiError(404, sentence, "NotFoundError", "model")


def _samples(body: dict[str, Any]) -> int:
    samples = 1 if body["n"] is None else int(body["n"])
    if samples < 1:
        raise bad_request(f"n must be at least 1, got {samples}.")
    if samples > 1 and body["temperature"] == 0:
        raise bad_request(f"n must be 1 when using greedy sampling, got {samples}.")
    return samples


def _check_limit(limit: int | None) -> None:
    if limit is None:
        return
    value = f"(parameter=max_tokens, value={limit})"
    if limit < 1:
        raise bad_request(f"max_tokens must be at least 1, got {limit}. {value}", "max_tokens")
    if limit > MAX_MODEL_LEN:
        sentence = f"max_tokens={limit} cannot be greater than max_model_len={MAX_MODEL_LEN}."
        raise bad_request(f"{sentence} Please request fewer output tokens. {value}", "max_tokens")
