"""An answer of the gateway, or none at all -> an envelope, a report, or the exception that a method raises."""

from collections.abc import Callable
from typing import Any

import pytest

from smg.rl import RL, CallResult, FanoutError, FanoutFailure, FanoutResult, RlConnectionError, RlError, RlTimeoutError
from smg.rl.messages import Failure, Response

from ...support.scripted_sender import ENVELOPE, GATEWAY, REPORT, ROW, calling, fanning_out, reply, scripted

CALLS: dict[str, tuple[Callable[[RL], object], str]] = {
    "workers": (lambda rl: rl.workers(), f"GET {GATEWAY}/v1/rl/workers"),
    "worker": (lambda rl: rl.worker("w0"), f"GET {GATEWAY}/v1/rl/workers/w0"),
    "call": (lambda rl: rl.call("w0", "x", {}), f"POST {GATEWAY}/v1/rl/workers/w0/engine/x"),
    "fanout": (lambda rl: rl.fanout("x", {}, selector="a=b"), f"POST {GATEWAY}/v1/rl/engine/x"),
}
EVERY_CALL = pytest.mark.parametrize(("call", "asked"), CALLS.values(), ids=CALLS)

# Contract, chapter "Errors".
REFUSALS: list[tuple[int, dict[str, Any]]] = [
    (400, {"error": "invalid_engine_path", "message": "no"}),
    (400, {"error": "selector_required", "message": "no"}),
    (400, {"error": "invalid_selector", "message": "no", "offset": 7}),
    (400, {"error": "no_workers_match", "message": "no", "selector": "a=b"}),
    (404, {"error": "worker_not_found", "message": "no", "id": "w0"}),
    (422, {"error": "unsupported_connection_mode", "message": "no", "worker_id": "w0", "connection_mode": "grpc"}),
    (502, {"error": "upstream_unreachable", "message": "no", "worker_id": "w0", "url": "http://e0:1"}),
    (504, {"error": "upstream_timeout", "message": "no", "worker_id": "w0", "url": "http://e0:1"}),
    (418, {"error": "of_a_later_gateway", "message": "no", "more": [1, {"x": None}]}),
    (500, {"error": "no_message"}),
]

# Statuses that are the gateway's own and have no JSON; text that is none.
TEXTS: list[tuple[int, bytes, str]] = [
    (400, b"Bad Request", "Bad Request"),
    (401, b"", "no body"),
    (403, b"", "no body"),
    (404, b"", "no body"),
    (500, b"Internal Server Error", "Internal Server Error"),
    (502, b"<html><h1>Bad Gateway</h1></html>", "<html>"),
    (503, b"[1, 2]", "[1, 2]"),
    (503, b'"text"', "text"),
    (503, b"null", "None"),
    (500, b'{"error": "cut', '{"error": "cut'),
    (500, b"\xff\xfe{}", "\ufffd\ufffd{}"),
    (500, b"[" * 100_000, "[["),
    (500, b"9" * 10_000, "999"),
]

# 2xx and 3xx that no method can use. None of them may surface as an AttributeError or a KeyError.
ODD: list[Response] = [
    *(reply(200, value) for value in (b"", b"<html>", b"null", b"0", b'""', [], ["workers"], "text", {}, {"x": 1})),
    *(reply(status, b"") for status in (201, 202, 205, 206)),
    *(reply(status, b"", "http://elsewhere/?a=b") for status in (301, 302, 303, 307, 308)),
    reply(300, b"choose"),
]

HINTS = {
    "worker_not_found": (404, "rl.workers()"),
    "no_workers_match": (400, "labels"),
    "selector_required": (400, "selector="),
    "unsupported_connection_mode": (422, "connection_mode http"),
    "upstream_unreachable": (502, "unknown"),
    "upstream_timeout": (504, "--rl-control-timeout-secs"),
}
STATUS_HINTS = {401: "api_key", 403: "admin", 404: "--enable-rl", 405: "GET and POST", 413: "--max-payload-size"}

FAILURES: dict[str, tuple[type[RlError], str]] = {
    "connection_failed": (RlConnectionError, "is the gateway running"),
    "bad_response": (RlConnectionError, "unknown"),
    "client_timeout": (RlTimeoutError, "--rl-control-timeout-secs"),
}


def error_of(call: Callable[[RL], object], answer: Response | Failure, **options: Any) -> RlError:
    rl, _ = scripted(answer, **options)
    with pytest.raises(RlError) as caught:
        call(rl)
    return caught.value


