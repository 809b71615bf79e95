"""The kinds of engines there are. A dialect is a package beside this file, and a line in each table here."""

from typing import TypedDict

from .kind import Kind
from .sglang.kind import SGLANG
from .tokenspeed.kind import TOKENSPEED
from .vllm.kind import VLLM

KINDS: dict[str, Kind] = {
    kind.name: kind
    for kind in (
        SGLANG,
        VLLM,
        TOKENSPEED,
    )
}


class Counts(TypedDict, total=False):
    """How many engines of each kind, as keywords."""

    sglang: int
    vllm: int
    tokenspeed: int


def kind_of(kind: str | Kind) -> Kind:
    """The kind of a name, or the kind itself; raises `ValueError` for an unknown name."""
    if isinstance(kind, Kind):
        return kind
    if kind not in KINDS:
        raise ValueError(f"unknown kind of engine {kind!r}; known: {', '.join(KINDS)}")
    return KINDS[kind]
