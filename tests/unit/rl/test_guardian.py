"""What a guard makes of the lines that it hears: whom it resumes, and whom it leaves paused."""

import json
from typing import Any

import pytest

from smg.rl import Target
from smg.rl.guardian import Heard

ONE, TWO = Target("w1", "http://e1:1"), Target("w2", "http://e2:1")
TERMS: dict[str, Any] = {
    "client": {"base_url": "http://gateway:1", "api_key": None, "timeout": 5.0, "trust_env": False, "headers": {}},
    "selector": "engine=sglang",
    "routes": {"pause": "pause", "resume": "resume", "mode_in_query": True, "too_early": [500]},
    "timeout": None,
    "resume_retries": 0,
    "settle": 0,
    "verify": None,
    "quarantine": False,
    "resume_all": False,
}
PAUSED = ("paused", [ONE], [TWO])


def heard(*lines: tuple[object, ...], **terms: object) -> Heard:
    made = Heard()
    made.take(b"".join(json.dumps(line).encode() + b"\n" for line in [("terms", {**TERMS, **terms}), *lines]))
    return made


def left_alone(*lines: tuple[object, ...], **terms: object) -> set[str]:
    return heard(PAUSED, *lines, **terms).duty().pause.kept


def test_the_duty_is_the_trainer_s() -> None:
    duty = heard(PAUSED).duty()
    assert (duty.pause.paused, duty.pause.uncertain, duty.everybody) == ([ONE], [TWO], False)
    assert (duty.routes.too_early, duty.rl.base_url, duty.selector) == ((500,), "http://gateway:1", "engine=sglang")


def test_a_pause_without_an_answer_may_have_reached_everybody() -> None:
    duty = heard().duty()
    assert (duty.pause.concerned, duty.everybody) == ([], True)


def test_lines_come_in_whatever_pieces() -> None:
    made = Heard()
    for byte in json.dumps(["terms", TERMS]).encode() + b"\n" + json.dumps(PAUSED).encode() + b'\n["rel':
        made.take(bytes([byte]))
    assert made.duty().pause.concerned == [ONE, TWO] and not made.released
    made.take(b'eased"]\n')
    assert made.released


@pytest.mark.parametrize(
    ("lines", "expected"),
    [
        ([], set()),
        ([("began", 1, "w1")], {"w1"}),
        ([("began", 1, None)], {"w1", "w2"}),
        ([("began", 1, "w1"), ("ended", 1, [ONE], [])], set()),
        ([("began", 1, "w1"), ("ended", 1, [], [ONE])], {"w1"}),
        ([("began", 1, "w1"), ("ended", 1, [["new-id", ONE.url]], [])], set()),
        ([("began", 1, None), ("ended", 1, [], [["new-id", ONE.url]])], {"w1"}),
        ([("began", 1, None), ("lost", 1, None)], {"w1", "w2"}),
        ([("began", 1, "w1"), ("lost", 1, "w1")], {"w1"}),
        ([("began", 1, "w1"), ("began", 2, "w2"), ("ended", 1, [ONE], [])], {"w2"}),
        ([("ended", 1, [], [ONE]), ("ended", 1, [ONE], [])], set()),
        ([("ended", 1, [ONE], []), ("ended", 1, [], [ONE])], {"w1"}),
        ([("kept", ["w2", "stranger"])], {"w2"}),
    ],
)
def test_who_may_hold_half_of_new_weights_is_left_paused(lines: list[tuple[object, ...]], expected: set[str]) -> None:
    assert left_alone(*lines) == expected
    assert left_alone(*lines, resume_all=True) == set()


def test_who_had_no_refit_while_others_had_is_left_paused_in_a_quarantine() -> None:
    assert left_alone(("ended", 1, [ONE], []), quarantine=True) == {"w2"}
    assert left_alone(("ended", 1, [ONE], [])) == set()
    assert left_alone(quarantine=True) == set()