@EVERY_CALL
@pytest.mark.parametrize(("status", "payload"), REFUSALS, ids=[payload["error"] for _, payload in REFUSALS])
def test_a_refusal_raises_what_the_gateway_said(
    call: Callable[[RL], object], asked: str, status: int, payload: dict[str, Any]
) -> None:
    error = error_of(call, reply(status, payload))
    assert type(error) is RlError
    assert (error.status, error.code, error.payload) == (status, payload["error"], payload)
    for word in (payload["error"], f"HTTP {status}", payload.get("message", ""), asked):
        assert word in str(error)


@pytest.mark.parametrize("status", [200, 502])
def test_an_answer_with_an_error_is_no_envelope_although_it_looks_like_one(status: int) -> None:
    error = error_of(CALLS["call"][0], reply(status, {**ENVELOPE, "error": "odd", "message": "no"}))
    assert (error.status, error.code, error.payload["worker_id"]) == (status, "odd", "w0")


@EVERY_CALL
@pytest.mark.parametrize(
    ("status", "body", "said"), TEXTS, ids=[f"{status} {text[:20]!r}" for status, text, _ in TEXTS]
)
def test_an_error_that_is_no_json_object_is_http_error(
    call: Callable[[RL], object], asked: str, status: int, body: bytes, said: str
) -> None:
    error = error_of(call, reply(status, body))
    assert type(error) is RlError
    assert (error.status, error.code, error.payload["error"]) == (status, "http_error", "http_error")
    assert said in str(error.payload["message"])
    for word in (said, f"HTTP {status}", asked):
        assert word in str(error)


@EVERY_CALL
@pytest.mark.parametrize("answer", ODD, ids=[f"{odd.status} {odd.body[:20]!r}" for odd in ODD])
def test_an_odd_success_is_an_unexpected_response(call: Callable[[RL], object], asked: str, answer: Response) -> None:
    error = error_of(call, answer)
    assert (type(error), error.status, error.code) == (RlError, answer.status, "unexpected_response")
    assert asked in str(error)
    if answer.location:
        assert f"{answer.location}, which is not followed" in str(error)


@pytest.mark.parametrize("status", [204, 304])
@pytest.mark.parametrize("name", ["workers", "worker", "fanout"])
def test_only_a_call_can_do_without_a_body(name: str, status: int) -> None:
    assert error_of(CALLS[name][0], reply(status, b"")).code == "unexpected_response"


@pytest.mark.parametrize("status", [400, 401, 404, 405, 500])
def test_a_head_that_failed_raises_for_nobody_knows_whose_answer_it_is(status: int) -> None:
    error = error_of(lambda rl: rl.call("w0", "x", method="HEAD"), reply(status, b""))
    assert (error.status, error.code) == (status, "http_error")


def test_a_status_that_a_fan_out_never_has_is_none_of_its_reports() -> None:
    assert error_of(CALLS["fanout"][0], reply(201, REPORT)).code == "unexpected_response"
    assert error_of(CALLS["fanout"][0], reply(500, REPORT)).code == "unknown"


@pytest.mark.parametrize(
    ("payload", "code"), [({}, "unknown"), ({"error": {"type": "x"}}, "{'type': 'x'}"), ({"error": 5}, "5")]
)
def test_a_json_object_without_a_code_keeps_its_payload(payload: dict[str, Any], code: str) -> None:
    error = error_of(CALLS["call"][0], reply(500, payload))
    assert (error.code, error.payload) == (code, payload)


def test_the_engines_401_is_a_result_and_the_gateways_an_error() -> None:
    rl, _ = scripted(reply(401, {**ENVELOPE, "status": 401}), reply(401, b""))
    assert rl.call("w0", "x").status == 401
    with pytest.raises(RlError, match="api_key"):
        rl.call("w0", "x")


@pytest.mark.parametrize("code", HINTS)
def test_an_error_says_what_to_do_next(code: str) -> None:
    status, word = HINTS[code]
    assert word in str(error_of(CALLS["call"][0], reply(status, {"error": code, "message": ""})))


@pytest.mark.parametrize("status", STATUS_HINTS)
def test_so_does_a_status_without_a_code(status: int) -> None:
    assert STATUS_HINTS[status] in str(error_of(CALLS["fanout"][0], reply(status, b"")))


