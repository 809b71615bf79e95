"""The gateway's values: capabilities, registry, queries, outcomes, breakers, health, keys."""

import json
import random
import uuid

import pytest
from hypothesis import given
from hypothesis import strategies as st

from reference_server import capability
from reference_server.auth import ControlKey
from reference_server.breaker import BreakerPolicy, Breakers
from reference_server.errors import STATUS, Code
from reference_server.health import HealthPolicy, Streak
from reference_server.httpd.messages import Refusal
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
from reference_server.paths import OPERATIONS, engine_path, operation, selectors_in, without_selector
from reference_server.probe import Ask, Findings, probe
from reference_server.registry import Ids, Registry, Worker, collapse, targets
from smg.rl import Selector


def worker(number: int, **fields: object) -> Worker:
    return Worker(f"id-{number}", f"http://engine:{3000 + number}", "sglang", **fields)  # type: ignore[arg-type]  # as given


def answered(body: bytes = b"{}", status: int = 200, content_type: str = "application/json") -> Answered:
    return Answered(status, content_type, body, False, 3)


# -- errors, paths, queries


def test_every_error_code_has_a_status() -> None:
    assert set(STATUS) == set(Code)


@given(st.text(max_size=40))
def test_a_path_is_refused_or_has_one_to_four_clean_segments(text: str) -> None:
    try:
        path = engine_path(text)
    except Refusal as refused:
        assert refused.reply.status == 400
        return
    segments = path.split("/")
    assert 1 <= len(segments) <= 4
    assert all(segment.isascii() and segment not in ("", ".", "..") for segment in segments)
    assert path in (text, text[1:])


def test_only_known_operations_become_metric_labels() -> None:
    assert len(OPERATIONS) == 20
    assert [operation(p) for p in ("flush_cache", "Flush_cache", "a/flush_cache")] == ["flush_cache", "other", "other"]


@given(st.lists(st.sampled_from(["a=1", "selector=x", "%73elector=x", "", "b", "c=%zz&d", "Selector=y"])))
def test_what_goes_to_the_engine_never_holds_a_selector(pieces: list[str]) -> None:
    kept = without_selector("&".join(pieces))
    assert selectors_in(kept) == []
    wanted = [p for piece in pieces for p in piece.split("&") if p and "elector=x" not in p]
    assert kept == "&".join(wanted)


# -- capabilities and rows


def test_a_label_overrides_one_field_of_the_capability_table() -> None:
    row = capability.capabilities("sglang", {"rl.pause_modes": " abort,, in_place ", "rl.abort": "yes"})
    assert row["source"] == "label"
    assert row["pause_modes"] == ["abort", "in_place"]
    assert row["abort"] is False
    assert row["update_from"] == ["disk", "tensor", "distributed"]


@pytest.mark.parametrize("engine", ["trtllm", "tokenspeed", "mlx", "generic", "external", "unknown"])
def test_other_engines_promise_nothing(engine: str) -> None:
    row = capability.capabilities(engine, {})
    assert row.pop("source") == "static"
    assert not any(row.values())


def test_ranks_of_one_address_collapse_into_the_lowest() -> None:
    ranks = [worker(1, rank=rank) for rank in (2, 0, 1)]
    assert [w.rank for w in collapse([*ranks, worker(0)])] == [-1, 0]
    assert [w.url for w in collapse(ranks)] == ["http://engine:3001@0"]


def test_derived_keys_shadow_labels_of_the_same_name() -> None:
    liar = worker(1, labels={"engine": "vllm", "role": "policy"})
    assert targets([liar], Selector.parse("engine=sglang,role=policy")) == [liar]
    assert targets([liar], Selector.parse("engine=vllm")) == []


def test_targets_ignore_health_unless_the_selector_asks() -> None:
    sick = worker(1, health="not_ready")
    assert targets([sick], Selector.parse("engine=sglang")) == [sick]
    assert targets([sick], Selector.parse("engine=sglang,health=ready")) == []


