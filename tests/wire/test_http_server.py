"""The HTTP layer of gateway and mock engines against raw bytes."""

import socket
import threading
from collections.abc import Generator, Iterator

import pytest

from reference_server.httpd.messages import BodyTooLarge, Reply, Request
from reference_server.httpd.server import HttpServer

LIMIT = 1000


def application(request: Request) -> Reply:
    if request.path == "/boom":
        raise KeyError("a bug")
    if request.path == "/stream":
        return Reply(200, stream=pieces())
    try:
        body = request.body.read(LIMIT)
    except BodyTooLarge:
        return Reply.of_text(413, "too large")
    return Reply.of_json(200, [request.method, request.path, request.query, len(body)])


def pieces() -> Generator[bytes, None, None]:
    yield b"ab"
    yield b""
    yield b"c"


@pytest.fixture
def server() -> Iterator[HttpServer]:
    running = HttpServer(application)
    running.start()
    yield running
    running.stop()


def exchange(server: HttpServer, sent: bytes) -> bytes:
    """Everything the server answers until it closes."""
    with socket.create_connection((server.host, server.port), timeout=10) as connection:
        connection.sendall(sent)
        received = bytearray()
        while piece := connection.recv(65536):
            received += piece
    return bytes(received)


def status(answer: bytes) -> int:
    assert answer.startswith(b"HTTP/1.1 "), answer
    return int(answer.split(b" ", 2)[1])


CLOSE = b"Connection: close\r\n"

UNDERSTOOD = [
    (b"GET /a?b=c HTTP/1.1\r\n" + CLOSE, b'["GET","/a","b=c",0]'),
    (b"get /a HTTP/1.1\r\n" + CLOSE, b'["get","/a","",0]'),
    (b"GET /a HTTP/1.0\r\n", b'["GET","/a","",0]'),
    (b"\r\n\r\nGET /a HTTP/1.1\r\n" + CLOSE, b'["GET","/a","",0]'),
    (b"GET http://elsewhere/a?b HTTP/1.1\r\n" + CLOSE, b'["GET","/a","b",0]'),
    (b"GET //a HTTP/1.1\r\n" + CLOSE, b'["GET","//a","",0]'),
    (b"GET /a#b HTTP/1.1\r\n" + CLOSE, b'["GET","/a","",0]'),
    (b'GET /a"b?c` HTTP/1.1\r\n' + CLOSE, rb'["GET","/a\"b","c`",0]'),
    (b"OPTIONS * HTTP/1.1\r\n" + CLOSE, b'["OPTIONS","*","",0]'),
    (b"GET /a HTTP/1.1\r\nContent-Type: multipart/form-data\r\n" + CLOSE, b'["GET","/a","",0]'),
]


@pytest.mark.parametrize(("head", "body"), UNDERSTOOD, ids=[head.decode()[:40] for head, _ in UNDERSTOOD])
def test_a_request_is_understood(server: HttpServer, head: bytes, body: bytes) -> None:
    assert exchange(server, head + b"\r\n").endswith(b"\r\n\r\n" + body)


REFUSED = [
    b"GET /a b HTTP/1.1\r\n",
    b"GET  /a HTTP/1.1\r\n",
    b"GET /a`b HTTP/1.1\r\n",
    b'GET /a?"b HTTP/1.1\r\n',
    b"GET /<a> HTTP/1.1\r\n",
    b"GET /\xff HTTP/1.1\r\n",
    b"GET /a\r\n",
    b"GET a HTTP/1.1\r\n",
    b"GET /a HTTP/2.0\r\n",
    b"G@T /a HTTP/1.1\r\n",
    b"GET /a HTTP/1.1\r\nX-A: b\r\n c\r\n",
    b"GET /a HTTP/1.1\r\nno colon\r\nX: y\r\n",
    b"GET /a HTTP/1.1\r\nX : y\r\n",
    b"GET /a HTTP/1.1\r\nX: a\x00b\r\n",
    b"POST /a HTTP/1.1\r\nContent-Length: 1x\r\n",
    b"POST /a HTTP/1.1\r\nContent-Length: 1\r\nContent-Length: 2\r\n",
    b"POST /a HTTP/1.1\r\nContent-Length: -1\r\n",
    b"POST /a HTTP/1.1\r\nTransfer-Encoding: gzip\r\n",
    b"POST /a HTTP/1.0\r\nTransfer-Encoding: chunked\r\n",
]


@pytest.mark.parametrize("head", REFUSED, ids=[repr(head)[2:44] for head in REFUSED])
def test_a_malformed_request_is_a_400_without_a_body_and_the_end_of_the_connection(
    server: HttpServer, head: bytes
) -> None:
    answer = exchange(server, head + b"\r\n")
    assert status(answer) == 400
    assert b"content-length: 0\r\n" in answer


def test_a_target_that_is_too_long_is_a_414(server: HttpServer) -> None:
    assert status(exchange(server, b"GET /" + b"a" * 70_000 + b" HTTP/1.1\r\n\r\n")) == 414


def test_too_many_headers_are_a_431(server: HttpServer) -> None:
    headers = b"".join(b"x-%d: y\r\n" % n for n in range(200))
    assert status(exchange(server, b"GET /a HTTP/1.1\r\n" + headers + b"\r\n")) == 431


