"""Where a request goes, and what never makes it that far: base URL, key, timeout, ids, engine paths."""

from typing import Any
from urllib.parse import unquote, urlsplit

import pytest
from hypothesis import given
from hypothesis import strategies as st

from smg.rl import RL

from ...support.calls import CALLS
from ...support.scripted_sender import GATEWAY, Script, calling, fanning_out, reply, scripted

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

NOT_POSITIVE: list[Any] = [0, 0.0, -0.0, -1, -0.5, float("nan"), float("inf"), float("-inf"), 10**400]
NO_NUMBERS: list[Any] = ["5", b"5", True, False, [5], 5j, {}]
NO_TIMEOUTS = [*((value, ValueError) for value in NOT_POSITIVE), *((value, TypeError) for value in NO_NUMBERS)]


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


@pytest.mark.parametrize(("timeout", "error"), [*NO_TIMEOUTS, (None, TypeError)], ids=lambda value: ascii(value)[:20])
def test_a_timeout_that_is_no_positive_number_is_refused_at_once(timeout: Any, error: type[Exception]) -> None:
    with pytest.raises(error, match="timeout"):
        RL(GATEWAY, timeout=timeout)


@pytest.mark.parametrize("name", CALLS)
@pytest.mark.parametrize(("timeout", "error"), NO_TIMEOUTS, ids=lambda value: ascii(value)[:20])
def test_so_is_the_timeout_of_one_call(name: str, timeout: Any, error: type[Exception]) -> None:
    rl, script = scripted()
    with pytest.raises(error, match="timeout"):
        CALLS[name](rl, timeout)
    assert script.asked == []


def test_without_one_it_is_ten_minutes() -> None:
    rl, script = fanning_out()
    rl.fanout("x", {}, selector="a=b")
    assert (rl.timeout, script.timeouts) == (600, [600])


@pytest.mark.parametrize("timeout", [None, 0.25, 5, 3600.0])
def test_the_timeout_of_one_call_replaces_the_clients_in_both_directions(timeout: float | None) -> None:
    rl, script = fanning_out(timeout=60)
    rl.fanout("x", {}, selector="a=b", timeout=timeout)
    assert script.timeouts == [timeout or 60]


def test_every_public_method_has_its_row_in_the_table_of_calls() -> None:
    public = {name for name, value in vars(RL).items() if callable(value) and not name.startswith("_")}
    assert public - {"close", "through"} == set(CALLS) - {"paused"}


def asked_path(script: Script) -> str:
    (request,) = script.asked
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
