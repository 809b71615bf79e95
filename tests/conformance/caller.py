"""One HTTP exchange with the gateway, written without an HTTP library.

Vectors hold requests that no library would send.
"""

import base64
import socket
import time
from dataclasses import dataclass, field
from functools import partial

import h11

from .names import address
from .vectors import JSON, Step
from .wire import Closed, Headers, Reader, awaiting_answer, chunks, spelled

PATIENCE = 20.0
CONTINUE_PATIENCE = 1.0


@dataclass(frozen=True)
class Answer:
    status: int
    headers: Headers
    body: bytes
    elapsed: float

    def header(self, name: str) -> str | None:
        """All values of a header, joined; None when it is absent."""
        values = [value for key, value in self.headers if key.lower() == name]
        return ", ".join(values) if values else None


@dataclass
class Exchange:
    """What came of a request: an answer, or a note why there is none."""

    answer: Answer | None = None
    notes: dict[str, JSON] = field(default_factory=dict)


def exchange(port: int, step: Step) -> Exchange:
    """Send the step's request, and read what comes back."""
    head, payload = request_bytes(step, address(port))
    patience = step.get("timeout", PATIENCE)
    result = Exchange()
    started = time.monotonic()
    with socket.create_connection(("127.0.0.1", port), timeout=patience) as sock:
        _send(sock, head, payload, step, result)
        if step.get("half_close"):
            sock.shutdown(socket.SHUT_WR)
        if "abort_after" in step:
            time.sleep(step["abort_after"])
            return Exchange(notes={"aborted": True})
        try:
            result.answer = _read_answer(sock, step.get("method", "GET"), started)
        except TimeoutError:
            result.notes["no_reply_within"] = patience
        except (Closed, ConnectionError):
            result.notes["closed"] = True
    return result


def _send(sock: socket.socket, head: bytes, payload: bytes, step: Step, result: Exchange) -> None:
    if not step.get("expect_continue"):
        try:
            sock.sendall(head + payload)
        except ConnectionError:
            pass  # a gateway may refuse a request before it has read all of it
        return
    sock.sendall(head)
    sock.settimeout(CONTINUE_PATIENCE)
    try:
        # A look, not a read: this may be the answer itself.
        invited = sock.recv(12, socket.MSG_PEEK).startswith(b"HTTP/1.1 100")
    except TimeoutError:
        invited = False
    sock.settimeout(step.get("timeout", PATIENCE))
    result.notes["got_100"] = invited
    if invited:
        sock.sendall(payload)


def request_bytes(step: Step, host: str) -> tuple[bytes, bytes]:
    """The head and the framed body of a step's request."""
    if "raw" in step:
        return step["raw"].encode("latin-1"), b""
    if "raw_b64" in step:
        return base64.b64decode(step["raw_b64"]), b""
    body = _body(step)
    framing = step.get("framing", "none" if body is None else "length")
    payload = body or b""
    lines = [f"{step.get('method', 'GET')} {_target(step)} HTTP/1.1"]
    given = step.get("headers", [])
    names = {name.lower() for name, _ in given}
    if "host" not in names:
        lines.append(f"Host: {host}")
    lines += [f"{name}: {value}" for name, value in given]
    if "connection" not in names:
        lines.append("Connection: close")
    if step.get("expect_continue"):
        lines.append("Expect: 100-continue")
    if framing == "length":
        lines.append(f"Content-Length: {len(payload)}")
    if framing == "chunked":
        lines.append("Transfer-Encoding: chunked")
        payload = chunks(payload, len(payload) // 2)
    return ("\r\n".join(lines) + "\r\n\r\n").encode(), payload


def _target(step: Step) -> str:
    text, times = step.get("target_fill", ("", 0))
    return step["target"] + text * times


def _body(step: Step) -> bytes | None:
    if "body_b64" in step:
        return base64.b64decode(step["body_b64"])
    if "fill" in step:
        text, times = step["fill"]
        return text.encode() * times
    return step["body"].encode() if "body" in step else None


def _read_answer(sock: socket.socket, method: str, started: float) -> Answer:
    reader = Reader(sock, partial(awaiting_answer, method))
    head = reader.head(h11.Response)
    return Answer(head.status_code, spelled(head), reader.body(), time.monotonic() - started)
