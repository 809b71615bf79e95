"""The checker itself: what it lets pass, and that it fails on everything else."""

import copy
from collections.abc import Callable
from typing import Any

import pytest

from .compare import contract, differences
from .names import Names
from .vectors import JSON, merged

# A mutable tree of JSON, taken apart by the changes below: any narrower type would only be cast away.
Seen = Any


def seen() -> Seen:
    return {
        "responses": [
            {
                "status": 200,
                "headers": {"content-type": "application/json"},
                "json": {"status": 200, "latency_ms": "<<ms>>", "body": {"n": 1, "none": None, "items": ["a", "b"]}},
            }
        ],
        "engines": {"e0": [{"method": "POST", "target": "/x", "headers": {"host": "<<addr:e0>>"}, "framing": "none"}]},
    }


def body(tree: Seen) -> Seen:
    return tree["responses"][0]["json"]["body"]


CHANGES: dict[str, Callable[[Seen], object]] = {
    "wrong status": lambda tree: tree["responses"][0].update(status=201),
    "missing key": lambda tree: body(tree).pop("n"),
    "missing null": lambda tree: body(tree).pop("none"),
    "extra key": lambda tree: body(tree).update(more=1),
    "extra null": lambda tree: body(tree).update(more=None),
    "wrong value": lambda tree: body(tree).update(n=2),
    "bool for int": lambda tree: body(tree).update(n=True),
    "float for int": lambda tree: body(tree).update(n=1.0),
    "text for int": lambda tree: body(tree).update(n="1"),
    "false for null": lambda tree: body(tree).update(none=False),
    "text for null": lambda tree: body(tree).update(none=""),
    "object for list": lambda tree: body(tree).update(items={"0": "a", "1": "b"}),
    "other order": lambda tree: body(tree)["items"].reverse(),
    "item too many": lambda tree: body(tree)["items"].append("c"),
    "item too few": lambda tree: body(tree)["items"].pop(),
    "text for a duration": lambda tree: tree["responses"][0]["json"].update(latency_ms="12"),
    "bool for a duration": lambda tree: tree["responses"][0]["json"].update(latency_ms=True),
    "extra header": lambda tree: tree["responses"][0]["headers"].update(allow="GET"),
    "missing header": lambda tree: tree["responses"][0]["headers"].clear(),
    "no json": lambda tree: tree["responses"][0].pop("json"),
    "text instead of json": lambda tree: tree["responses"][0].update(text="no"),
    "answer too many": lambda tree: tree["responses"].append({"status": 200}),
    "no answer": lambda tree: tree["responses"].clear(),
    "extra engine call": lambda tree: tree["engines"]["e0"].append(tree["engines"]["e0"][0]),
    "call of another engine": lambda tree: tree["engines"].update(e1=tree["engines"]["e0"]),
    "no engine call": lambda tree: tree["engines"].clear(),
    "other target": lambda tree: tree["engines"]["e0"][0].update(target="/x?"),
    "extra engine header": lambda tree: tree["engines"]["e0"][0]["headers"].update(cookie="c"),
    "unexpected body": lambda tree: tree["engines"]["e0"][0].update(body="{}"),
}


@pytest.mark.parametrize("change", CHANGES.values(), ids=CHANGES)
def test_a_difference_is_found(change: Callable[[Seen], object]) -> None:
    got = copy.deepcopy(seen())
    change(got)
    assert list(differences(contract(seen()), contract(got)))


def test_nothing_is_found_when_nothing_differs() -> None:
    assert list(differences(contract(seen()), contract(seen()))) == []


def test_a_difference_names_its_place_and_both_sides() -> None:
    got = seen()
    body(got)["items"][1] = 3
    assert list(differences(seen(), got)) == ['.responses[0].json.body.items[1]: expected "b", got 3']


@pytest.mark.parametrize(
    ("want", "got"),
    [
        ({"a": 1, "b": 2}, {"b": 2, "a": 1}),
        ("<<any>>", ["whatever", {"is": "here"}]),
        ({"a": "<<any>>"}, {}),
        ("<<ms>>", 12),
        ("error: <<any>> for <<any>>", "error: one\nline more for you"),
        (None, None),
    ],
)
def test_what_placeholders_let_pass(want: JSON, got: JSON) -> None:
    assert list(differences(want, got)) == []


@pytest.mark.parametrize(
    ("want", "got"), [("error: <<any>>", "warning: x"), ("a<<any>>", 1), ("<<ms>>", 1.5), ("<<ms>>", None), ([], None)]
)
def test_what_placeholders_do_not_let_pass(want: JSON, got: JSON) -> None:
    assert list(differences(want, got))


# -- what the contract leaves free -------------------------------------------------


