"""A client: its timeouts, the routes of its methods, what it shows of itself, and that it travels."""

from collections.abc import Callable
from typing import Any
from urllib.parse import parse_qsl

import pytest
from hypothesis import given
from hypothesis import strategies as st

from smg.rl import RL, Selector
from smg.rl.encoding import Params
from smg.rl.messages import Request

from ...support.calls import CALLS
from ...support.scripted_sender import ALWAYS, GATEWAY, JSON_TYPE, REPORT, fanning_out, only, reply, scripted
from ...support.travelling import EVERY_WAY

NOT_POSITIVE: list[Any] = [0, 0.0, -0.0, -1, -0.5, float("nan"), float("inf"), float("-inf"), 10**400]
NO_NUMBERS: list[Any] = ["5", b"5", True, False, [5], 5j, {}]
NO_TIMEOUTS = [*((value, ValueError) for value in NOT_POSITIVE), *((value, TypeError) for value in NO_NUMBERS)]


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
    assert public - {"carried", "close", "through"} == set(CALLS) - {"paused"}


ASKED: dict[str, tuple[Callable[[RL], object], tuple[str, str, bytes | None]]] = {
    "workers": (lambda rl: rl.workers(), ("GET", "/v1/rl/workers", None)),
    "worker": (lambda rl: rl.worker("w0"), ("GET", "/v1/rl/workers/w0", None)),
    "call": (lambda rl: rl.call("w0", "a/b", {}), ("POST", "/v1/rl/workers/w0/engine/a/b", b"{}")),
    "fanout": (lambda rl: rl.fanout("a/b", {}, selector="x=y"), ("POST", "/v1/rl/engine/a/b?selector=x%3Dy", b"{}")),
}


def query_of(request: Request) -> str:
    return request.url.partition("?")[2]


@pytest.mark.parametrize(("call", "asked"), ASKED.values(), ids=ASKED)
def test_every_method_asks_its_route(call: Callable[[RL], object], asked: tuple[str, str, bytes | None]) -> None:
    rl, script = scripted(reply(200, {"workers": [], "id": "w0", "latency_ms": 0, **REPORT}))
    call(rl)
    request, (method, target, body) = only(script), asked
    assert (request.method, request.url, request.body) == (method, GATEWAY + target, body)
    assert request.headers == (ALWAYS if body is None else {**ALWAYS, **JSON_TYPE})


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


@EVERY_WAY
def test_a_client_travels_whole_before_and_after_its_first_call(way: Callable[[Any], Any]) -> None:
    options: dict[str, Any] = {"api_key": "sekret", "timeout": 5, "trust_env": True, "headers": {"X-Request-Id": "r1"}}
    rl = RL(GATEWAY, **options)
    used = RL(GATEWAY, **options)
    assert used.sender is used.sender
    assert vars(way(rl)) == vars(rl)
    assert vars(way(used)) == vars(rl)


@pytest.mark.parametrize(("key", "authenticated"), [("sekret", True), (None, False)])
def test_a_client_shows_itself_without_its_key(key: str | None, authenticated: bool) -> None:
    shown_as = f"RL('http://gateway:30000', authenticated={authenticated}, timeout=5)"
    rl = RL(GATEWAY, key, 5)
    assert (repr(rl), str(rl), f"{rl}") == (shown_as,) * 3
