"""What a request says, where it goes, and that what cannot be said is not sent."""

import json
from collections.abc import Iterable
from typing import Any
from urllib.parse import parse_qsl, unquote, urlsplit

import pytest
from hypothesis import given
from hypothesis import strategies as st

from smg.rl import RL
from smg.rl.encoding import Params
from smg.rl.messages import Request

from ...support.scripted_sender import (
    ALWAYS,
    GATEWAY,
    JSON_TYPE,
    REPORT,
    Script,
    calling,
    fanning_out,
    only,
    reply,
    scripted,
)

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


BASE_URLS = {
    "http://h:1": "http://h:1",
    "http://h:1/": "http://h:1",
    "http://h:1//": "http://h:1",
    "http://h:1/smg": "http://h:1/smg",
    "http://h:1/smg/": "http://h:1/smg",
    "http://h:1/smg//": "http://h:1/smg",
    "http://h:1/a/b%20c/": "http://h:1/a/b%20c",
    "HTTP://h:1": "http://h:1",
    "HttpS://h": "https://h",
    "http://Host.Example": "http://Host.Example",
    "http://10.0.0.1:80": "http://10.0.0.1:80",
    "http://[::1]:30000": "http://[::1]:30000",
    "https://[fe80::1]/smg/": "https://[fe80::1]/smg",
}

NO_BASE_URLS: list[Any] = [
    *("", "h", "h:1", "//h:1", "/v1/rl", "localhost:30000", "http", "http:", "http:/h", "http//h", "http:h:1"),
    *("htp://h", "ftp://h", "file:///etc/passwd", "unix:///run/smg.sock", "ws://h:1", "http+unix://h"),
    *("http://", "http:///x", "http://:1", "http://?", "http://#"),
    *("http://h:1?", "http://h:1?x=1", "http://h:1/smg?x=1", "http://h:1#", "http://h:1/#f"),
    *("http://u:p@h:1", "http://u@h:1", "http://@h:1", "https://u:@h"),
    *("http://h:x", "http://h:-1", "http://h:65536", "http://h:1:2", "http://{host}:{port}"),
    *("http://[::1", "http://::1:30000", "http://::1"),
    *(" http://h", "http://h ", "http://h\n", "http://h:1/a b", "http://h:1/\r\nX: y", "http://h\x00", "http://h\x7f"),
    *("http://bücher:1", None, 5, b"http://h", ["http://h"]),
]

# Every one of these would end the segment, or be resolved by a proxy on the way.
SEGMENTS = {
    "w0": "w0",
    "0e5c-A_b.c~d": "0e5c-A_b.c~d",
    "a/b": "a%2Fb",
    "a?b": "a%3Fb",
    "a#b": "a%23b",
    "a&b=c;d": "a%26b%3Dc%3Bd",
    "%2F": "%252F",
    ".": "%2E",
    "..": "%2E%2E",
    "...": "%2E%2E%2E",
    "../..": "..%2F..",
    " \r\n\x00": "%20%0D%0A%00",
    "é☃": "%C3%A9%E2%98%83",
    "http://h:1@0": "http%3A%2F%2Fh%3A1%400",
}

ENGINE_PATHS = {
    "flush_cache": "flush_cache",
    "/flush_cache": "flush_cache",
    "//flush_cache": "flush_cache",
    "v1/models": "v1/models",
    "a/": "a/",
    "a//b": "a//b",
    "a?b=c": "a%3Fb%3Dc",
    "a#b": "a%23b",
    "a b": "a%20b",
    "%2e": "%252e",
    "é": "%C3%A9",
    "a\r\nb": "a%0D%0Ab",
}

KEYS = ["k", "sk-0123456789", "a.b/c+d==", "~!@#$%^&*()"]
NO_KEYS: list[Any] = [
    "sek ret",
    " sekret",
    "sekret\n",
    "sek\r\nret: x",
    "sekret\x00",
    "sekreté",
    "sekret\x7f",
    b"sek",
    5,
]


@pytest.mark.parametrize(("given_url", "base_url"), BASE_URLS.items())
def test_a_base_url_loses_its_last_slashes_and_nothing_else(given_url: str, base_url: str) -> None:
    rl, script = scripted(reply(200, {"workers": []}), base_url=given_url)
    assert (rl.base_url, rl.workers()) == (base_url, [])
    assert script.asked[0].url == f"{base_url}/v1/rl/workers"


@pytest.mark.parametrize("url", NO_BASE_URLS, ids=ascii)
def test_another_base_url_is_refused_at_once(url: Any) -> None:
    with pytest.raises(ValueError, match="base_url"):
        RL(url)


