"""TokenSpeed's error answers, and how it reads a body."""

import json
from collections.abc import Collection
from typing import Any

from ...httpd.messages import Reply
from ..fastapi.routing import Call

MEMORY = frozenset({"weights", "kv_cache"})


class Rejected(Exception):
    """A request that is refused, with a sentence."""

    def __init__(self, sentence: str, status: int = 400) -> None:
        super().__init__(sentence)
        self._status = status

    def reply(self) -> Reply:
        return Reply.of_json(self._status, {"success": False, "message": str(self)})


class UnreadableBody(Exception):
    """A body that is no JSON object; the engine answers it with a bare 500."""


def body(call: Call, *required: str, needed: bool = False) -> dict[str, Any]:
    """A JSON object, however it is declared; unless it is needed or must hold something, it may be left out."""
    if not (call.body or required or needed):
        return {}
    try:
        value = json.loads(call.body)
    except (ValueError, RecursionError):
        raise UnreadableBody from None
    if not isinstance(value, dict):
        raise UnreadableBody
    for name in required:
        if value.get(name) is None:
            raise Rejected(f"Invalid request: {name!r}")
    return value


def text(sent: dict[str, Any], name: str) -> str:
    """A field as text, which it is in any case once it is in the engine."""
    return str(sent[name])


def version(sent: dict[str, Any]) -> str | None:
    """The weight version that comes with new weights."""
    return None if sent.get("weight_version") is None else text(sent, "weight_version")


def tags(call: Call, default: frozenset[str]) -> frozenset[str]:
    """The kinds of memory that are meant. An empty list means none."""
    wanted = body(call).get("tags")
    if wanted is None:
        return default
    if not isinstance(wanted, list) or not all(isinstance(tag, str) for tag in wanted):
        raise Rejected("Invalid request: tags must be a list of strings")
    if set(wanted) - MEMORY:
        raise Rejected(f"Invalid request: invalid tag {listed(set(wanted) - MEMORY)}")
    return frozenset(wanted)


def listed(names: Collection[str]) -> str:
    """Names in a sentence."""
    return ", ".join(sorted(names))
