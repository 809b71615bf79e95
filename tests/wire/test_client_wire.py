"""The bytes that RL sends, and the forms of an answer that it takes."""

import concurrent.futures
import socket

import pytest

from smg import __version__
from smg.rl import RL, RlError, Worker, paused
from smg.rl.encoding import Param

from ..support.misbehaving_server import Received, answer, answering, keeping, refusing_early
from ..support.scripted_sender import ROW
from ..support.wire_answers import CALLED, FANNED_OUT, LISTING, Serve

WORKERS = b'{"workers": []}'
CHUNKED = b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n"

# What tells where the answer ends; nobody has to wait for the connection to do so.
FRAMED: dict[str, bytes] = {
    "length": answer(200, WORKERS),
    "odd case": b"HTTP/1.1 200\r\ncontent-LENGTH:15\r\n\r\n" + WORKERS,
    "chunks": CHUNKED + b"1\r\n{\r\nE;ext=1\r\n" + WORKERS[1:] + b"\r\n0\r\n\r\n",
    "trailers": CHUNKED + b"f\r\n" + WORKERS + b"\r\n0\r\nX-Sum: 1\r\n\r\n",
    "many headers": answer(200, WORKERS, *["X-Any: 1"] * 90),
    "100 first": b"HTTP/1.1 100 Continue\r\n\r\n" + answer(200, WORKERS),
    "102 first": b"HTTP/1.1 102 Processing\r\nX-Progress: 1\r\n\r\n" * 3 + answer(200, WORKERS),
    "103 first": b"HTTP/1.1 103 Early Hints\r\nLink: </x>\r\n\r\n" + answer(200, WORKERS),
}

UNFRAMED: dict[str, bytes] = {
    "HTTP/1.1": b"HTTP/1.1 200 OK\r\n\r\n" + WORKERS,
    "HTTP/1.0": b"HTTP/1.0 200 OK\r\nContent-Type: application/json\r\n\r\n" + WORKERS,
}