@EVERY_CALL
@pytest.mark.parametrize("code", FAILURES)
def test_no_answer_has_status_zero_and_a_code(call: Callable[[RL], object], asked: str, code: str) -> None:
    kind, hint = FAILURES[code]
    error = error_of(call, Failure(code, "what happened"))
    assert (type(error), error.status, error.code) == (kind, 0, code)
    assert error.payload == {"error": code, "message": "what happened"}
    for word in (code, "what happened", asked, hint):
        assert word in str(error)
    assert (error.__context__, error.__cause__) == (None, None)


EXACT: dict[str, Response | Failure] = {
    "odd (HTTP 418): m [GET {}/v1/rl/workers]": reply(418, {"error": "odd", "message": "m"}),
    "http_error (HTTP 500): no body [GET {}/v1/rl/workers]": reply(500, b""),
    "unexpected_response (HTTP 200): [] [GET {}/v1/rl/workers]": reply(200, []),
    "unexpected_response (HTTP 302): a redirect to /x, which is not followed [GET {}/v1/rl/workers]": reply(
        302, b"", "/x"
    ),
    "connection_failed: refused [GET {}/v1/rl/workers]: is the gateway running there?": Failure(
        "connection_failed", "refused"
    ),
}


@pytest.mark.parametrize("text", EXACT)
def test_an_error_reads_code_status_message_call_and_hint(text: str) -> None:
    assert str(error_of(CALLS["workers"][0], EXACT[text])) == text.format(GATEWAY)


LONG = "é" * 5_000
LONG_ANSWERS: dict[str, Response | Failure] = {
    "message": reply(500, {"error": "e", "message": LONG}),
    "code": reply(500, {"error": LONG, "message": "m"}),
    "html": reply(502, LONG.encode()),
    "list": reply(500, [LONG] * 1_000),
    "redirect": reply(307, b"", "http://elsewhere/" + "x" * 5_000),
    "unexpected": reply(200, {"x": LONG}),
    "failure": Failure("bad_response", LONG),
    "report": reply(
        207,
        {
            "results": {},
            "failed": [{"worker_id": LONG, "url": LONG, "error": LONG, "message": LONG}] * 1_000,
            "total": 1_000,
            "succeeded": 0,
        },
    ),
}


@pytest.mark.parametrize("answer", LONG_ANSWERS.values(), ids=LONG_ANSWERS)
def test_no_error_is_longer_than_two_kilobytes(answer: Response | Failure) -> None:
    for path in ("x", LONG):
        error = error_of(lambda rl, path=path: rl.fanout(path, {}, selector="a=b"), answer)  # type: ignore[misc]  # a lambda with a default
        assert 0 < len(str(error).encode()) <= 2_000


KEY = "sk-Key/+=="
SHOWN: dict[str, Response | Failure] = {
    "message": reply(401, {"error": "no", "message": f"bad key {KEY}!"}),
    "code": reply(401, {"error": KEY, "message": ""}),
    "payload": reply(401, {"error": "no", "message": "", "seen": [{KEY: 1, "Authorization": f"Bearer {KEY}"}]}),
    "escaped": reply(401, rb'{"error": "no", "message": "bad key sk-Key\/\u002b=\u003d!"}'),
    "text": reply(401, f"bad key {KEY}".encode()),
    "odd success": reply(200, {"headers": {"Authorization": f"Bearer {KEY}"}}),
    "redirect": reply(302, b"", f"http://elsewhere/login?key={KEY}"),
}


@pytest.mark.parametrize("answer", SHOWN.values(), ids=SHOWN)
def test_a_key_that_the_gateway_repeats_is_hidden(answer: Response) -> None:
    error = error_of(CALLS["call"][0], answer, api_key=KEY)
    for text in (str(error), str(error.payload), error.code, repr(error)):
        assert KEY not in text
    assert "***" in f"{error} {error.payload}"


def test_a_key_in_the_message_of_a_failed_target_is_hidden_in_the_text() -> None:
    failed = {"worker_id": "w1", "url": "http://e1:1", "error": "upstream_error", "message": f"bad key {KEY}"}
    rl, _ = fanning_out(reply(207, {"results": {}, "failed": [failed], "total": 1, "succeeded": 0}), api_key=KEY)
    with pytest.raises(FanoutError) as caught:
        rl.fanout("x", selector="a=b")
    assert KEY not in str(caught.value)
    assert "***" in str(caught.value)


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
    assert refused.value.code == "bad_response"
