"""What became of a call, as it is told: entry, envelope, report, verdict."""

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from reference_server.outcome import (
    BODY_LIMIT,
    Answered,
    Cancelled,
    Outcome,
    TimedOut,
    Unreachable,
    Unsupported,
    envelope,
    failed_entry,
    report,
    verdict,
)

from ...support.outcomes import answered, worker

FAILURES: list[tuple[Outcome, dict[str, object]]] = [
    (answered(status=500), {"error": "upstream_error", "message": "HTTP 500", "status": 500}),
    (
        Unreachable("gone"),
        {"error": "upstream_unreachable", "message": "upstream `http://engine:3001` unreachable: gone"},
    ),
    (TimedOut(600), {"error": "upstream_timeout", "message": "upstream `http://engine:3001` timed out after 600s"}),
]


@pytest.mark.parametrize(("outcome", "said"), FAILURES)
def test_each_failure_has_its_entry(outcome: Outcome, said: dict[str, object]) -> None:
    assert failed_entry(worker(1), outcome) == {"worker_id": "id-1", "url": "http://engine:3001", **said}


def test_a_worker_that_speaks_no_http_is_named_with_its_mode() -> None:
    entry = failed_entry(worker(1, connection_mode="grpc"), Unsupported())
    assert (entry["error"], entry["connection_mode"]) == ("unsupported_connection_mode", "grpc")


OUTCOMES = st.sampled_from(
    [answered(), answered(status=201), answered(status=304), answered(status=500), Unreachable("x"), TimedOut(1.0)]
)


@given(st.lists(OUTCOMES, min_size=1, max_size=8))
def test_the_verdict_and_the_report_agree(outcomes: list[Outcome]) -> None:
    held = {worker(n): outcome for n, outcome in enumerate(outcomes)}
    said = report(held)
    assert verdict(outcomes) == (200 if said["succeeded"] == said["total"] == len(outcomes) else 207)
    failed, results = said["failed"], said["results"]
    assert isinstance(failed, list) and isinstance(results, dict)
    assert len(failed) + int(str(said["succeeded"])) == len(outcomes)
    assert len(results) == sum(isinstance(o, Answered) for o in outcomes)
    ids = [entry["worker_id"] for entry in failed]
    assert ids == sorted(ids)


BODIES = [
    (b'{"a": 1}', "application/json", {"a": 1}),
    (b'{"a": 1}', "Application/JSON; charset=utf-8", {"a": 1}),
    (b'{"a": 1}', "text/plain", '{"a": 1}'),
    (b"", "application/json", ""),
    (b"null", "application/json", None),
    (b"[NaN]", "application/json", "[NaN]"),
    (b"[1e999]", "application/json", "[1e999]"),
    (rb'"\ud800"', "application/json", r'"\ud800"'),
    (b"[123456789012345678901234567890]", "application/json", [123456789012345678901234567890]),
    (b"\xff", "text/plain", "\ufffd"),
]


@pytest.mark.parametrize(("body", "content_type", "shown"), BODIES)
def test_the_envelope_shows_json_where_it_is_json_and_text_elsewhere(
    body: bytes, content_type: str, shown: object
) -> None:
    assert envelope(worker(1), answered(body, content_type=content_type))["body"] == shown


@pytest.mark.parametrize("depth", [128, 400, 900, 5_000, 500_000])
def test_deeply_nested_json_is_shown_or_left_as_text_but_never_a_crash(depth: int) -> None:
    body = b"[" * depth + b"]" * depth
    shown = envelope(worker(1), answered(body))
    assert json.loads(json.dumps({"results": {"x": shown}})) is not None
    assert isinstance(shown["body"], (list, str))
    assert depth > 128 or isinstance(shown["body"], list)


def test_a_truncated_answer_is_text_and_says_so() -> None:
    cut = Answered(200, "application/json", b"1" * BODY_LIMIT, True, 1)
    said = envelope(worker(1), cut)
    assert said["body_truncated"] is True
    assert said["body"] == "1" * BODY_LIMIT


def test_a_cancelled_call_is_never_a_success() -> None:
    assert verdict([answered(), Cancelled()]) == 207
