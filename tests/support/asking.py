"""Asking a gateway or an engine over HTTP, one request a connection."""

import contextlib
import http.client
import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Protocol
from urllib.parse import urlsplit

from .waiting import WAIT_SECONDS

JSON = {"content-type": "application/json"}


class Served(Protocol):
    """A gateway, a mock engine: whatever has a URL."""

    @property
    def url(self) -> str: ...


@dataclass(frozen=True)
class Answer:
    """Header names are in lower case."""

    status: int
    headers: dict[str, str]
    body: bytes

    @property
    def type(self) -> str | None:
        return self.headers.get("content-type")

    @property
    def json(self) -> Any:
        return json.loads(self.body)

    @property
    def events(self) -> list[Any]:
        """The events of a stream, which must end with `[DONE]`."""
        *events, done, rest = self.body.decode().split("\n\n")
        assert (done, rest) == ("data: [DONE]", "")
        return [json.loads(event.removeprefix("data: ")) for event in events]


def address_of(server: Served | str) -> tuple[str, int]:
    parts = urlsplit(server if isinstance(server, str) else server.url)
    return parts.hostname or "", parts.port or 80


def connect(server: Served | str) -> http.client.HTTPConnection:
    return http.client.HTTPConnection(*address_of(server), timeout=WAIT_SECONDS)


def ask(
    server: Served | str, method: str, path: str, body: object = None, headers: Mapping[str, str] | None = None
) -> Answer:
    """One request; a body that is not bytes goes as JSON."""
    sent = dict(headers or {})
    if body is not None and not isinstance(body, bytes):
        body, sent = json.dumps(body).encode(), {**JSON, **sent}
    with contextlib.closing(connect(server)) as connection:
        connection.request(method, path, body, sent)
        answer = connection.getresponse()
        return Answer(answer.status, {name.lower(): value for name, value in answer.getheaders()}, answer.read())


def post(server: Served | str, path: str, body: object = None) -> Answer:
    return ask(server, "POST", path, body)
