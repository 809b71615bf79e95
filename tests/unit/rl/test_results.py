"""The values that a gateway's answer becomes, field by field, and that they travel."""

from collections.abc import Callable
from dataclasses import fields
from typing import Any

import pytest

from smg.rl import CallResult, FanoutResult, Selector, Term, Worker

from ...support.scripted_sender import ENVELOPE, ROW, calling, fanning_out, reply, scripted
from ...support.travelling import EVERY_WAY, RESULT

BODIES: list[Any] = [{"success": True}, {"error": "engine's own"}, {}, [], [1], "Cache flushed.\n", "", None, 0, False]


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


def test_a_fan_out_in_which_all_succeeded_is_its_report() -> None:
    other = {**ENVELOPE, "worker_id": "w1", "body": "", "body_truncated": True}
    report = {"results": {"w0": ENVELOPE, "w1": other}, "failed": [], "total": 2, "succeeded": 2, "new": 1}
    rl, _ = fanning_out(reply(200, report))
    first = CallResult("w0", "http://e0:1", 200, 3, {"ok": True})
    second = CallResult("w1", "http://e0:1", 200, 3, "", truncated=True)
    assert rl.fanout("flush_cache", {}, selector="a=b") == FanoutResult({"w0": first, "w1": second}, [], 2, 2)


def test_a_report_of_nothing_is_the_default() -> None:
    assert FanoutResult() == FanoutResult({}, [], 0, 0)


VALUES: dict[str, object] = {
    "Worker": Worker(**ROW),
    "CallResult": RESULT.results["w0"],
    "FanoutFailure": RESULT.failed[0],
    "FanoutResult": RESULT,
    "Term": Term("a", "in", ("b", "c")),
    "Selector": Selector.parse("a=b,c!=d"),
}


@EVERY_WAY
@pytest.mark.parametrize("name", VALUES)
def test_a_result_travels_whole(name: str, way: Callable[[Any], Any]) -> None:
    arrived = way(VALUES[name])
    assert arrived == VALUES[name]
    assert type(arrived) is type(VALUES[name])
