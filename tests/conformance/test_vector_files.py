"""The vectors as data: every file has the shape that the schema and the types describe."""

import json
from collections import Counter
from typing import cast

import pytest
from jsonschema import Draft202012Validator
from jsonschema.exceptions import best_match
from jsonschema.protocols import Validator

from . import vectors
from .compare import contract, differences
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
STEPS = ("http", "sleep", "metrics", "log", "launch", "calls", "order")

Schema = dict[str, JSON]

SCHEMA = cast(Schema, json.loads((vectors.FOLDER / "vectors.schema.json").read_text("utf-8")))
DEFINITIONS = cast("dict[str, Schema]", SCHEMA["$defs"])
VALIDATOR = Draft202012Validator(SCHEMA)

# A validator passes over a keyword that it does not know; this schema for schemas refuses it.
STRICT = Draft202012Validator(
    {
        "$id": "urn:strict",
        "$ref": SCHEMA["$schema"],
        "$dynamicAnchor": "meta",
        "unevaluatedProperties": False,
    }
)


def misfits(value: JSON, validator: Validator = VALIDATOR) -> list[str]:
    """Place and reason of each rule that the value breaks."""
    errors = validator.iter_errors(value)
    return [f"{found.json_path}: {found.message}" for error in errors if (found := best_match([error]))]


def defined(name: str) -> Validator:
    """Checks a value against one definition of the schema."""
    return VALIDATOR.evolve(schema={"$ref": f"#/$defs/{name}"})


@pytest.mark.parametrize("file", FILES, ids=[file["group"] for file in FILES])
def test_file_has_the_described_shape(file: VectorFile) -> None:
    assert misfits(cast(JSON, file)) == []


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
    assert misfits(cast(JSON, deviation), defined("deviation")) == []
    recorded = VECTORS[deviation["vector"]]["expect"]
    ours = merged(recorded, deviation["ours"])
    assert misfits(ours, defined("expectation")) == []
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


SMALL = """{
  "format": 1, "group": "g", "about": "", "recorded_from": "",
  "setups": {"s": {
    "engines": [{"name": "e0", "rules": [{"path": "*", "reply": {"kind": "normal", "content_type": null}}]}],
    "flags": ["--x"],
    "env": {"A": "1"}
  }},
  "cases": [{
    "id": "g/1", "setup": "s",
    "steps": [{"op": "sleep", "s": 0.5}],
    "rules": {"e0": [{"path": "*", "reply": {"fill": ["a", 2], "headers": [["A", "b"]]}}]},
    "expect": {"responses": [{"status": 200, "closed": true}], "engines": {}}
  }]
}"""
REPLY = "$.setups.s.engines[0].rules[0].reply"
SCRIPTED = "$.cases[0].rules.e0[0].reply"
SEEN = "$.cases[0].expect.responses[0]"


def test_a_small_file_fits() -> None:
    assert misfits(json.loads(SMALL)) == []


@pytest.mark.parametrize(
    ("right", "wrong", "place"),
    [
        ('"format": 1', '"format": 2', "$.format"),
        ('"group": "g", ', "", "$"),
        ('"about": ""', '"about": null', "$.about"),
        ('"flags": ["--x"]', '"flags": [1]', "$.setups.s.flags[0]"),
        ('"flags": ["--x"]', '"flagz": []', "$.setups.s"),
        ('{"A": "1"}', '{"A": 1}', "$.setups.s.env.A"),
        ('"kind": "normal"', '"kind": "odd"', f"{REPLY}.kind"),
        ('"content_type": null', '"content_type": 1', f"{REPLY}.content_type"),
        ('"content_type": null', '"colour": null', REPLY),
        ('["a", 2]', '["a", "b"]', f"{SCRIPTED}.fill[1]"),
        ('["a", 2]', '["a", 2, 3]', f"{SCRIPTED}.fill"),
        ('["A", "b"]', '["A"]', f"{SCRIPTED}.headers[0]"),
        ('"op": "sleep", "s": 0.5', '"op": "sleep"', "$.cases[0].steps[0]"),
        ('"status": 200', '"status": true', f"{SEEN}.status"),
        ('"closed": true', '"closed": false', f"{SEEN}.closed"),
    ],
)
def test_a_broken_file_does_not_fit_and_the_place_is_named(right: str, wrong: str, place: str) -> None:
    assert SMALL.count(right) == 1
    (found,) = misfits(json.loads(SMALL.replace(right, wrong)))
    assert found.startswith(f"{place}: ")


@pytest.mark.parametrize("row", [0, 18])
def test_a_deviation_is_in_a_row_of_the_list(row: int) -> None:
    (found,) = misfits({"vector": "g/1", "row": row, "ours": {}, "why": ""}, defined("deviation"))
    assert found.startswith("$.row: ")


def test_the_schema_has_no_keyword_that_nobody_checks() -> None:
    assert misfits(SCHEMA, STRICT) == []


@pytest.mark.parametrize("schema", [{"patern": "a"}, {"anyOf": [{"requird": []}]}, {"$defs": {"a": {"tipe": "null"}}}])
def test_a_keyword_that_nobody_checks_is_found(schema: Schema) -> None:
    assert misfits(schema, STRICT)
