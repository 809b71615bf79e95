"""Engines that a test scripts: one that holds what it is asked, one that streams as told."""

import threading
from collections.abc import Callable, Generator
from dataclasses import dataclass, field

from reference_server.httpd.messages import Reply, Request
from reference_server.httpd.server import HttpServer


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
