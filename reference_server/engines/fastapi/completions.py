"""`/v1/completions` and `/v1/chat/completions` as SGLang answers them, and TokenSpeed after it."""

import time
import uuid
from collections.abc import Callable, Iterator, Sequence
from typing import Any

from ...httpd.messages import Reply
from ..state.generation import Generation, Progress, Wanted
from ..state.machine import EngineState
from ..state.weights import END_TOKEN, Tokens, decode
from . import validation
from .generate import queued, remembered
from .openai_input import PROMPT, conversation, pieces, prompts, wants_usage
from .routing import Call
from .sse import event, event_stream
from .validation import REQUIRED, Fields, Invalid, at_least, boolean, list_of, mapping, optional, string

_COMMON: Fields = {
    "model": (string, "default"),
    "n": (at_least(1), 1),
    "ignore_eos": (boolean, False),
    "stream": (optional(boolean), False),
    "stream_options": (optional(mapping), None),
}
_COMPLETION: Fields = {**_COMMON, "prompt": (PROMPT, REQUIRED), "max_tokens": (optional(at_least(1)), None)}
_CHAT: Fields = {
    **_COMMON,
    "messages": (list_of(mapping), REQUIRED),
    "max_tokens": (optional(at_least(0)), None),
    "max_completion_tokens": (optional(at_least(0)), None),
}

_NOT_JSON = {
    "loc": ["header", "content-type"],
    "msg": "Unsupported Media Type: Only 'application/json' is allowed",
    "type": "value_error",
}

_NO_DETAILS = {"prompt_tokens_details": None, "completion_tokens_details": None}

Choice = Callable[[int, str, Progress], dict[str, object]]
"""Index, new text and progress -> one entry of `choices`."""


class Completions:
    """Answers the two routes; they differ in how a prompt comes in and how a choice goes out."""

    def __init__(self, state: EngineState) -> None:
        self._state = state

    def completions(self, call: Call) -> Reply:
        body = _body(call, _COMPLETION)
        asked = prompts(body["prompt"])
        if not asked:
            return validation.error("Prompt cannot be empty", "BadRequestError")
        generations = self._arrive(body, asked, body["max_tokens"])
        if body["stream"]:
            return event_stream(self._state, generations, self._completion_events(call, body, generations))
        return self._whole(call, generations, _head("text_completion", body), _text_choice)

    def chat(self, call: Call) -> Reply:
        body = _body(call, _CHAT)
        if not body["messages"]:
            return validation.error("Messages cannot be empty.", "BadRequestError")
        prompt = conversation(body["messages"])
        generations = self._arrive(body, [prompt], _first(body["max_completion_tokens"], body["max_tokens"]))
        if body["stream"]:
            return event_stream(self._state, generations, self._chat_events(call, body, generations))
        return self._whole(call, generations, _head("chat.completion", body), _message_choice)

    def _arrive(self, body: dict[str, Any], prompts: Sequence[Tokens], limit: int | None) -> list[Generation]:
        samples = [prompt for prompt in prompts for _ in range(body["n"])]
        return self._state.arrive([Wanted(uuid.uuid4().hex, one, limit, body["ignore_eos"]) for one in samples])

    def _whole(self, call: Call, generations: Sequence[Generation], head: dict[str, object], choice: Choice) -> Reply:
        results = [remembered(one) for one in self._state.results(generations, call.gone)]
        answer = {
            **head,
            "choices": [choice(index, decode(one.tokens), one) for index, one in enumerate(results)],
            "usage": _usage(results) | _NO_DETAILS,
            "metadata": {"weight_version": results[0].weight_version, "weight_versions": results[0].weight_versions()},
        }
        return Reply.of_json(200, answer)

    def _completion_events(
        self, call: Call, body: dict[str, Any], generations: Sequence[Generation]
    ) -> Iterator[bytes]:
        head, last = _head("text_completion", body), dict[int, Progress]()
        for index, progress, text in pieces(self._state, call, generations):
            last[index] = progress
            yield event({**head, "choices": [_text_choice(index, text, progress)], "usage": None})
        if wants_usage(body):
            yield event({**head, "choices": [], "usage": _usage(list(last.values()))})

    def _chat_events(self, call: Call, body: dict[str, Any], generations: Sequence[Generation]) -> Iterator[bytes]:
        head, last = _head("chat.completion.chunk", body), dict[int, Progress]()
        for index, progress, text in pieces(self._state, call, generations):
            if index not in last:
                yield event({**head, "choices": [_delta(index, {"role": "assistant", "content": ""})]})
            last[index] = progress
            if text:
                yield event({**head, "choices": [_delta(index, {"content": text})]})
            if progress.ending:
                yield event({**head, "choices": [_delta(index, {}) | _finish(progress)]})
        if wants_usage(body):
            yield event({**head, "choices": [], "usage": _usage(list(last.values())) | _NO_DETAILS})


def _body(call: Call, fields: Fields) -> dict[str, Any]:
    if not validation.is_json(call):
        raise Invalid(_NOT_JSON)
    return validation.body(call, fields)


def _first(*limits: int | None) -> int | None:
    return next((limit for limit in limits if limit is not None), None)


def _head(kind: str, body: dict[str, Any]) -> dict[str, object]:
    return {"id": uuid.uuid4().hex, "object": kind, "created": int(time.time()), "model": body["model"]}


def _text_choice(index: int, text: str, progress: Progress) -> dict[str, object]:
    return {"index": index, "text": text, "logprobs": None, **_finish(progress)}


def _message_choice(index: int, text: str, progress: Progress) -> dict[str, object]:
    message = {"role": "assistant", "content": text, "reasoning_content": None}
    return {"index": index, "message": message, "logprobs": None, **_finish(progress)}


def _delta(index: int, new: dict[str, str]) -> dict[str, object]:
    delta = {"reasoning_content": None, **new}
    return {"index": index, "delta": delta, "logprobs": None, "finish_reason": None, "matched_stop": None}


def _finish(progress: Progress) -> dict[str, object]:
    kind = progress.ending and progress.ending.kind
    return {"finish_reason": kind, "matched_stop": END_TOKEN if kind == "stop" else None}


def _usage(results: Sequence[Progress]) -> dict[str, object]:
    prompt = sum(0 if queued(one) else one.prompt_tokens for one in results)
    made = sum(len(one.tokens) for one in results)
    return {"prompt_tokens": prompt, "total_tokens": prompt + made, "completion_tokens": made, "reasoning_tokens": 0}
