"""What a request says: method, query, body, headers; and that what cannot be said is not sent."""

import json
from collections.abc import Callable, Iterable
from typing import Any
from urllib.parse import parse_qsl, urlsplit

import pytest
from hypothesis import given
from hypothesis import strategies as st

from smg import __version__
from smg.rl import RL, Selector
from smg.rl.encoding import Params
from smg.rl.messages import Request

from ...support.scripted_sender import GATEWAY, REPORT, Script, calling, fanning_out, reply, scripted

ALWAYS = {"Accept": "application/json", "User-Agent": f"smg-rl/{__version__}"}
JSON_TYPE = {"Content-Type": "application/json"}

ASKED: dict[str, tuple[Callable[[RL], object], tuple[str, str, bytes | None]]] = {
    "workers": (lambda rl: rl.workers(), ("GET", "/v1/rl/workers", None)),
    "worker": (lambda rl: rl.worker("w0"), ("GET", "/v1/rl/workers/w0", None)),
    "call": (lambda rl: rl.call("w0", "a/b", {}), ("POST", "/v1/rl/workers/w0/engine/a/b", b"{}")),
    "fanout": (lambda rl: rl.fanout("a/b", {}, selector="x=y"), ("POST", "/v1/rl/engine/a/b?selector=x%3Dy", b"{}")),
}

QUERIES: list[tuple[Params | None, str]] = [
    (None, ""),
    ({}, ""),
    ([], ""),
    ({"a": None}, ""),
    ({"a": []}, ""),
    ({"a": "1"}, "a=1"),
    ({"a": 1, "b": 2.5, "c": 0}, "a=1&b=2.5&c=0"),
    ({"a": ""}, "a="),
    ({"a": True, "b": False}, "a=true&b=false"),
    ({"tags": ["weights", "kv_cache"]}, "tags=weights&tags=kv_cache"),
    ({"a": ("x", None, True, 3)}, "a=x&a=true&a=3"),
    ({"z": 1, "a": 2}, "z=1&a=2"),
    ([("a", 1), ("b", 2), ("a", 3)], "a=1&b=2&a=3"),
    ([("a", 1), ("a", [2, 3])], "a=1&a=2&a=3"),
    ({"a b": "c d", "&=?#/": "+%;"}, "a+b=c+d&%26%3D%3F%23%2F=%2B%25%3B"),
    ({"é": "☃"}, "%C3%A9=%E2%98%83"),
    ({"a": "x\r\ny"}, "a=x%0D%0Ay"),
]

BODIES: list[tuple[object, bytes]] = [
    ({}, b"{}"),
    ([], b"[]"),
    (0, b"0"),
    ("", b'""'),
    (False, b"false"),
    (0.0, b"0.0"),
    ({"model_path": "/ckpt/42", "tags": [], "n": None}, b'{"model_path": "/ckpt/42", "tags": [], "n": null}'),
    ({"b": 1, "a": 2}, b'{"b": 1, "a": 2}'),
    ("é☃", rb'"\u00e9\u2603"'),
    (2**70, b"1180591620717411303424"),
]

NAN = float("nan")
LOOP: list[object] = []
LOOP.append(LOOP)
NO_BODIES: list[tuple[object, type[Exception]]] = [
    *((value, ValueError) for value in (NAN, float("inf"), float("-inf"), {"lr": [1.0, NAN]}, LOOP)),
    *((value, TypeError) for value in (b"{}", {"x": b"y"}, {1, 2}, object(), {("a", "b"): 1})),
]

JSONS = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.text(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(), inner, max_size=3),
    max_leaves=8,
)

HEADERS: list[tuple[dict[str, str], dict[str, str]]] = [
    ({}, {}),
    ({"x-request-id": "r1"}, {"X-Request-Id": "r1"}),
    ({"TRACEPARENT": "00-1-2-03"}, {"Traceparent": "00-1-2-03"}),
    ({"user-agent": "trainer/1"}, {"User-Agent": "trainer/1"}),
    ({"ACCEPT": "*/*"}, {"Accept": "*/*"}),
    ({"content-type": "application/vnd.x+json"}, {"Content-Type": "application/vnd.x+json"}),
    ({"X-Any": "\t !~\xa0ÿ"}, {"X-Any": "\t !~\xa0ÿ"}),
    ({"X-Empty": ""}, {"X-Empty": ""}),
]

NO_HEADERS: list[dict[Any, Any]] = [
    *({name: "v"} for name in ("", "a b", "a:", "a\r\nb", "a\n", "é", "a\x00", None, 5, b"a")),
    *({"X-A": value} for value in ("a\r\nX-B: c", "a\n", "\r", "\x00", "\x7f", "☃", None, 5, b"v")),
]


def only(script: Script) -> Request:
    (request,) = script.asked
    return request


def query_of(request: Request) -> str:
    return request.url.partition("?")[2]


@pytest.mark.parametrize(("call", "asked"), ASKED.values(), ids=ASKED)
def test_every_method_asks_its_route(call: Callable[[RL], object], asked: tuple[str, str, bytes | None]) -> None:
    rl, script = scripted(reply(200, {"workers": [], "id": "w0", "latency_ms": 0, **REPORT}))
    call(rl)
    request, (method, target, body) = only(script), asked
    assert (request.method, request.url, request.body) == (method, GATEWAY + target, body)
    assert request.headers == (ALWAYS if body is None else {**ALWAYS, **JSON_TYPE})


