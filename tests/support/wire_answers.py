"""What the tests of the client ask their server for, and what it answers when it behaves."""

import json
import ssl
from typing import Protocol

from .misbehaving_server import Script, Server, answer
from .scripted_sender import ENVELOPE, REPORT, ROW


class Serve(Protocol):
    """The fixture `serve`: a running server that plays these scripts."""

    def __call__(self, *scripts: Script, host: str = ..., tls: ssl.SSLContext | None = ...) -> Server: ...


def wrapped(value: object) -> bytes:
    return answer(200, json.dumps(value).encode())


LISTING = wrapped({"protocol_version": 1, "workers": [ROW], "total": 1})
CALLED = wrapped(ENVELOPE)
FANNED_OUT = wrapped(REPORT)
