"""The vectors as data: every file has the shape that the schema and the types describe."""

import json
from collections import Counter
from typing import cast

import pytest

from . import vectors
from .compare import contract, differences
from .schema import Schema, violations
from .vectors import (
    JSON,
    Deviation,
    VectorFile,
    deviations,
    groups,
    merged,
    vector_files,
)

FILES = list(vector_files())
VECTORS = {vector["id"]: vector for file in FILES for vector in file["cases"]}
SCHEMA = cast(Schema, json.loads((vectors.FOLDER / "vectors.schema.json").read_text("utf-8")))
DEFINITIONS = cast("dict[str, Schema]", SCHEMA["$defs"])
STEPS = ("http", "sleep", "metrics", "log", "launch", "calls", "order")


@pytest.mark.parametrize("file", FILES, ids=[file["group"] for file in FILES])
def test_file_has_the_described_shape(file: VectorFile) -> None:
    assert list(violations(cast(JSON, file), SCHEMA, SCHEMA)) == []


@pytest.mark.parametrize("file", FILES, ids=[file["group"] for file in FILES])
def test_vectors_belong_to_their_file_and_setup(file: VectorFile) -> None:
    for vector in file["cases"]:
        assert vector["id"].startswith(f"{file['group']}/")
        engines = {engine["name"] for engine in file["setups"][vector["setup"]].get("engines", [])}
        assert vector.get("rules", {}).keys() <= engines


def test_ids_are_unique() -> None:
    ids = Counter(vector["id"] for file in FILES for vector in file["cases"])
    assert [name for name, times in ids.items() if times > 1] == []


def test_groups_hold_every_vector_once() -> None:
    assert sorted(vector["id"] for group in groups() for vector in group.vectors) == sorted(VECTORS)


@pytest.mark.parametrize("deviation", deviations(), ids=lambda deviation: deviation["vector"])
def test_deviation_changes_what_a_vector_expects(deviation: Deviation) -> None:
    assert list(violations(cast(JSON, deviation), DEFINITIONS["deviation"], SCHEMA)) == []
    recorded = VECTORS[deviation["vector"]]["expect"]
    ours = merged(recorded, deviation["ours"])
    assert list(violations(ours, DEFINITIONS["expectation"], SCHEMA)) == []
    assert list(differences(contract(ours), contract(recorded)))


def test_a_vector_deviates_once_and_on_one_line() -> None:
    lines = (vectors.FOLDER / "deviations.json").read_text("utf-8").splitlines()
    named = [json.loads(line.rstrip(","))["vector"] for line in lines[1:-1]]
    assert named == [deviation["vector"] for deviation in deviations()]
    assert len(named) == len(set(named))


@pytest.mark.parametrize(
    ("kind", "definitions"),
    [
        (vectors.Setup, ["setup"]),
        (vectors.EngineSpec, ["engine"]),
        (vectors.Rule, ["rule"]),
        (vectors.Reply, ["reply"]),
        (vectors.Vector, ["vector"]),
        (vectors.Deviation, ["deviation"]),
        (vectors.Step, STEPS),
    ],
)
def test_types_and_schema_name_the_same_keys(kind: type, definitions: list[str]) -> None:
    described = {key for name in definitions for key in cast(Schema, DEFINITIONS[name]["properties"])}
    assert vars(kind)["__required_keys__"] | vars(kind)["__optional_keys__"] == described


@pytest.mark.parametrize(
    ("value", "schema"),
    [
        ({}, {"required": ["a"]}),
        ({"b": 1}, {"properties": {"a": {}}, "additionalProperties": False}),
        ({"b": 1}, {"additionalProperties": {"type": "string"}}),
        ({"a": 1}, {"properties": {"a": {"type": "string"}}}),
        (True, {"type": "integer"}),
        (1, {"type": ["string", "null"]}),
        (18, {"type": "integer", "minimum": 1, "maximum": 17}),
        ([1], {"items": {"type": "string"}}),
        (["a", 1], {"prefixItems": [{"type": "string"}, {"type": "string"}]}),
        ([1, 2, 3], {"maxItems": 2}),
        ("c", {"enum": ["a", "b"]}),
        ("c", {"const": "a"}),
        (1, {"anyOf": [{"type": "string"}, {"const": 2}]}),
    ],
)
def test_the_schema_check_can_fail(value: JSON, schema: Schema) -> None:
    assert len(list(violations(value, schema, {}))) == 1


def test_the_schema_check_refuses_rules_it_does_not_know() -> None:
    with pytest.raises(ValueError, match="pattern"):
        list(violations("a", {"pattern": "b"}, {}))
