"""What the OpenAI routes of engines have in common: prompts in, pieces of text out."""

from collections.abc import Iterator, Sequence
from typing import Any

from ..state.generation import Generation, Progress
from ..state.machine import EngineState
from ..state.weights import Tokens, decode, encode
from .routing import Call
from .validation import Check, either, integer, list_of, string

PROMPT: Check = either(list_of(integer), list_of(list_of(integer)), list_of(string), string)
"""A text or a list of tokens, or a list of either."""


def prompts(prompt: Any) -> list[Tokens]:
    """The prompts in a value that has passed `PROMPT`."""
    if isinstance(prompt, str):
        return [encode(prompt)]
    if prompt and isinstance(prompt[0], int):
        return [tuple(prompt)]
    return [encode(one) if isinstance(one, str) else tuple(one) for one in prompt]


def conversation(messages: Sequence[dict[str, Any]]) -> Tokens:
    """The prompt that the messages of a chat make."""
    return encode(" ".join(_content(message) for message in messages))


def _content(message: dict[str, Any]) -> str:
    """The text of a message: a string, or parts of which some are text."""
    content = message.get("content") or ""
    if isinstance(content, str):
        return content
    return " ".join(str(part.get("text", "")) for part in content if isinstance(part, dict))


def pieces(state: EngineState, call: Call, generations: Sequence[Generation]) -> Iterator[tuple[int, Progress, str]]:
    """Index, progress and the text that is new in it."""
    seen = [0] * len(generations)
    for index, progress in state.stream(generations, call.gone):
        yield index, progress, decode(progress.tokens[seen[index] :])
        seen[index] = len(progress.tokens)


def wants_usage(body: dict[str, Any]) -> bool:
    """Whether a stream is to end with its usage."""
    return bool((body["stream_options"] or {}).get("include_usage"))