@given(st.lists(st.integers(0, 3), min_size=2, max_size=200))
def test_worker_ids_count_upwards_even_when_the_clock_does_not(steps: list[int]) -> None:
    clock = iter(1_700_000_000_000 + step for step in steps)
    ids = Ids(lambda: next(clock), random.Random(0))
    made = [ids() for _ in steps]
    assert made == sorted(set(made))
    assert {uuid.UUID(i).version for i in made} == {7}


def test_a_rank_is_shown_its_engines_row_under_its_own_id() -> None:
    registry = Registry()
    registry.add(Worker(f"rank-{r}", "http://engine:1", "sglang", rank=r) for r in range(3))
    third = registry.get("rank-2")
    assert third is not None
    row = registry.row(third)
    assert (row["id"], row["url"], row["dp_ranks"]) == ("rank-2", "http://engine:1@2", 3)
    assert [r["id"] for r in registry.rows()] == ["rank-0"]


# -- outcomes

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


# -- health and breakers


def test_health_changes_after_as_many_equal_answers_as_the_policy_wants() -> None:
    policy = HealthPolicy(failure_threshold=3, success_threshold=2)
    streak, health, seen = Streak(), "ready", []
    for good in [False, False, True, False, False, False, True, False, True, True]:
        streak = streak.then(good)
        health = streak.health(health, policy)
        seen.append(health)
    assert seen == ["ready"] * 5 + ["not_ready"] * 4 + ["ready"]


def test_a_breaker_opens_after_failures_in_a_row_and_lets_one_try_later() -> None:
    now = [0.0]
    breakers = Breakers(BreakerPolicy(failures=2, seconds=10), lambda: now[0])
    for good in (False, True, False, False):
        assert breakers.allows("w")
        breakers.note("w", good)
    assert not breakers.allows("w")
    assert breakers.allows("another")
    now[0] = 10.0
    assert breakers.allows("w")
    breakers.note("w", False)
    assert not breakers.allows("w")
    now[0] = 20.0
    breakers.note("w", True)
    assert breakers.allows("w")


def test_a_disabled_breaker_never_opens() -> None:
    breakers = Breakers(BreakerPolicy(failures=1, enabled=False))
    breakers.note("w", False)
    assert breakers.allows("w")


# -- keys and probes


def test_a_control_key_may_hold_colons_and_is_in_no_repr() -> None:
    key = ControlKey.parse("k1:Ops:Admin:a:b:c")
    assert (key.id, key.name, key.role, key.key) == ("k1", "Ops", "admin", "a:b:c")
    assert "a:b:c" not in repr(key)


@pytest.mark.parametrize("text", ["a:b:secret", "a:b:root:secret", ""])
def test_a_malformed_control_key_is_refused_without_being_repeated(text: str) -> None:
    with pytest.raises(ValueError, match="expected") as refused:
        ControlKey.parse(text)
    assert "secret" not in str(refused.value)


def engine(**paths: object) -> Ask:
    replies = {f"/{name}": body for name, body in paths.items()} | {"/health": {}}
    return lambda path: answered(json.dumps(replies[path]).encode()) if path in replies else answered(status=404)


def test_one_odd_field_hides_itself_only() -> None:
    info = {
        "tp_size": "8",
        "dp_size": None,
        "pp_size": 1.5,
        "weight_version": 42,
        "version": "1",
        "is_embedding": False,
    }
    found = probe(engine(server_info=info), None)
    assert found is not None
    assert found.labels == {"version": "1", "is_embedding": "false"}


def test_an_engine_without_health_is_not_there_yet() -> None:
    assert probe(lambda path: answered(status=503), "sglang") is None
    assert probe(lambda path: None, "sglang") is None


def test_an_engine_of_no_known_kind_is_taken_when_the_registration_names_one() -> None:
    assert probe(engine(), None) is None
    assert probe(engine(), "trtllm") == Findings("trtllm")


@pytest.mark.parametrize("size", ["", "abc", "-1"])
def test_a_dp_size_that_is_no_number_means_one_rank(size: str) -> None:
    assert Findings("sglang", labels={"dp_size": size}).ranks() == 1
