"""What vLLM answers to `/v1/completions` and `/v1/chat/completions`, whole and as events."""

import abc
import time
from collections.abc import Iterable, Iterator, Sequence
from typing import Any, ClassVar

from ..fastapi.openai_input import wants_usage
from ..fastapi.sse import event
from ..options import EngineOptions
from ..state.generation import Progress
from ..state.weights import Tokens, decode

Piece = tuple[int, Progress, str]
"""Index, progress and the text that is new in it."""

Json = dict[str, object]

_NO_DETAILS: Json = {"prompt_tokens_details": None, "completion_tokens_details": None}
_NO_TRANSFER: Json = {"kv_transfer_params": None, "ec_transfer_params": None, "metrics": None}


class Shape(abc.ABC):
    """The answer to one request, for the prompts of its choices; `spans`: each tells which weights made it."""

    prefix: ClassVar[str]
    whole_kind: ClassVar[str]
    event_kind: ClassVar[str]

    def __init__(
        self, id: str, options: EngineOptions, body: dict[str, Any], prompts: Sequence[Tokens], *, spans: bool
    ) -> None:
        self._head: Json = {"id": id, "created": int(time.time()), "model": body["model"] or options.model}
        self._fingerprint: Json = {"system_fingerprint": f"vllm-{options.version}-mock"}
        self._prompts, self._spans = prompts, spans
        self._token_ids, self._usage_wanted = bool(body["return_token_ids"]), wants_usage(body)

    @classmethod
    @abc.abstractmethod
    def ids(cls, id: str, count: int) -> list[str]:
        """The ids by which the engine knows the choices."""

    @abc.abstractmethod
    def choice(self, index: int, progress: Progress) -> Json:
        """A choice of the whole answer."""

    @abc.abstractmethod
    def delta(self, index: int, progress: Progress, text: str) -> Json:
        """A choice of an event."""

    def first(self, index: int) -> Json | None:
        """What comes before the first delta of a choice."""
        return None

    def whole(self, results: Sequence[Progress]) -> Json:
        choices = [self.choice(index, one) | self._made_by(one) for index, one in enumerate(results)]
        return {
            **self._head,
            "object": self.whole_kind,
            "choices": choices,
            "service_tier": None,
            **self._fingerprint,
            "usage": self._usage(results) | _NO_DETAILS,
            **_NO_TRANSFER,
        }

    def events(self, pieces: Iterable[Piece]) -> Iterator[bytes]:
        head = {**self._head, "object": self.event_kind}
        last = dict[int, Progress]()
        for index, progress, text in pieces:
            first = self.first(index) if index not in last else None
            if first is not None:
                yield event({**head, **first})
            last[index] = progress
            choice = self.delta(index, progress, text) | (self._made_by(progress) if progress.ending else {})
            over = len(last) == len(self._prompts) and all(one.ending for one in last.values())
            # The last event has the fingerprint, and with a usage that is another one.
            yield event({**head, "choices": [choice], **(self._fingerprint if over and not self._usage_wanted else {})})
        if self._usage_wanted:
            results = list(last.values())
            yield event({**head, "choices": [], "usage": self._usage(results), **self._fingerprint})

    def _usage(self, results: Sequence[Progress]) -> Json:
        prompt = sum(one.prompt_tokens for one in results)
        made = sum(len(one.tokens) for one in results)
        return {"prompt_tokens": prompt, "total_tokens": prompt + made, "completion_tokens": made}

    def _made_by(self, progress: Progress) -> Json:
        return {"weight_versions": progress.weight_versions()} if self._spans else {}

    def _tokens(self, tokens: Tokens) -> Tokens | None:
        return tokens if self._token_ids else None


class Completion(Shape):
    prefix, whole_kind, event_kind = "cmpl", "text_completion", "text_completion"

    @classmethod
    def ids(cls, id: str, count: int) -> list[str]:
        return [f"{id}-{index}" for index in range(count)]

    def choice(self, index: int, progress: Progress) -> Json:
        return {
            "index": index,
            "text": decode(progress.tokens),
            "logprobs": None,
            **_finish(progress),
            "token_ids": self._tokens(progress.tokens),
            "prompt_logprobs": None,
            "prompt_token_ids": self._tokens(self._prompts[index]),
            "routed_experts": None,
        }

    def delta(self, index: int, progress: Progress, text: str) -> Json:
        begins = len(progress.tokens) == 1
        return {
            "index": index,
            "text": text,
            "logprobs": None,
            **_finish(progress),
            "prompt_token_ids": self._tokens(self._prompts[index]) if begins else None,
            "token_ids": self._tokens(_new(progress, text)),
        }


class Chat(Shape):
    prefix, whole_kind, event_kind = "chatcmpl", "chat.completion", "chat.completion.chunk"

    @classmethod
    def ids(cls, id: str, count: int) -> list[str]:
        return [id] if count == 1 else [f"{index}_{id}" for index in range(count)]

    def whole(self, results: Sequence[Progress]) -> Json:
        prompt = self._tokens(self._prompts[0])
        return {**super().whole(results), "prompt_logprobs": None, "prompt_token_ids": prompt, "prompt_text": None}

    def choice(self, index: int, progress: Progress) -> Json:
        message = {
            "role": "assistant",
            "content": decode(progress.tokens),
            **dict.fromkeys(("refusal", "annotations", "audio", "function_call", "reasoning")),
        }
        return {
            "index": index,
            "message": message,
            "logprobs": None,
            **_finish(progress),
            "token_ids": self._tokens(progress.tokens),
            "routed_experts": None,
        }

    def first(self, index: int) -> Json:
        delta = {"role": "assistant", "content": ""}
        choice = {"index": index, "delta": delta, "logprobs": None, "finish_reason": None}
        return {"choices": [choice], "prompt_token_ids": None, "prompt_text": None}

    def delta(self, index: int, progress: Progress, text: str) -> Json:
        finish = _finish(progress) if progress.ending else {"finish_reason": None}
        new = self._tokens(_new(progress, text))
        return {"index": index, "delta": {"content": text}, "logprobs": None, **finish, "token_ids": new}


def _finish(progress: Progress) -> Json:
    return {"finish_reason": progress.ending and progress.ending.kind, "stop_reason": None}


def _new(progress: Progress, text: str) -> Tokens:
    """A stream tells of each token; only an ending may come without one."""
    return progress.tokens[-1:] if text else ()
