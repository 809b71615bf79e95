"""Rules: what they refuse to be, which requests they concern, and in which order."""

import math
from typing import Any

import pytest

from reference_server.engines.faults.schedule import Rule, Schedule


@pytest.mark.parametrize(
    ("fields", "sentence"),
    [
        ({"path": ""}, "path must be a text"),
        ({"path": 3}, "path must be a text"),
        ({"times": 0}, "times must be 1 or more, not 0"),
        ({"times": 1.0}, "times must be 1 or more, not 1.0"),
        ({"method": ""}, "method must be a text"),
        ({"probability": 0}, "probability must be more than 0 and at most 1, not 0"),
        ({"probability": 1.1}, "probability must be"),
        ({"probability": math.nan}, "probability must be"),
        ({"probability": True}, "probability must be"),
        ({"seed": -1}, "seed must be 0 or more, not -1"),
    ],
)
def test_a_rule_that_no_request_can_meet(fields: dict[str, Any], sentence: str) -> None:
    with pytest.raises(ValueError, match=sentence):
        Rule("plan", **{"path": "x", **fields})


def test_a_rule_knows_its_requests() -> None:
    assert Rule(0, "flush_cache").concerns("POST", "/flush_cache")
    assert Rule(0, "/flush_cache", method="post").concerns("POST", "/flush_cache")
    assert Rule(0, "*").concerns("GET", "/anything/at/all")
    assert not Rule(0, "flush_cache", method="GET").concerns("POST", "/flush_cache")
    assert not Rule(0, "flush_cache").concerns("POST", "/flush_cache/")


def test_rules_go_by_turns_and_are_used_up() -> None:
    schedule = Schedule[str]()
    schedule.add(Rule("first", "x", times=2))
    schedule.add(Rule("second", "*", times=1))
    assert [rule.times for rule in schedule.rules] == [2, 1]
    assert [schedule.take("GET", "/x") for _ in range(4)] == ["first", "first", "second", None]
    assert schedule.rules == ()


def test_a_plan_taken_out_is_met_no_more() -> None:
    schedule = Schedule[list[int]]()
    one: list[int] = []
    same: list[int] = []
    schedule.add(Rule(one, "x"))
    schedule.add(Rule(same, "x"))
    schedule.remove(one)
    assert schedule.take("GET", "/x") is same
    schedule.clear()
    assert schedule.take("GET", "/x") is None