def lines(*texts: JSON) -> JSON:
    return {"responses": [{"lines": list(texts)}], "engines": {}}


@pytest.mark.parametrize(
    ("one", "other"),
    [
        (lines("INFO span{uri=/x}: smg_rl: rl.proxy status=200"), lines("INFO smg_rl rl.proxy status=200")),
        (lines("a rl.fanout total=1", "a rl.proxy status=1"), lines("rl.proxy status=1", "rl.fanout total=1")),
        (lines({"message": "rl.proxy", "span": {"uri": "/x"}}), lines({"message": "rl.proxy", "timestamp": "now"})),
        (lines('control_plane_audit a=1 b=None c=Some("x") timestamp=t'), lines("control_plane_audit a=1 c=x")),
        (lines("# HELP m help", "m 1"), lines("m 1")),
        ({"responses": [{"exit": 1, "stderr_last_line": "Error"}]}, {"responses": [{"exit": 1}]}),
    ],
)
def test_the_contract_leaves_the_frame_free(one: JSON, other: JSON) -> None:
    assert contract(one) == contract(other)


@pytest.mark.parametrize(
    ("one", "other"),
    [
        (lines("rl.proxy status=200"), lines("rl.proxy status=201")),
        (lines("rl.proxy status=200"), lines("rl.proxy status=200", "rl.proxy status=200")),
        (lines("rl.proxy status=200"), lines()),
        (lines({"message": "rl.proxy", "level": "INFO"}), lines({"message": "rl.proxy", "level": "WARN"})),
        (lines("m 1"), lines("m 2")),
        ({"responses": [{"exit": 1}]}, {"responses": [{"exit": 2}]}),
    ],
)
def test_the_contract_fixes_the_event(one: JSON, other: JSON) -> None:
    assert list(differences(contract(one), contract(other)))


# -- our deviations as patches -------------------------------------------------------


@pytest.mark.parametrize(
    ("recorded", "ours", "result"),
    [
        ({"a": 1, "b": 2}, {"b": 3}, {"a": 1, "b": 3}),
        ({"a": 1, "b": 2}, {"b": None}, {"a": 1}),
        ({"a": {"x": 1, "y": None}}, {"a": {"x": 2}}, {"a": {"x": 2, "y": None}}),
        ({"a": "text"}, {"a": {"x": 1, "y": None}}, {"a": {"x": 1}}),
        ({"a": {"x": 1}}, {"a": "text"}, {"a": "text"}),
        ([1, 2, 3], [4], [4]),
        ([{"a": 1}, {"b": 2}], [{}, {"c": 3}], [{"a": 1}, {"b": 2, "c": 3}]),
        ([], ["new"], ["new"]),
        ({}, {"a": [[]]}, {"a": [[]]}),
    ],
)
def test_a_patch_replaces_what_it_names(recorded: JSON, ours: JSON, result: JSON) -> None:
    assert merged(recorded, ours) == result


# -- placeholders -----------------------------------------------------------------------


@pytest.fixture
def names() -> Names:
    known = Names(10101, {"e0": 20001, "e1": 20002})
    known.learn("uuid-0", "http://127.0.0.1:20001@0")
    known.learn("uuid-1", "http://127.0.0.1:20001@1")
    known.learn("uuid-2", "grpc://127.0.0.1:20002")
    return known


@pytest.mark.parametrize(
    ("placeholder", "value"),
    [
        ("/workers/<<id:e0@1>>/engine", "/workers/uuid-1/engine"),
        ("<<id:e1>>", "uuid-2"),
        ("http://<<addr:e1>>/", "http://127.0.0.1:20002/"),
        ("url%3D<<qaddr:e0>>", "url%3D127.0.0.1%3A20001"),
        ("localhost:<<port:e0>>", "localhost:20001"),
        ("<<gw>>", "127.0.0.1:10101"),
    ],
)
def test_placeholders_stand_for_values_both_ways(names: Names, placeholder: str, value: str) -> None:
    assert names.fill({placeholder: [placeholder]}) == {value: [value]}
    assert names.plain({value: [value]}) == {placeholder: [placeholder]}


def test_unknown_placeholders_stay(names: Names) -> None:
    assert names.fill("<<any>> <<id:e9>> <<addr:e9>>") == "<<any>> <<id:e9>> <<addr:e9>>"


def test_durations_and_request_ids_become_placeholders(names: Names) -> None:
    assert names.plain({"latency_ms": 3, "n": 3}) == {"latency_ms": "<<ms>>", "n": 3}
    assert names.plain("id req-abcdefghijklABCDEFGHIJKL") == "id <<reqid>>"
    assert names.plain({"latency_ms": "3"}) == {"latency_ms": "3"}
