"""One engine without a gateway: resumed at its own address, and asked whether it runs.

For the night in which no gateway knows an engine that is left paused.
"""

import json
import time

from . import answers, encoding
from .deadline import Secret
from .engines import ENGINES, UNKNOWN_STATUS, UNREACHABLE, EngineFacts
from .messages import Failure, Response
from .results import CallResult, Json
from .transport import Transport


def resume(url: str, kind: str, key: str | None, timeout: float) -> tuple[CallResult, str]:
    """Resume the engine at `url`, of a kind; its answer, and its status afterwards.

    `key` is the engine's own, sent as a bearer token; `timeout` is seconds for each request.
    Raises `ValueError` for what is no URL of an engine, `RlError` when it does not answer.
    """
    engine = _Engine(url, ENGINES[kind], key, timeout)
    return engine.resume(), engine.status()


class _Engine:
    def __init__(self, url: str, facts: EngineFacts, key: str | None, timeout: float) -> None:
        self._url, self._facts, self._key, self._timeout = encoding.base_url(url), facts, encoding.api_key(key), timeout
        secret = Secret(self._key) if self._key else None
        tls = self._url.startswith("https:")
        self._sender = Transport(tls=tls, ssl_context=None, trust_env=False, secret=secret)

    def resume(self) -> CallResult:
        routes = self._facts.pause
        if routes is None:
            raise ValueError("engines of this kind cannot be paused")
        started = time.monotonic()
        sent = self._send("POST", routes.resume, routes.resume_body)
        if isinstance(sent, Failure):
            raise answers.failure(sent, f"POST {self._url}/{routes.resume}", self._hide)
        return CallResult("", self._url, sent.status, int((time.monotonic() - started) * 1000), _body(sent))

    def status(self) -> str:
        reading = self._facts.status
        said: list[tuple[int, object]] = []
        for route in reading.routes if reading else ():
            sent = self._send("GET", route, None)
            if isinstance(sent, Failure):
                return UNREACHABLE
            said.append((sent.status, _body(sent)))
            if reading and (status := reading.judge(said)):
                return status
        return UNKNOWN_STATUS

    def _send(self, method: str, route: str, body: object) -> Response | Failure:
        request = encoding.request(method, f"{self._url}/{route}", (), body, {})
        return self._sender.send(request, self._timeout)

    def _hide(self, text: str) -> str:
        return text.replace(self._key, "***") if self._key else text


def _body(response: Response) -> Json:
    text = response.body.decode("utf-8", "replace")
    try:
        value: Json = json.loads(text)
    except (ValueError, RecursionError):
        return text
    return value
