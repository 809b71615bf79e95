"""`/generate`, which is SGLang's and which TokenSpeed copies: one prompt or several, whole or as a stream."""

import time
import uuid
from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import Any

from ...httpd.messages import Reply
from ..state.batch import DuplicateRequest
from ..state.generation import Adapter, Generation, Progress, Wanted
from ..state.machine import EngineState
from ..state.weights import END_TOKEN, Tokens, decode, encode
from . import validation
from .routing import Call
from .sse import event, event_stream
from .validation import Fields, boolean, either, integer, list_of, mapping, optional, string

_FIELDS: Fields = {
    "text": (optional(either(string, list_of(string))), None),
    "input_ids": (optional(either(list_of(integer), list_of(list_of(integer)))), None),
    "sampling_params": (optional(either(mapping, list_of(mapping))), None),
    "rid": (optional(either(string, list_of(string))), None),
    "stream": (boolean, False),
    "lora_path": (optional(string), None),
    "return_logprob": (optional(either(boolean, list_of(boolean))), False),
}
# Any other name is refused, so that a slip of the pen does not pass for a sampling parameter.
_SAMPLING = (
    "max_new_tokens stop stop_token_ids stop_regex temperature top_p top_k min_p frequency_penalty "
    "presence_penalty repetition_penalty min_new_tokens n json_schema regex ebnf structural_tag ignore_eos "
    "skip_special_tokens spaces_between_special_tokens no_stop_trim stream_interval logit_bias sampling_seed "
    "custom_params beam_width watermark choice".split()
)


class NotServable(Exception):
    """A request that validates and still cannot be served; `error` says why."""

    def __init__(self, error: object) -> None:
        super().__init__(error)
        self.error = error


class NativeGenerate:
    """Answers `/generate`; with `adapters` a request may choose a LoRA adapter."""

    def __init__(self, state: EngineState, *, adapters: bool = False) -> None:
        self._state, self._adapters = state, adapters

    def generate(self, call: Call) -> Reply:
        body = validation.body(call, _FIELDS)
        try:
            wanted, single = _wanted(body, self._adapter(body["lora_path"]))
            generations = self._state.arrive(wanted)
        except NotServable as refused:
            return Reply.of_json(400, {"error": refused.error})
        except DuplicateRequest as duplicate:
            return Reply.of_json(400, {"error": _message(f"Duplicate request ID detected: {duplicate.id}")})
        logprobs = bool(body["return_logprob"])
        if body["stream"]:
            return event_stream(self._state, generations, self._events(call, generations, single, logprobs))
        results = self._state.results(generations, call.gone)
        answers = [_answer(remembered(one), logprobs, first=True) for one in results]
        return Reply.of_json(200, answers[0] if single else answers)

    def _adapter(self, name: str | None) -> Adapter | None:
        if name is None or not self._adapters:
            return None
        if (adapter := self._state.adapter(name)) is None:
            raise NotServable(_message(f"LoRA adapter {name!r} is not loaded."))
        return adapter

    def _events(self, call: Call, generations: Sequence[Generation], single: bool, logprobs: bool) -> Iterator[bytes]:
        begun = set[int]()
        for index, progress in self._state.stream(generations, call.gone):
            answer = _answer(progress, logprobs, first=index not in begun)
            begun.add(index)
            yield event(answer if single else {**answer, "index": index})


def _message(text: str) -> dict[str, str]:
    return {"message": text}


def _wanted(body: dict[str, Any], adapter: Adapter | None) -> tuple[list[Wanted], bool]:
    """What the body asks for, and whether it is one answer and not a list."""
    prompts, single = _prompts(body)
    count = len(prompts)
    params = body["sampling_params"] or {}
    each = params if isinstance(params, list) else [params] * count
    ids = body["rid"] if isinstance(body["rid"], list) else _ids(body["rid"], count)
    if not len(each) == len(ids) == count:
        raise NotServable(_message("sampling_params and rid must be as many as the prompts."))
    samples = _number(each[0], "n", 1) or 1 if each else 1
    wanted = []
    for prompt, one, id in zip(prompts, each, ids, strict=True):
        for unknown in one.keys() - set(_SAMPLING):
            known = ", ".join(f"`{name}`" for name in _SAMPLING)
            raise NotServable(f"unknown field `{unknown}`, expected one of {known}")
        limit = _number(one, "max_new_tokens", 0)
        for sample in range(samples):
            own = id if samples == 1 else f"{id}_{sample}"
            wanted.append(Wanted(own, prompt, limit, bool(one.get("ignore_eos")), adapter))
    return wanted, single and samples == 1


