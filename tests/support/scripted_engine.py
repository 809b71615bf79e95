"""What the stories share: scripted engines, a plain HTTP call, waiting for a condition."""

import contextlib
import http.client
import json
import socket
import threading
import time
from collections.abc import Callable, Generator, Iterator
from dataclasses import dataclass, field
from typing import Any
from urllib.parse import urlsplit

from reference_server.httpd.messages import Reply, Request
from reference_server.httpd.server import HttpServer

WAIT_SECONDS = 30.0


def wait_until(condition: Callable[[], bool], what: str) -> None:
    """Wait for something that happens in another thread; fails after a long time."""
    end = time.monotonic() + WAIT_SECONDS
    while not condition():
        assert time.monotonic() < end, f"waited in vain until {what}"
        time.sleep(0.002)


@dataclass(frozen=True)
class Answer:
    status: int
    headers: dict[str, str]
    body: bytes

    @property
    def json(self) -> Any:
        return json.loads(self.body)


def ask(url: str, method: str, path: str, body: object = None, **headers: str) -> Answer:
    """One request on a connection of its own."""
    parts = urlsplit(url)
    connection = http.client.HTTPConnection(parts.hostname or "", parts.port, timeout=WAIT_SECONDS)
    with contextlib.closing(connection):
        sent = body if body is None or isinstance(body, bytes) else json.dumps(body).encode()
        if body is not None:
            headers.setdefault("content_type", "application/json")
        named = {name.replace("_", "-"): value for name, value in headers.items()}
        connection.request(method, path, sent, named)
        answer = connection.getresponse()
        return Answer(answer.status, {k.lower(): v for k, v in answer.getheaders()}, answer.read())


@contextlib.contextmanager
def raw(url: str) -> Iterator[socket.socket]:
    """A bare connection to a server."""
    parts = urlsplit(url)
    with socket.create_connection((parts.hostname, parts.port or 80), timeout=WAIT_SECONDS) as connection:
        yield connection


@dataclass
class ScriptedEngine:
    """An engine that answers discovery like SGLang and holds every other request.

    `entered` counts the held requests, `left` those whose caller hung up; `release`
    lets them, and all later ones, be answered with 200 `{}`.
    """

    prefix: str = ""
    held: list[str] = field(default_factory=list)
    left: list[str] = field(default_factory=list)
    released: threading.Event = field(default_factory=threading.Event)
    free: frozenset[str] = frozenset()

    def __post_init__(self) -> None:
        self._server = HttpServer(self._answer)

    def __enter__(self) -> "ScriptedEngine":
        self._server.start()
        return self

    def __exit__(self, *error: object) -> None:
        self._server.stop(cut=self.released.set)
        assert self._server.failures == []

    @property
    def url(self) -> str:
        return self._server.url

    def release(self) -> None:
        self.released.set()

    def _answer(self, request: Request) -> Reply:
        known = {"/v1/models": {"data": [{"id": "m", "owned_by": "sglang"}]}, "/server_info": {"version": "1"}}
        path = request.path.removeprefix(self.prefix)
        if path in known:
            return Reply.of_json(200, known[path])
        request.body.read(1 << 30)
        if path in ("/health", "/model_info") or path in self.free:
            return Reply.of_json(200, {})
        self.held.append(path)
        while not self.released.wait(0.01):
            if request.caller.gone():
                self.left.append(path)
                return Reply(0)
        return Reply.of_json(200, {})


def streaming(pieces: Callable[[], Generator[bytes, None, None]]) -> Callable[[Request], Reply]:
    """An application whose `/generate` streams; discovery as SGLang's."""

    def answer(request: Request) -> Reply:
        request.body.read(1 << 20)
        if request.path == "/generate":
            return Reply(200, (("content-type", "text/event-stream"),), stream=pieces())
        return Reply.of_json(200, {"data": [{"id": "m", "owned_by": "sglang"}]})

    return answer
