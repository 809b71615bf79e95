"""Where a request does not go: after a redirect, and through a proxy that nobody chose."""

import time
from collections.abc import Callable

import pytest

from smg.rl import RL, RlError, RlTimeoutError

from ..support.calls import CALLS
from ..support.misbehaving_server import answer, answering, dripping, hanging_up, keeping
from ..support.wire_answers import LISTING, Serve

VARIABLES = ["http_proxy", "https_proxy", "all_proxy", "no_proxy"]
NOBODY = "http://127.0.0.1:9"


@pytest.fixture
def environment(monkeypatch: pytest.MonkeyPatch) -> pytest.MonkeyPatch:
    """An environment without any proxy."""
    for name in (*VARIABLES, *map(str.upper, VARIABLES), "REQUEST_METHOD"):
        monkeypatch.delenv(name, raising=False)
    return monkeypatch


@pytest.mark.parametrize("name", CALLS)
@pytest.mark.parametrize("status", [301, 302, 303, 307, 308])
def test_a_redirect_to_another_host_is_told_and_not_followed(serve: Serve, status: int, name: str) -> None:
    other = serve(keeping(LISTING))
    server = serve(keeping(answer(status, b"", f"Location: {other.url}/v1/rl/workers")))
    with pytest.raises(RlError, match=f"redirect to {other.url}/v1/rl/workers, which is not followed") as caught:
        CALLS[name](RL(server.url, "the-key"), 20)
    assert (caught.value.status, caught.value.code) == (status, "unexpected_response")
    assert server.connections == (2 if name == "paused" else 1)
    assert other.connections == 0, "the key went there"


@pytest.mark.parametrize("location", ["/v1/rl/workers/", "//127.0.0.1/x", "file:///etc/passwd", ""])
def test_nor_is_one_to_the_same_host(serve: Serve, location: str) -> None:
    server = serve(keeping(answer(307, b"", f"Location: {location}")), keeping(LISTING))
    with pytest.raises(RlError, match="unexpected_response"):
        RL(server.url, "the-key").workers()
    assert server.connections == 1


def test_a_redirect_of_the_engine_is_its_answer(serve: Serve) -> None:
    envelope = b'{"worker_id": "w0", "url": "u", "status": 307, "latency_ms": 1, "body": ""}'
    server = serve(keeping(answer(307, envelope)))
    assert RL(server.url).call("w0", "pause_generation", {}).status == 307


@pytest.mark.parametrize("name", [*VARIABLES[:3], *map(str.upper, VARIABLES[:3])])
def test_a_proxy_of_the_environment_is_not_used(serve: Serve, environment: pytest.MonkeyPatch, name: str) -> None:
    environment.setenv(name, NOBODY)
    assert len(RL(serve(keeping(LISTING)).url).workers()) == 1


@pytest.mark.parametrize("name", ["http_proxy", "HTTP_PROXY"])
def test_it_is_with_trust_env(serve: Serve, environment: pytest.MonkeyPatch, name: str) -> None:
    server, proxy = serve(hanging_up), serve(keeping(LISTING))
    environment.setenv(name, proxy.url)
    assert len(RL(server.url, "the-key", trust_env=True).workers()) == 1
    (request,) = proxy.received(1)
    assert request.line == f"GET {server.url}/v1/rl/workers HTTP/1.1"
    assert dict(request.headers)["Host"] == server.authority
    assert dict(request.headers)["Authorization"] == "Bearer the-key"
    assert server.connections == 0


@pytest.mark.parametrize("name", ["no_proxy", "NO_PROXY"])
def test_with_trust_env_the_exceptions_count_too(serve: Serve, environment: pytest.MonkeyPatch, name: str) -> None:
    environment.setenv("http_proxy", NOBODY)
    environment.setenv(name, "example.com,127.0.0.1")
    assert len(RL(serve(keeping(LISTING)).url, trust_env=True).workers()) == 1


def test_without_a_proxy_trust_env_changes_nothing(serve: Serve, environment: pytest.MonkeyPatch) -> None:
    assert len(RL(serve(keeping(LISTING)).url, trust_env=True).workers()) == 1


def through_a_tunnel(proxy_url: str, environment: pytest.MonkeyPatch) -> Callable[[], object]:
    environment.setenv("https_proxy", proxy_url)
    return RL("https://gateway.test:30000", "the-key", trust_env=True, timeout=0.3).workers


def test_a_proxy_that_refuses_a_tunnel_was_asked_nothing_else(serve: Serve, environment: pytest.MonkeyPatch) -> None:
    proxy = serve(answering(answer(403)))
    with pytest.raises(RlError, match="403") as caught:
        through_a_tunnel(proxy.url, environment)()
    assert caught.value.code == "connection_failed"
    (request,) = proxy.received(1)
    assert request.line.startswith("CONNECT gateway.test:30000 HTTP/1.")
    assert b"the-key" not in request.head


def test_the_deadline_holds_for_a_tunnel_too(serve: Serve, environment: pytest.MonkeyPatch) -> None:
    proxy = serve(dripping(b"HTTP/1.1 200 OK\r\n", b"X-Any: 1\r\n"))
    started = time.monotonic()
    with pytest.raises(RlTimeoutError):
        through_a_tunnel(proxy.url, environment)()
    assert time.monotonic() - started < 5