def test_a_password_in_the_base_url_is_not_repeated() -> None:
    with pytest.raises(ValueError) as caught:
        RL("http://user:s3cret@h:1")
    assert "s3cret" not in str(caught.value)
    assert "api_key" in str(caught.value)


@pytest.mark.parametrize("key", KEYS)
def test_a_key_that_can_stand_in_a_header_is_taken(key: str) -> None:
    assert "authenticated=True" in repr(RL(GATEWAY, key))


@pytest.mark.parametrize("key", [None, ""])
def test_no_key_and_an_empty_one_are_the_same(key: str | None) -> None:
    assert "authenticated=False" in repr(RL(GATEWAY, key))


@pytest.mark.parametrize("key", NO_KEYS, ids=ascii)
def test_another_key_is_refused_without_repeating_it(key: Any) -> None:
    with pytest.raises(ValueError, match="api_key") as caught:
        RL(GATEWAY, key)
    assert "sek" not in str(caught.value)


def asked_path(script: Script) -> str:
    request = only(script)
    parts = urlsplit(request.url)
    assert (parts.scheme, parts.netloc, parts.query, parts.fragment) == ("http", "gateway:30000", "", "")
    return parts.path


@pytest.mark.parametrize(("worker_id", "segment"), SEGMENTS.items())
def test_a_worker_id_is_one_segment_whatever_is_in_it(worker_id: str, segment: str) -> None:
    rl, script = calling()
    rl.call(worker_id, "flush_cache")
    assert asked_path(script) == f"/v1/rl/workers/{segment}/engine/flush_cache"
    rl, script = scripted(reply(200, {"id": worker_id}))
    assert rl.worker(worker_id).id == worker_id
    assert asked_path(script) == f"/v1/rl/workers/{segment}"


@given(st.text(min_size=1))
def test_no_worker_id_adds_a_segment_a_query_or_a_fragment(worker_id: str) -> None:
    rl, script = calling()
    rl.call(worker_id, "x")
    segments = asked_path(script).split("/")
    assert segments[:4] + segments[5:] == ["", "v1", "rl", "workers", "engine", "x"]
    assert unquote(segments[4], errors="strict") == worker_id
    assert segments[4].strip(".")
    assert script.asked[0].url.isascii() and script.asked[0].url.isprintable() and " " not in script.asked[0].url


@pytest.mark.parametrize(("path", "sent"), ENGINE_PATHS.items())
def test_an_engine_path_keeps_its_slashes_and_nothing_else_that_could_end_it(path: str, sent: str) -> None:
    rl, script = calling()
    rl.call("w0", path)
    assert asked_path(script) == f"/v1/rl/workers/w0/engine/{sent}"
    rl, script = fanning_out()
    rl.fanout(path, selector="a=b")
    assert script.asked[0].url == f"{GATEWAY}/v1/rl/engine/{sent}?selector=a%3Db"


@given(st.text(min_size=1).filter(lambda path: path.strip("/")))
def test_no_engine_path_adds_a_query_or_a_fragment(path: str) -> None:
    rl, script = calling()
    rl.call("w0", path)
    before, _, sent = asked_path(script).partition("/engine/")
    assert before == "/v1/rl/workers/w0"
    assert unquote(sent, errors="strict") == path.lstrip("/")


@pytest.mark.parametrize(
    ("worker_id", "error"), [("", ValueError), (None, TypeError), (5, TypeError), (b"w", TypeError)]
)
def test_a_worker_id_that_is_none_is_refused_before_anything_is_sent(worker_id: Any, error: type[Exception]) -> None:
    rl, script = scripted()
    with pytest.raises(error, match="worker_id"):
        rl.worker(worker_id)
    with pytest.raises(error, match="worker_id"):
        rl.call(worker_id, "x")
    assert script.asked == []


@pytest.mark.parametrize(
    ("path", "error"), [("", ValueError), ("/", ValueError), ("//", ValueError), (None, TypeError), (b"x", TypeError)]
)
def test_an_engine_path_that_is_none_is_refused_before_anything_is_sent(path: Any, error: type[Exception]) -> None:
    rl, script = scripted()
    with pytest.raises(error, match="path"):
        rl.call("w0", path)
    with pytest.raises(error, match="path"):
        rl.fanout(path, selector="a=b")
    assert script.asked == []


@pytest.mark.parametrize("name", ["Content-Length", "transfer-encoding", "CONNECTION"])
def test_headers_that_frame_a_request_are_the_clients(name: str) -> None:
    with pytest.raises(ValueError, match=f"headers: '{name}' is for the client to set"):
        RL("http://gateway:1", headers={name: "5"})