BODILESS: list[tuple[str, bytes]] = [
    ("POST", answer(204)),
    ("POST", b"HTTP/1.1 204 No Content\r\n\r\n"),
    ("GET", b"HTTP/1.1 304 Not Modified\r\nContent-Length: 500\r\n\r\n"),
    ("HEAD", answer(200, length=500)),
    ("HEAD", b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n"),
]


def test_a_request_is_these_bytes_and_no_others(serve: Serve) -> None:
    server = serve(keeping(CALLED))
    rl = RL(server.url + "/smg/", "the-key", headers={"x-request-id": "r1"})
    params: dict[str, Param] = {"tags": ["a b", "c"], "force": True}
    rl.call("w 0", "/v1/load", {"name": "é"}, params=params)
    (request,) = server.received(1)
    assert request.line == "POST /smg/v1/rl/workers/w%200/engine/v1/load?tags=a+b&tags=c&force=true HTTP/1.1"
    assert sorted(request.headers) == [
        ("Accept", "application/json"),
        ("Accept-Encoding", "identity"),
        ("Authorization", "Bearer the-key"),
        ("Connection", "close"),
        ("Content-Length", "18"),
        ("Content-Type", "application/json"),
        ("Host", server.authority),
        ("User-Agent", f"smg-rl/{__version__}"),
        ("X-Request-Id", "r1"),
    ]
    assert request.body == rb'{"name": "\u00e9"}'


@pytest.mark.parametrize("method", ["POST", "GET", "HEAD"])
def test_a_request_without_body_and_key_says_so(serve: Serve, method: str) -> None:
    server = serve(keeping(CALLED if method != "HEAD" else answer(200)))
    RL(server.url).call("w0", "flush_cache", method=method)
    (request,) = server.received(1)
    assert request.line == f"{method} /v1/rl/workers/w0/engine/flush_cache HTTP/1.1"
    length = [("Content-Length", "0")] if method == "POST" else []
    assert sorted(request.headers) == [
        ("Accept", "application/json"),
        ("Accept-Encoding", "identity"),
        ("Connection", "close"),
        *length,
        ("Host", server.authority),
        ("User-Agent", f"smg-rl/{__version__}"),
    ]
    assert request.body == b""


def test_a_fan_out_and_the_listing_ask_their_routes(serve: Serve) -> None:
    server = serve(keeping(FANNED_OUT), keeping(LISTING), keeping(answer(200, b'{"id": "w0"}')))
    rl = RL(server.url)
    rl.fanout("pause_generation", {}, selector="engine=sglang, zone in (a,b)")
    assert rl.workers() == [Worker(**ROW)]
    assert rl.worker("w0").id == "w0"
    assert [request.line for request in server.received(3)] == [
        "POST /v1/rl/engine/pause_generation?selector=engine%3Dsglang%2C+zone+in+%28a%2Cb%29 HTTP/1.1",
        "GET /v1/rl/workers HTTP/1.1",
        "GET /v1/rl/workers/w0 HTTP/1.1",
    ]


def test_every_call_has_a_connection_of_its_own(serve: Serve) -> None:
    server = serve(keeping(FANNED_OUT))
    with RL(server.url) as rl, paused(rl, "a=b", mode="abort"):
        rl.fanout("flush_cache", {}, selector="a=b")
    requests = server.received(3)
    assert [(dict(request.headers)["Connection"], request.body) for request in requests] == [
        *(("close", b'{"mode": "abort"}'), ("close", b"{}"), ("close", b"{}"))
    ]
    assert server.connections == 3


def test_threads_share_a_client(serve: Serve) -> None:
    server = serve(answering(CALLED))
    rl = RL(server.url)
    with concurrent.futures.ThreadPoolExecutor(8) as threads:
        results = list(threads.map(lambda number: rl.call("w0", "x", {"number": number}), range(24)))
    assert [result.status for result in results] == [200] * 24
    assert sorted(int(request.body[11:-1]) for request in server.received(24)) == list(range(24))


@pytest.mark.parametrize("data", FRAMED.values(), ids=FRAMED)
def test_an_answer_ends_where_it_says(serve: Serve, data: bytes) -> None:
    assert RL(serve(keeping(data)).url).workers() == []


@pytest.mark.parametrize("data", UNFRAMED.values(), ids=UNFRAMED)
def test_an_answer_that_does_not_say_ends_with_its_connection(serve: Serve, data: bytes) -> None:
    assert RL(serve(answering(data)).url).workers() == []


@pytest.mark.parametrize(("method", "data"), BODILESS, ids=[f"{method} {data[9:12]!r}" for method, data in BODILESS])
def test_an_answer_that_has_no_body_is_not_waited_for(serve: Serve, method: str, data: bytes) -> None:
    result = RL(serve(keeping(data)).url).call("w0", "x", method=method)
    assert (result.worker_id, result.status, result.body) == ("w0", int(data[9:12]), "")


def test_a_large_answer_arrives_whole(serve: Serve) -> None:
    server = serve(keeping(answer(200, b'{"latency_ms": 1, "body": "' + b"x" * (8 << 20) + b'"}')))
    assert RL(server.url).call("w0", "x").body == "x" * (8 << 20)


def test_a_large_body_arrives_whole(serve: Serve) -> None:
    server = serve(keeping(CALLED))
    RL(server.url).call("w0", "x", "x" * (16 << 20))
    (request,) = server.received(1)
    assert request.body == b'"' + b"x" * (16 << 20) + b'"'


@pytest.mark.parametrize(("said", "code"), [(b'{"error": "too_large"}', "too_large"), (b"", "http_error")])
def test_a_refusal_before_the_body_is_sent_is_seen(serve: Serve, said: bytes, code: str) -> None:
    server = serve(refusing_early(answer(413, said, "Connection: close")))
    with pytest.raises(RlError, match="--max-payload-size") as caught:
        RL(server.url).call("w0", "x", "x" * (16 << 20))
    assert (type(caught.value), caught.value.status, caught.value.code) == (RlError, 413, code)


def test_an_ipv6_address_works_and_its_host_header_has_brackets(serve: Serve) -> None:
    try:
        server = serve(keeping(LISTING), host="::1")
    except OSError as error:
        pytest.skip(f"this machine has no IPv6: {error}")
    assert RL(server.url).workers() == [Worker(**ROW)]
    (request,) = server.received(1)
    assert dict(request.headers)["Host"] == f"[::1]:{server.port}"


def test_the_next_address_of_a_name_is_tried(serve: Serve, monkeypatch: pytest.MonkeyPatch) -> None:
    server = serve(keeping(LISTING))
    with socket.socket() as unused:
        unused.bind(("127.0.0.1", 0))  # bound, not listening: refuses
        addresses = [unused.getsockname(), ("127.0.0.1", server.port)]
        found = [(socket.AF_INET, socket.SOCK_STREAM, 6, "", address) for address in addresses]
        monkeypatch.setattr(socket, "getaddrinfo", lambda *args, **options: found)
        assert RL("http://gateway.test:30000").workers() == [Worker(**ROW)]
    assert dict(server.received(1)[0].headers)["Host"] == "gateway.test:30000"


def keys(request: Received) -> list[str]:
    return [value for name, value in request.headers if name == "Authorization"]


@pytest.mark.parametrize("key", ["0123456789abcdef", "~!@#$%^&*()+/=", "", None])
def test_the_key_is_a_bearer_token(serve: Serve, key: str | None) -> None:
    server = serve(keeping(LISTING))
    RL(server.url, key).workers()
    assert keys(server.received(1)[0]) == ([f"Bearer {key}"] if key else [])
