"""An answer of the gateway -> the value that a method returns."""

from collections.abc import Callable
from dataclasses import fields
from typing import Any

import pytest

from smg.rl import RL, CallResult, FanoutError, FanoutFailure, FanoutResult, RlError, Worker

from ...support.scripted_sender import ENVELOPE, REPORT, ROW, calling, fanning_out, reply, scripted

BODIES: list[Any] = [{"success": True}, {"error": "engine's own"}, {}, [], [1], "Cache flushed.\n", "", None, 0, False]

FAILED: dict[str, dict[str, Any]] = {
    "upstream_error": {"worker_id": "w1", "url": "http://e1:1", "message": "HTTP 500", "status": 500},
    "upstream_timeout": {"worker_id": "w2", "url": "http://e2:1", "message": "no answer"},
    "upstream_unreachable": {"worker_id": "w3", "url": "http://e3:1", "message": "refused"},
    "unsupported_connection_mode": {"worker_id": "w4", "url": "grpc://e4:1", "message": "x", "connection_mode": "grpc"},
}
for code, entry in FAILED.items():
    entry["error"] = code


def partial(*failed: dict[str, Any]) -> dict[str, Any]:
    """The report of a fan-out in which w0 succeeded and these failed."""
    return {**REPORT, "failed": list(failed), "total": 1 + len(failed)}


def fan_out(rl: RL, **options: Any) -> FanoutResult:
    return rl.fanout("flush_cache", {}, selector="a=b", **options)


def test_a_worker_is_its_row_field_by_field() -> None:
    assert {*ROW, "control_url"} == {field.name for field in fields(Worker)}
    rl, _ = scripted(reply(200, ROW))
    assert rl.worker("w0") == Worker(**ROW)


def test_fields_of_a_later_gateway_are_ignored_and_missing_ones_are_none() -> None:
    rl, _ = scripted(reply(200, {"id": "w0", "brand_new": {"x": 1}, "labels": None, "capabilities": None}))
    missing: dict[str, Any] = dict.fromkeys(ROW)
    assert rl.worker("w0") == Worker(**{**missing, "id": "w0", "labels": {}, "capabilities": {}})


def test_workers_are_the_rows_in_their_order() -> None:
    rows = [{**ROW, "id": worker_id} for worker_id in ("w1", "w0")]
    rl, _ = scripted(reply(200, {"protocol_version": 1, "workers": rows, "total": 2}))
    assert rl.workers() == [Worker(**row) for row in rows]


def test_a_gateway_without_workers_gives_an_empty_list() -> None:
    rl, _ = scripted(reply(200, {"protocol_version": 1, "workers": [], "total": 0}))
    assert rl.workers() == []


@pytest.mark.parametrize("status", [200, 201, 204, 299, 302, 400, 401, 403, 404, 405, 413, 422, 500, 502, 504, 599])
def test_an_engines_answer_is_a_result_whatever_its_status(status: int) -> None:
    rl, _ = calling(reply(status, {**ENVELOPE, "status": status}))
    assert rl.call("w0", "x") == CallResult("w0", "http://e0:1", status, 3, {"ok": True})


@pytest.mark.parametrize("body", BODIES, ids=repr)
def test_a_body_is_what_the_engine_said(body: object) -> None:
    rl, _ = calling(reply(200, {**ENVELOPE, "body": body}))
    result = rl.call("w0", "x")
    assert result.body == body
    assert type(result.body) is type(body)


def test_a_body_may_hold_what_python_writes_as_json() -> None:
    rl, _ = calling(reply(200, b'{"worker_id":"w0","url":"u","status":200,"latency_ms":1,"body":[NaN,-Infinity]}'))
    assert str(rl.call("w0", "x").body) == "[nan, -inf]"


@pytest.mark.parametrize(("extra", "truncated"), [({}, False), ({"body_truncated": True}, True), ({"new": 1}, False)])
def test_a_result_tells_when_the_gateway_cut_it(extra: dict[str, Any], truncated: bool) -> None:
    rl, _ = calling(reply(200, {**ENVELOPE, **extra}))
    assert rl.call("w0", "x").truncated is truncated


@pytest.mark.parametrize(
    ("method", "status"),
    [("POST", 204), ("GET", 204), ("POST", 304), ("HEAD", 200), ("HEAD", 204), ("HEAD", 302), ("head", 200)],
)
def test_an_answer_that_http_leaves_without_a_body_is_a_result_as_well(method: str, status: int) -> None:
    rl, _ = calling(reply(status, b""))
    result = rl.call("w0", "x", method=method)
    assert (result.worker_id, result.status, result.body) == ("w0", status, "")
    assert type(result.latency_ms) is int
    assert 0 <= result.latency_ms < 60_000


def test_a_fan_out_in_which_all_succeeded_is_its_report() -> None:
    other = {**ENVELOPE, "worker_id": "w1", "body": "", "body_truncated": True}
    report = {"results": {"w0": ENVELOPE, "w1": other}, "failed": [], "total": 2, "succeeded": 2, "new": 1}
    rl, _ = fanning_out(reply(200, report))
    first = CallResult("w0", "http://e0:1", 200, 3, {"ok": True})
    second = CallResult("w1", "http://e0:1", 200, 3, "", truncated=True)
    assert fan_out(rl) == FanoutResult({"w0": first, "w1": second}, [], 2, 2)


