"""The recorded contract as typed data.

A file `tests/vectors/GROUP.json` holds *setups* (a gateway and its engines) and *vectors*
(steps to take there, and what SMG 1.11 answered). `vectors.schema.json` describes it.

`deviations.json` has one line for each vector that our gateway answers differently on purpose:
the vector, the row of the list of differences, what we answer, and why. What we answer is a patch
on the recorded expectation: a JSON merge patch (RFC 7396: objects merge key by key, null removes
a key, any other value replaces), except that lists merge item by item and end where the patch
ends. So `{}` in a list keeps that item, and `{"e0": [{}]}` says that e0 got the first of
the recorded calls and no other.
"""

import json
import os
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import zip_longest
from pathlib import Path
from typing import TypeAlias, TypedDict, cast

JSON: TypeAlias = "None | bool | int | float | str | list[JSON] | dict[str, JSON]"

FOLDER = Path(__file__).parent.parent / "vectors"
NOT_VECTORS = {"deviations.json", "vectors.schema.json"}

LAUNCH = os.environ.get("SMG_CONFORMANCE_LAUNCH", "")
"""The command that starts another gateway than ours: then the recording holds without our deviations."""


class Reply(TypedDict, total=False):
    """What a scripted engine answers."""

    kind: str
    status: int
    reason: str
    headers: list[tuple[str, str]]
    content_type: str | None
    body: str
    body_b64: str
    json: JSON
    fill: tuple[str, int]
    prefix: str
    suffix: str
    gzip: bool
    framing: str
    lie: int
    delay: float
    drip: float
    send_bytes: int


class _RuleKeys(TypedDict):
    path: str
    reply: Reply


class Rule(_RuleKeys, total=False):
    """A reply for a path (`*` for all), at most `times` times."""

    method: str
    times: int


class _EngineKeys(TypedDict):
    name: str


class EngineSpec(_EngineKeys, total=False):
    profile: str
    options: dict[str, JSON]
    rules: list[Rule]


class Setup(TypedDict, total=False):
    """One gateway, its flags, its engines, and how they are registered."""

    engines: list[EngineSpec]
    flags: list[str]
    workers: list[str]
    register: list[JSON]
    setup_auth: str
    ordered_ids: bool
    rows: int
    ready: str
    settle: float
    stop: list[str]
    settle_after_stop: float
    env: dict[str, str]
    no_gateway: bool


class Step(TypedDict, total=False):
    """One thing to do; `op` says which, and which of the other keys count."""

    op: str
    method: str
    target: str
    target_fill: tuple[str, int]
    headers: list[tuple[str, str]]
    body: str
    body_b64: str
    fill: tuple[str, int]
    framing: str
    raw: str
    raw_b64: str
    expect_continue: bool
    half_close: bool
    abort_after: float
    timeout: float
    port: str
    show: list[str]
    between: tuple[float, float]
    background: bool
    s: float
    match: str | list[str]
    flags: list[str]
    workers: list[str]
    engine: str
    what: str


class _VectorKeys(TypedDict):
    id: str
    setup: str
    steps: list[Step]
    expect: JSON


class Vector(_VectorKeys, total=False):
    note: str
    rules: dict[str, list[Rule]]
    expect_hint: JSON


class VectorFile(TypedDict):
    format: int
    group: str
    about: str
    recorded_from: str
    setups: dict[str, Setup]
    cases: list[Vector]


class Deviation(TypedDict):
    vector: str
    row: int
    ours: JSON
    why: str


@dataclass(frozen=True, eq=False)
class Group:
    """The vectors that share one setup, hence one running gateway."""

    setup: Setup
    vectors: tuple[Vector, ...]


def vector_files() -> Iterator[VectorFile]:
    for path in sorted(FOLDER.glob("*.json")):
        if path.name not in NOT_VECTORS:
            yield cast(VectorFile, json.loads(path.read_text("utf-8")))


def groups() -> Iterator[Group]:
    for file in vector_files():
        for name, setup in file["setups"].items():
            vectors = tuple(vector for vector in file["cases"] if vector["setup"] == name)
            yield Group(setup, vectors)


def deviations() -> list[Deviation]:
    return cast("list[Deviation]", json.loads((FOLDER / "deviations.json").read_text("utf-8")))


def merged(recorded: JSON, ours: JSON) -> JSON:
    """The recorded expectation with our patch applied; the rule is in the module's docstring."""
    if isinstance(ours, dict):
        base = recorded if isinstance(recorded, dict) else {}
        kept = {key: value for key, value in base.items() if key not in ours}
        return kept | {key: merged(base.get(key), value) for key, value in ours.items() if value is not None}
    if isinstance(ours, list):
        items = recorded[: len(ours)] if isinstance(recorded, list) else []
        return [merged(old, new) for old, new in zip_longest(items, ours)]
    return ours