@pytest.mark.parametrize(("params", "query"), QUERIES, ids=[query or "none" for _, query in QUERIES])
def test_params_are_the_engines_query(params: Params | None, query: str) -> None:
    rl, script = calling()
    rl.call("w0", "x", params=params)
    assert only(script).url == f"{GATEWAY}/v1/rl/workers/w0/engine/x" + (f"?{query}" if query else "")


@given(st.lists(st.tuples(st.text(), st.text())))
def test_any_text_arrives_in_the_query_as_it_was(pairs: list[tuple[str, str]]) -> None:
    rl, script = calling()
    rl.call("w0", "x", params=pairs)
    assert parse_qsl(urlsplit(only(script).url).query, keep_blank_values=True) == pairs


@pytest.mark.parametrize("selector", ["engine=sglang,zone in (a,b)", Selector.parse("engine = sglang, zone in(a , b)")])
def test_a_selector_comes_after_the_params_as_text(selector: str | Selector) -> None:
    rl, script = fanning_out()
    rl.fanout("x", selector=selector, params={"a": [1, 2]})
    assert query_of(only(script)) == "a=1&a=2&selector=engine%3Dsglang%2Czone+in+%28a%2Cb%29"


@pytest.mark.parametrize(
    "params", [{"selector": "role=evil", "a": 1}, [("a", 1), ("selector", "x"), ("selector", ["y", "z"])]]
)
def test_a_selector_among_the_params_of_a_fan_out_gives_way(params: Params) -> None:
    rl, script = fanning_out()
    rl.fanout("x", selector="b=c", params=params)
    assert query_of(only(script)) == "a=1&selector=b%3Dc"


@given(st.text())
def test_any_selector_is_sent_for_the_gateway_to_judge(selector: str) -> None:
    rl, script = fanning_out()
    rl.fanout("x", selector=selector)
    assert parse_qsl(query_of(only(script)), keep_blank_values=True) == [("selector", selector)]


def sent_by(body: object) -> Iterable[Request]:
    """The request of `call` and of `fanout` with this body."""
    rl, script = calling()
    rl.call("w0", "x", body)
    yield only(script)
    rl, script = fanning_out()
    rl.fanout("x", body, selector="a=b")
    yield only(script)


def test_no_body_is_no_body_and_no_content_type() -> None:
    for request in sent_by(None):
        assert (request.body, request.headers) == (None, ALWAYS)


@pytest.mark.parametrize(("body", "sent"), BODIES, ids=[sent.decode() for _, sent in BODIES])
def test_any_other_body_is_json_however_empty(body: object, sent: bytes) -> None:
    for request in sent_by(body):
        assert (request.body, request.headers) == (sent, {**ALWAYS, **JSON_TYPE})


@given(JSONS.filter(lambda value: value is not None))
def test_any_json_arrives_as_it_was(body: object) -> None:
    for request in sent_by(body):
        assert request.body is not None
        assert json.loads(request.body) == body


@pytest.mark.parametrize(("body", "error"), NO_BODIES)
def test_a_body_that_is_no_json_is_refused_before_anything_is_sent(body: object, error: type[Exception]) -> None:
    rl, script = scripted()
    with pytest.raises(error, match="body"):
        rl.call("w0", "x", body)
    with pytest.raises(error, match="body"):
        rl.fanout("x", body, selector="a=b")
    assert script.asked == []


@pytest.mark.parametrize("method", ["GET", "get", "Post", "HEAD", "delete", "X-Custom!"])
def test_any_method_is_sent_in_upper_case(method: str) -> None:
    rl, script = calling()
    rl.call("w0", "x", method=method)
    assert only(script).method == method.upper()


@pytest.mark.parametrize("method", ["", " ", "G T", "GET ", "GET\r\nX: y", "GÉT", "GET/", None, 5, b"GET"])
def test_what_is_no_method_is_refused_before_anything_is_sent(method: Any) -> None:
    rl, script = scripted()
    with pytest.raises(ValueError, match="method"):
        rl.call("w0", "x", method=method)
    assert script.asked == []


@pytest.mark.parametrize(("headers", "sent"), HEADERS, ids=[ascii(headers) for headers, _ in HEADERS])
def test_headers_are_added_or_replace_the_clients_own(headers: dict[str, str], sent: dict[str, str]) -> None:
    for given_headers in (headers, lambda: headers):
        rl, script = calling(headers=given_headers)
        rl.call("w0", "x", {})
        assert only(script).headers == {**ALWAYS, **JSON_TYPE, **sent}


def test_a_function_of_headers_is_asked_for_every_request() -> None:
    ids = iter(["r1", "r2"])
    rl, script = scripted(reply(200, REPORT), reply(200, REPORT), headers=lambda: {"X-Request-Id": next(ids)})
    for _ in range(2):
        rl.fanout("x", selector="a=b")
    assert [request.headers["X-Request-Id"] for request in script.asked] == ["r1", "r2"]


@pytest.mark.parametrize("headers", NO_HEADERS, ids=ascii)
def test_headers_that_cannot_be_sent_are_refused_at_once(headers: dict[Any, Any]) -> None:
    with pytest.raises(ValueError, match="headers"):
        RL(GATEWAY, headers=headers)


@pytest.mark.parametrize("headers", NO_HEADERS, ids=ascii)
def test_headers_of_a_function_that_cannot_be_sent_are_not(headers: dict[Any, Any]) -> None:
    rl, script = scripted(headers=lambda: headers)
    with pytest.raises(ValueError, match="headers"):
        rl.workers()
    assert script.asked == []
