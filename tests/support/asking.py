"""Asking a mock engine over HTTP, and the fixtures for it."""

import contextlib
import http.client
import json
import socket
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass
from typing import Any

import pytest

from reference_server import ManualTicks, MockEngine

JSON = {"content-type": "application/json"}
PROMPT = {"text": "w1 w2 w3"}


@dataclass(frozen=True)
class Answer:
    status: int
    type: str | None
    headers: dict[str, str]
    body: bytes

    @property
    def json(self) -> Any:
        return json.loads(self.body)

    @property
    def events(self) -> list[Any]:
        """The events of a stream, which must end with `[DONE]`."""
        *events, done, rest = self.body.decode().split("\n\n")
        assert (done, rest) == ("data: [DONE]", "")
        return [json.loads(event.removeprefix("data: ")) for event in events]


def connect(engine: MockEngine) -> http.client.HTTPConnection:
    return http.client.HTTPConnection(engine.url.removeprefix("http://"), timeout=30)


def ask(engine: MockEngine, method: str, path: str, body: object = None, headers: object = None) -> Answer:
    """One request; a body that is not bytes goes as JSON."""
    sent = dict(headers or {})  # type: ignore[call-overload]  # an object, to keep the tables below short
    if body is not None and not isinstance(body, bytes):
        body, sent = json.dumps(body).encode(), {**JSON, **sent}
    with contextlib.closing(connect(engine)) as connection:
        connection.request(method, path, body, sent)
        answer = connection.getresponse()
        lower = {name.lower(): value for name, value in answer.getheaders()}
        return Answer(answer.status, answer.getheader("content-type"), lower, answer.read())


def post(engine: MockEngine, path: str, body: object = None) -> Answer:
    return ask(engine, "POST", path, {} if body is None else body)


def generate(engine: MockEngine, **fields: object) -> Any:
    answer = post(engine, "/generate", {**PROMPT, **fields})
    assert answer.status == 200, answer
    return answer.json


def refit(engine: MockEngine, path: str, version: str | None = None, **fields: object) -> Answer:
    return post(engine, "/update_weights_from_disk", {"model_path": path, "weight_version": version, **fields})


def spans(*parts: tuple[str, int, int]) -> list[dict[str, object]]:
    return [{"version": version, "start": start, "end": end} for version, start, end in parts]


Aside = Callable[..., "Future[Any]"]


@pytest.fixture
def aside() -> Iterator[Aside]:
    """Call something that waits, in another thread. The engines stop before this pool waits for its threads."""
    with ThreadPoolExecutor(80) as pool:
        yield pool.submit


@pytest.fixture
def engine(aside: Aside) -> Iterator[MockEngine]:
    """An engine that answers as fast as it can."""
    with MockEngine("sglang", model_path="step-1", weight_version="1") as engine:
        yield engine
        engine.check()


@pytest.fixture
def ticks() -> ManualTicks:
    return ManualTicks()


@pytest.fixture
def slow(aside: Aside, ticks: ManualTicks) -> Iterator[MockEngine]:
    """An engine that generates only when `ticks` are stepped."""
    with MockEngine("sglang", model_path="step-1", weight_version="1", ticks=ticks) as engine:
        yield engine
        engine.check()


def begun(engine: MockEngine, aside: Aside, count: int = 1, **fields: object) -> list["Future[Any]"]:
    """Generations in flight."""
    before = engine.in_flight
    futures = [aside(generate, engine, **fields) for _ in range(count)]
    engine.wait_until(lambda: engine.in_flight == before + count)
    return futures


def port_of(engine: MockEngine) -> int:
    return int(engine.url.rpartition(":")[2])


@contextlib.contextmanager
def hung(engine: MockEngine, path: str, body: object) -> Iterator[socket.socket]:
    """A request whose connection is closed on leaving."""
    data = json.dumps(body).encode()
    head = f"POST {path} HTTP/1.1\r\nhost: x\r\ncontent-type: application/json\r\ncontent-length: {len(data)}\r\n\r\n"
    with socket.create_connection(("127.0.0.1", port_of(engine)), timeout=30) as connection:
        connection.sendall(head.encode() + data)
        yield connection
