"""What a scripted engine puts on the wire: well-formed answers, and every kind of broken one."""

import base64
import json
import select
import socket
import struct
import time
import zlib
from collections.abc import Callable, Mapping
from http import HTTPStatus

from .vectors import Reply
from .wire import chunks

FOREVER = 3600.0
PHRASES = {status.value: status.phrase for status in HTTPStatus}
BODILESS = {204, 304}
NO_LINGER = struct.pack("ii", 1, 0)
GZIP_HEAD = bytes.fromhex("1f8b 08 00 00000000 02 03")


class CallerLeft(Exception):
    """The connection closed while the engine was about to answer."""


def play(sock: socket.socket, reply: Reply, method: str) -> bool:
    """Answer a call as the reply says. True if the connection can take another call."""
    kind = reply.get("kind", "normal")
    _wait(sock, FOREVER if kind == "hang" else reply.get("delay", 0.0))
    if kind in _ABRUPT:
        _ABRUPT[kind](sock, reply)
        return False
    framing = _framing(reply)
    body = _body(reply)
    sock.sendall(_head(reply, framing, len(body)))
    _wait(sock, reply.get("drip", 0.0))
    if method == "HEAD" or framing == "none":
        return framing != "close"
    if kind == "partial":
        sock.sendall(_cut(body[: reply.get("send_bytes", len(body) // 2)], framing))
        return False
    sock.sendall(chunks(body, len(body) // 3) if framing == "chunked" else body)
    return framing != "close"


def _wait(sock: socket.socket, seconds: float) -> None:
    """Let time pass; raises `CallerLeft` the moment the caller hangs up."""
    end = time.monotonic() + seconds
    while (left := end - time.monotonic()) > 0:
        if not select.select([sock], [], [], left)[0]:
            return
        try:
            if not sock.recv(1, socket.MSG_PEEK):
                raise CallerLeft
        except ConnectionError:
            raise CallerLeft from None
        time.sleep(0.01)  # the next call has come early: no reason to spin


def _close(sock: socket.socket, reply: Reply) -> None:
    """Nothing to send: the engine closes the connection after each abrupt answer."""


def _reset(sock: socket.socket, reply: Reply) -> None:
    sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, NO_LINGER)


def _garbage(sock: socket.socket, reply: Reply) -> None:
    sock.sendall(base64.b64decode(reply.get("body_b64", "")) or b"this is not HTTP\r\n\r\n")


_ABRUPT: Mapping[str, Callable[[socket.socket, Reply], None]] = {
    "hang": _close,
    "close": _close,
    "reset": _reset,
    "garbage": _garbage,
}


def _framing(reply: Reply) -> str:
    status = reply.get("status", 200)
    return reply.get("framing", "none" if status in BODILESS or 100 <= status < 200 else "length")


def _body(reply: Reply) -> bytes:
    if "json" in reply:
        body = json.dumps(reply["json"], ensure_ascii=False).encode()
    elif "body_b64" in reply:
        body = base64.b64decode(reply["body_b64"])
    elif "fill" in reply:
        text, times = reply["fill"]
        body = (reply.get("prefix", "") + text * times + reply.get("suffix", "")).encode()
    else:
        body = reply.get("body", "").encode()
    return _gzipped(body) if reply.get("gzip") else body


def _gzipped(body: bytes) -> bytes:
    """Written out because gzip.compress() heads its output differently from one Python to the next."""
    deflate = zlib.compressobj(9, zlib.DEFLATED, -zlib.MAX_WBITS)
    return GZIP_HEAD + deflate.compress(body) + deflate.flush() + struct.pack("<II", zlib.crc32(body), len(body))


def _head(reply: Reply, framing: str, length: int) -> bytes:
    status = reply.get("status", 200)
    content_type = reply.get("content_type", "application/json" if "json" in reply else None)
    lines = [f"HTTP/1.1 {status} {reply.get('reason', PHRASES.get(status, 'Status'))}"]
    if content_type is not None:
        lines.append(f"Content-Type: {content_type}")
    if reply.get("gzip"):
        lines.append("Content-Encoding: gzip")
    lines += [f"{name}: {value}" for name, value in reply.get("headers", [])]
    framed_by = {
        "length": f"Content-Length: {length + reply.get('lie', 0)}",
        "chunked": "Transfer-Encoding: chunked",
        "close": "Connection: close",
    }
    if framing in framed_by:
        lines.append(framed_by[framing])
    return ("\r\n".join(lines) + "\r\n\r\n").encode("latin-1")


def _cut(part: bytes, framing: str) -> bytes:
    return b"%x\r\n%b\r\n" % (len(part), part) if framing == "chunked" else part