@pytest.mark.parametrize("entry", FAILED.values(), ids=FAILED)
@pytest.mark.parametrize("status", [200, 207])
def test_one_failed_target_raises_with_the_whole_result(entry: dict[str, Any], status: int) -> None:
    report = partial(entry)
    rl, _ = fanning_out(reply(status, report), reply(status, report))
    with pytest.raises(FanoutError) as caught:
        fan_out(rl)
    error = caught.value
    failure = FanoutFailure(**{"status": None, **entry})
    assert error.result == FanoutResult({"w0": CallResult(**ENVELOPE)}, [failure], 2, 1)
    assert (error.status, error.code) == (status, "fanout_partial")
    for word in ("1 of 2", "flush_cache", entry["worker_id"], entry["url"], entry["error"], entry["message"]):
        assert word in str(error)
    assert fan_out(rl, allow_partial=True) == error.result


def test_a_partial_failure_reads_who_failed_where_and_how() -> None:
    rl, _ = fanning_out(reply(207, partial(FAILED["upstream_error"], FAILED["upstream_timeout"])))
    with pytest.raises(FanoutError) as caught:
        fan_out(rl)
    assert str(caught.value) == (
        "fanout_partial (HTTP 207): 2 of 3 workers failed flush_cache: "
        "w1 (http://e1:1): upstream_error: HTTP 500; w2 (http://e2:1): upstream_timeout: no answer"
    )


def test_a_report_of_nothing_is_the_default() -> None:
    assert FanoutResult() == FanoutResult({}, [], 0, 0)


def test_an_engine_that_answered_with_an_error_is_in_both_lists() -> None:
    answered = {**ENVELOPE, "worker_id": "w1", "status": 500, "body": "boom"}
    report = {**partial(FAILED["upstream_error"]), "results": {"w0": ENVELOPE, "w1": answered}}
    rl, _ = fanning_out(reply(207, report))
    result = fan_out(rl, allow_partial=True)
    assert (result.results["w1"].body, result.failed[0].status) == ("boom", 500)
    assert (result.total, result.succeeded) == (2, 1)


def test_all_may_have_failed() -> None:
    report = {"results": {}, "failed": list(FAILED.values()), "total": 4, "succeeded": 0}
    rl, _ = fanning_out(reply(207, report))
    with pytest.raises(FanoutError, match="4 of 4") as caught:
        fan_out(rl)
    assert [failure.error for failure in caught.value.result.failed] == list(FAILED)


def test_the_first_failures_are_named_and_the_others_counted() -> None:
    failed = [{**FAILED["upstream_timeout"], "worker_id": f"worker-{number:02}"} for number in range(11)]
    rl, _ = fanning_out(reply(207, partial(*failed)))
    with pytest.raises(FanoutError, match="and 3 more") as caught:
        fan_out(rl)
    assert [f"worker-{number:02}" in str(caught.value) for number in range(11)] == [True] * 8 + [False] * 3
    assert len(caught.value.result.failed) == 11


@pytest.mark.parametrize(
    ("body", "status", "hinted"), [(None, 400, True), ({}, 400, False), (None, 500, False), ([], 400, False)]
)
def test_a_fan_out_without_a_body_that_engines_refuse_says_so(body: object, status: int, hinted: bool) -> None:
    rl, _ = fanning_out(reply(207, partial({**FAILED["upstream_error"], "status": status})))
    with pytest.raises(FanoutError) as caught:
        rl.fanout("pause_generation", body, selector="a=b")
    assert ("send {}" in str(caught.value)) is hinted


WORDS: dict[str, tuple[str, Callable[[RL], object], object]] = {
    "call": ("w0", lambda rl: rl.call("w0", "x"), ENVELOPE),
    "fanout": ("results", lambda rl: rl.fanout("x", selector="a=b"), REPORT),
    "worker": ("sglang", lambda rl: rl.worker("w0"), ROW),
    "workers": ("workers", lambda rl: rl.workers(), {"workers": [ROW]}),
    "a digit": ("1", lambda rl: rl.worker("w0"), ROW),
}


@pytest.mark.parametrize(("key", "call", "answer"), WORDS.values(), ids=WORDS)
def test_a_key_that_is_a_word_of_the_answer_changes_nothing_in_it(
    key: str, call: Callable[[RL], object], answer: object
) -> None:
    with_key, _ = scripted(reply(200, answer), api_key=key)
    without, _ = scripted(reply(200, answer))
    assert call(with_key) == call(without)


@pytest.mark.parametrize("broken", [{"failed": "oops"}, {"failed": [None]}, {"failed": None}, {"results": None}])
def test_a_report_that_cannot_be_read_does_not_pass_for_a_success(broken: dict[str, Any]) -> None:
    rl, _ = scripted(reply(200, {**REPORT, **broken}))
    with pytest.raises(RlError) as refused:
        fan_out(rl)
    assert refused.value.code == "unexpected_response"