def _number(params: dict[str, Any], name: str, minimum: int) -> int | None:
    value = params.get(name)
    if value is not None and (isinstance(value, bool) or not isinstance(value, int)):
        raise NotServable(f"invalid type: {value!r}, expected i64")
    if value is None or value >= minimum:
        return value
    raise NotServable(_message(f"{name} must be at least {minimum}, got {value}."))


def _prompts(body: dict[str, Any]) -> tuple[list[Tokens], bool]:
    ids, text = body["input_ids"], body["text"]
    if ids:
        single = not isinstance(ids[0], list)
        return [tuple(prompt) for prompt in ([ids] if single else ids)], single
    if text is None:
        raise NotServable(_message("Either text, input_ids or input_embeds should be provided."))
    single = isinstance(text, str)
    return [encode(prompt) for prompt in ([text] if single else text)], single


def _ids(rid: str | None, count: int) -> list[str]:
    if rid is None:
        return [uuid.uuid4().hex for _ in range(count)]
    return [rid] if count == 1 else [f"{rid}_{index}" for index in range(count)]


def _answer(progress: Progress, logprobs: bool, *, first: bool) -> dict[str, object]:
    meta = _meta_of_queued(progress) if queued(progress) else _meta(progress, logprobs)
    if progress.ending is not None:
        meta["e2e_latency"] = progress.seconds
    if first:
        meta["response_sent_to_client_ts"] = time.time()
    return {"text": decode(progress.tokens), "output_ids": progress.tokens, "meta_info": meta}


def queued(progress: Progress) -> bool:
    """Whether it was aborted in the queue; of such a request SGLang forgets almost everything."""
    return progress.ending is not None and progress.ending.queued


def remembered(progress: Progress) -> Progress:
    """What SGLang remembers of a request that is not streamed."""
    return replace(progress, tokens=(), versions=()) if queued(progress) else progress


def _meta(progress: Progress, logprobs: bool) -> dict[str, object]:
    meta: dict[str, object] = {
        "id": progress.id,
        "finish_reason": _finish_reason(progress),
        "prompt_tokens": progress.prompt_tokens,
        "weight_version": progress.weight_version,
        "num_retractions": progress.retractions,
    }
    if logprobs:
        # No distribution behind it; the value only has to be one that can be.
        made = [[-1.0, token, None] for token in progress.tokens]
        meta |= {"input_token_logprobs": [], "output_token_logprobs": made, "output_token_logprobs_length": len(made)}
    meta |= {
        "reasoning_tokens": 0,
        "completion_tokens": len(progress.tokens),
        "cached_tokens": progress.cached_tokens,
    }
    details = {"device": progress.cached_tokens, "host": 0} if progress.cached_tokens else None
    if progress.ending is None:
        return meta | {"cached_tokens_details": details, "dp_rank": None}
    return meta | {"weight_versions": progress.weight_versions(), "cached_tokens_details": details, "dp_rank": None}


def _meta_of_queued(progress: Progress) -> dict[str, object]:
    return {
        "id": progress.id,
        "finish_reason": {"type": "abort", "message": "Abort in waiting queue"},
        "weight_version": progress.weight_version,
        "weight_versions": progress.weight_versions(),
        "completion_tokens": len(progress.tokens),
    }


def _finish_reason(progress: Progress) -> dict[str, object] | None:
    if progress.ending is None:
        return None
    reasons: dict[str, dict[str, object]] = {
        "stop": {"type": "stop", "matched": END_TOKEN},
        "length": {"type": "length", "length": len(progress.tokens)},
        "abort": {"type": "abort", "message": "Aborted", "status_code": None, "err_type": None},
    }
    return reasons[progress.ending.kind]