def test_requests_in_one_packet_are_answered_in_order(server: HttpServer) -> None:
    first = b"POST /a HTTP/1.1\r\nContent-Length: 3\r\n\r\nabc"
    answer = exchange(server, first + b"GET /b HTTP/1.1\r\n" + CLOSE + b"\r\n")
    assert answer.index(b'["POST","/a","",3]') < answer.index(b'["GET","/b","",0]')


@pytest.mark.parametrize("chunks", [b"3\r\nabc\r\n0\r\n\r\n", b"1;x=y\r\na\r\n2\r\nbc\r\n0\r\nTrailer: t\r\n\r\n"])
def test_a_chunked_body_is_put_together(server: HttpServer, chunks: bytes) -> None:
    head = b"POST /a HTTP/1.1\r\nTransfer-Encoding: chunked\r\n" + CLOSE + b"\r\n"
    assert exchange(server, head + chunks).endswith(b'["POST","/a","",3]')


@pytest.mark.parametrize(
    "head", [b"Content-Length: 1000000\r\n", b"Transfer-Encoding: chunked\r\n"], ids=["announced", "chunked"]
)
def test_a_caller_that_is_still_sending_reads_the_refusal_of_its_body(server: HttpServer, head: bytes) -> None:
    body = b"x" * 1_000_000 if b"Length" in head else b"f4240\r\n" + b"x" * 1_000_000 + b"\r\n0\r\n\r\n"
    answer = exchange(server, b"POST /a HTTP/1.1\r\n" + head + b"\r\n" + body)
    assert status(answer) == 413
    assert answer.endswith(b"too large")


def test_100_continue_is_said_only_when_the_body_is_wanted(server: HttpServer) -> None:
    expect = b"Expect: 100-continue\r\n" + CLOSE
    wanted = exchange(server, b"POST /a HTTP/1.1\r\nContent-Length: 0\r\n" + expect + b"\r\n")
    refused = exchange(server, b"POST /a HTTP/1.1\r\nContent-Length: 5000\r\n" + expect + b"\r\n")
    assert status(wanted) == 200
    assert status(refused) == 413
    with socket.create_connection((server.host, server.port), timeout=10) as connection:
        connection.sendall(b"POST /a HTTP/1.1\r\nContent-Length: 2\r\n" + expect + b"\r\n")
        assert connection.recv(1000) == b"HTTP/1.1 100 Continue\r\n\r\n"
        connection.sendall(b"ab")
        assert status(connection.recv(1000)) == 200


def test_head_has_the_length_and_no_body(server: HttpServer) -> None:
    answer = exchange(server, b"HEAD /a HTTP/1.1\r\n" + CLOSE + b"\r\n")
    assert b"content-length: 18\r\n" in answer
    assert answer.endswith(b"\r\n\r\n")


def test_a_stream_is_sent_in_chunks_or_until_the_end_to_an_old_client(server: HttpServer) -> None:
    new = exchange(server, b"GET /stream HTTP/1.1\r\n" + CLOSE + b"\r\n")
    old = exchange(server, b"GET /stream HTTP/1.0\r\n\r\n")
    assert new.endswith(b"\r\n\r\n2\r\nab\r\n1\r\nc\r\n0\r\n\r\n")
    assert old.endswith(b"\r\n\r\nabc")


def test_a_bug_in_the_application_is_a_500_and_is_remembered(server: HttpServer) -> None:
    answer = exchange(server, b"GET /boom HTTP/1.1\r\n" + CLOSE + b"\r\n")
    assert status(answer) == 500
    assert [str(failure) for failure in server.failures] == ["'a bug'"]


def test_64_connections_at_the_same_moment_are_all_answered(server: HttpServer) -> None:
    answers: list[bytes] = []
    start = threading.Barrier(64)

    def call() -> None:
        start.wait()
        answers.append(exchange(server, b"GET /a HTTP/1.1\r\n" + CLOSE + b"\r\n"))

    threads = [threading.Thread(target=call) for _ in range(64)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert [status(answer) for answer in answers] == [200] * 64


def test_stopping_closes_idle_connections_and_leaves_no_thread() -> None:
    before = threading.active_count()
    server = HttpServer(application)
    server.start()
    with socket.create_connection((server.host, server.port), timeout=10) as idle:
        idle.sendall(b"GET /a HTTP/1.1\r\n\r\n")
        assert status(idle.recv(1000)) == 200
        server.stop()
        assert idle.recv(1000) == b""
    assert threading.active_count() == before
    with pytest.raises(ConnectionRefusedError):
        exchange(server, b"GET /a HTTP/1.1\r\n\r\n")


def test_stopping_lets_a_running_request_finish() -> None:
    entered, release = threading.Event(), threading.Event()

    def slow(request: Request) -> Reply:
        entered.set()
        release.wait(30)
        return Reply.of_text(200, "done")

    server = HttpServer(slow)
    server.start()
    answers: list[bytes] = []
    caller = threading.Thread(target=lambda: answers.append(exchange(server, b"GET /a HTTP/1.1\r\n\r\n")))
    caller.start()
    assert entered.wait(30)
    stopper = threading.Thread(target=server.stop, args=(30,))
    stopper.start()
    release.set()
    stopper.join(30)
    caller.join(30)
    assert answers[0].endswith(b"done")
