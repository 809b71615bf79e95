"""https: whom the client trusts, and that its deadline holds there too."""

import ssl
import time

import pytest
import trustme

from smg.rl import RL, RlConnectionError, RlError, RlTimeoutError, Worker, paused

from ..support.certificates import certified, trusting
from ..support.misbehaving_server import (
    Peer,
    Script,
    answer,
    answering,
    deaf,
    dripping,
    hanging_up,
    keeping,
    refusing_early,
    silent,
)
from ..support.scripted_sender import ROW
from ..support.wire_answers import FANNED_OUT, LISTING, Serve

STRANGER = trustme.CA()


def test_a_private_authority_is_trusted_through_ssl_context(serve: Serve) -> None:
    server = serve(keeping(LISTING), tls=certified("127.0.0.1"))
    assert RL(server.url, "the-key", ssl_context=trusting()).workers() == [Worker(**ROW)]
    (request,) = server.received(1)
    assert dict(request.headers)["Host"] == server.authority
    assert dict(request.headers)["Authorization"] == "Bearer the-key"


def test_a_fan_out_is_sent_and_its_body_arrives_whole(serve: Serve) -> None:
    server = serve(keeping(FANNED_OUT), tls=certified("127.0.0.1"))
    with paused(RL(server.url, ssl_context=trusting()), "a=b") as result:
        assert result.succeeded == 1
    assert [request.body for request in server.received(2)] == [b"{}", b"{}"]
    big = serve(keeping(FANNED_OUT), tls=certified("127.0.0.1"))
    RL(big.url, ssl_context=trusting()).fanout("x", "x" * (4 << 20), selector="a=b")
    assert len(big.received(1)[0].body) == (4 << 20) + 2


@pytest.mark.parametrize(
    ("server_context", "client_context"),
    [
        (certified("127.0.0.1", by=STRANGER), trusting()),
        (certified("127.0.0.1"), None),
        (certified("gateway.example"), trusting()),
        (certified("127.0.0.2"), trusting()),
    ],
    ids=["another authority", "no context", "another name", "another address"],
)
def test_an_unknown_authority_or_name_is_a_failed_connection(
    serve: Serve, server_context: ssl.SSLContext, client_context: ssl.SSLContext | None
) -> None:
    server = serve(keeping(LISTING), tls=server_context)
    with pytest.raises(RlConnectionError, match="the certificate is not trusted") as caught:
        RL(server.url, "the-key", ssl_context=client_context).workers()
    assert (caught.value.status, caught.value.code) == (0, "connection_failed")
    assert server.received(0) == [], "nothing was asked of a stranger"


def test_a_tunnel_of_a_proxy_leads_to_the_gateway(serve: Serve, monkeypatch: pytest.MonkeyPatch) -> None:
    context = certified("gateway.test")

    def tunnel(peer: Peer) -> None:
        peer.receive()
        peer.send(b"HTTP/1.1 200 Connection established\r\n\r\n")
        with (inside := peer.over_tls(context)).connection:
            inside.receive()
            inside.send(LISTING)
            inside.until_gone()

    proxy = serve(tunnel)
    for name in ("https_proxy", "HTTPS_PROXY", "no_proxy", "NO_PROXY"):
        monkeypatch.setenv(name, proxy.url if name.startswith("https") else "")
    rl = RL("https://gateway.test:30000", "the-key", ssl_context=trusting(), trust_env=True)
    assert rl.workers() == [Worker(**ROW)]
    asked, request = proxy.received(2)
    assert asked.line.startswith("CONNECT gateway.test:30000 ")
    assert b"the-key" not in asked.head
    assert request.line == "GET /v1/rl/workers HTTP/1.1"
    assert dict(request.headers)["Host"] == "gateway.test:30000"
    assert dict(request.headers)["Authorization"] == "Bearer the-key"


def test_a_server_without_tls_is_a_failed_connection(serve: Serve) -> None:
    def no_http(peer: Peer) -> None:
        assert peer.waits()
        peer.send(answer(400))
        peer.until_gone()

    server = serve(no_http)
    with pytest.raises(RlConnectionError, match="SSL") as caught:
        RL(server.url.replace("http:", "https:")).workers()
    assert caught.value.code == "connection_failed"


def test_a_server_with_tls_that_is_asked_without_is_a_bad_response(serve: Serve) -> None:
    server = serve(keeping(LISTING), tls=certified("127.0.0.1"))
    with pytest.raises(RlConnectionError) as caught:
        RL(server.url.replace("https:", "http:")).workers()
    assert caught.value.code == "bad_response"


def test_a_connection_that_breaks_is_a_bad_response(serve: Serve) -> None:
    server = serve(hanging_up, answering(answer(200, b"{", length=9)), tls=certified("127.0.0.1"))
    rl = RL(server.url, ssl_context=trusting())
    for _ in range(2):
        with pytest.raises(RlConnectionError) as caught:
            rl.workers()
        assert caught.value.code == "bad_response"


def test_a_refusal_before_the_body_is_sent_is_seen(serve: Serve) -> None:
    server = serve(refusing_early(answer(413, b"", "Connection: close")), tls=certified("127.0.0.1"))
    with pytest.raises(RlError, match="--max-payload-size") as caught:
        RL(server.url, ssl_context=trusting()).call("w0", "x", "x" * (16 << 20))
    assert caught.value.status == 413


@pytest.mark.parametrize(
    "script",
    [silent, dripping(b"HTTP/1.1 200 OK\r\n", b"X-Any: 1\r\n"), dripping(answer(200, length=1_000), b"x")],
    ids=["no answer", "a dripping head", "a dripping body"],
)
def test_the_deadline_holds(serve: Serve, script: Script) -> None:
    server = serve(script, tls=certified("127.0.0.1"))
    started = time.monotonic()
    with pytest.raises(RlTimeoutError):
        RL(server.url, ssl_context=trusting(), timeout=0.3).workers()
    assert time.monotonic() - started < 5


def test_it_holds_for_a_handshake_that_never_finishes(serve: Serve) -> None:
    server = serve(deaf)
    started = time.monotonic()
    with pytest.raises(RlTimeoutError):
        RL(server.url.replace("http:", "https:"), timeout=0.3).workers()
    assert time.monotonic() - started < 5
