"""A server that does as a script says, however rude, and keeps every byte it got.

A script is a function of a `Peer`, one connection. The server plays its scripts in turn, the
last one for all that follow; when the script ends, so does the connection.
"""

import contextlib
import itertools
import select
import socket
import ssl
import struct
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass
from types import TracebackType

PATIENCE = 30.0
"""Seconds after which a test that waits for an event fails."""

DRIPPING = 10.0
"""Seconds that a drip goes on; a call that lasts so long has not kept its timeout."""


class _Stopped(Exception):
    """The server stops while a script waits."""


@dataclass
class Received:
    """One request as it came: the head with its empty line, and what followed it."""

    head: bytes = b""
    body: bytes = b""

    @property
    def line(self) -> str:
        return self.head.partition(b"\r\n")[0].decode("latin-1")

    @property
    def headers(self) -> list[tuple[str, str]]:
        lines = self.head.decode("latin-1").split("\r\n")[1:-2]
        return [(name, value) for name, _, value in (line.partition(": ") for line in lines)]


class Peer:
    """One connection, from the side that misbehaves."""

    def __init__(self, connection: socket.socket, stop: socket.socket, note: Callable[[Received], None]) -> None:
        self.connection, self._stop, self._note = connection, stop, note
        self.request = Received()

    def send(self, data: bytes) -> None:
        self.connection.sendall(data)

    def waits(self, seconds: float = PATIENCE) -> bool:
        """Whether something arrives, or the client leaves, within this time."""
        if isinstance(self.connection, ssl.SSLSocket) and self.connection.pending():
            return True
        ready, _, _ = select.select([self.connection, self._stop], [], [], seconds)
        if self._stop in ready:
            raise _Stopped
        return bool(ready)

    def receive_head(self) -> None:
        data = b""
        while b"\r\n\r\n" not in data:
            data += self._some()
        head, end, self.request.body = data.partition(b"\r\n\r\n")
        self.request.head = head + end

    def receive(self) -> None:
        """The whole request."""
        self.receive_head()
        length = int(dict(self.request.headers).get("Content-Length", "0"))
        while len(self.request.body) < length:
            self.request.body += self._some()
        self._note(self.request)

    def until_gone(self) -> None:
        """Wait until the client closes; what it still sends shows as part of its request."""
        while self.waits() and (data := self.connection.recv(1 << 16)):
            self.request.body += data

    def over_tls(self, context: ssl.SSLContext) -> "Peer":
        """The same client, inside the tunnel that it asked for."""
        return Peer(context.wrap_socket(self.connection, server_side=True), self._stop, self._note)

    def rests(self, seconds: float) -> None:
        """Do nothing for this time."""
        if select.select([self._stop], [], [], seconds)[0]:
            raise _Stopped

    def _some(self) -> bytes:
        data = self.connection.recv(1 << 16) if self.waits() else b""
        if not data:
            raise ConnectionResetError("the client left before its request was complete")
        return data


Script = Callable[[Peer], None]


class Server:
    """Listens on a free port; `with` or `stop` ends it, and every connection."""

    def __init__(self, *scripts: Script, host: str = "127.0.0.1", tls: ssl.SSLContext | None = None) -> None:
        self._scripts, self._tls = scripts, tls
        self._listener = socket.create_server((host, 0), family=socket.AF_INET6 if ":" in host else socket.AF_INET)
        self.port: int = self._listener.getsockname()[1]
        self.authority = f"[{host}]:{self.port}" if ":" in host else f"{host}:{self.port}"
        self.url = f"{'https' if tls else 'http'}://{self.authority}"
        self.connections = 0
        self._requests: list[Received] = []
        self._change = threading.Condition()
        self._stop, self._stopper = socket.socketpair()
        self._thread = threading.Thread(target=self._accept, name="misbehaving server")
        self._thread.start()

    def received(self, count: int) -> list[Received]:
        """All requests so far; waits until there are so many whole ones."""
        with self._change:
            assert self._change.wait_for(lambda: len(self._requests) >= count, PATIENCE), "too few requests came"
            return list(self._requests)

    def stop(self) -> None:
        self._stopper.close()
        self._thread.join()
        self._stop.close()

    def __enter__(self) -> "Server":
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.stop()

    def _accept(self) -> None:
        players = []
        with self._listener:
            while self._stop not in select.select([self._listener, self._stop], [], [])[0]:
                connection, _ = self._listener.accept()
                script = self._scripts[min(self.connections, len(self._scripts) - 1)]
                self.connections += 1
                players.append(threading.Thread(target=self._play, args=(script, connection)))
                players[-1].start()
        for player in players:
            player.join()

    def _play(self, script: Script, connection: socket.socket) -> None:
        connection.settimeout(PATIENCE)
        # The client is free to leave at any time, in the middle of a handshake too.
        with contextlib.ExitStack() as stack, contextlib.suppress(ConnectionError, ssl.SSLError, _Stopped):
            stack.enter_context(connection)
            if self._tls:
                connection = stack.enter_context(self._tls.wrap_socket(connection, server_side=True))
            script(Peer(connection, self._stop, self._note))

    def _note(self, request: Received) -> None:
        with self._change:
            self._requests.append(request)
            self._change.notify_all()


def answer(status: int, body: bytes = b"", *headers: str, length: int | None = None) -> bytes:
    """The bytes of an answer; `length` for a header that lies."""
    size = len(body) if length is None else length
    lines = [f"HTTP/1.1 {status} Reason", "Content-Type: application/json", f"Content-Length: {size}", *headers]
    return "\r\n".join([*lines, "", ""]).encode("latin-1") + body


def answering(data: bytes) -> Script:
    """Receive the request, send these bytes, close."""

    def play(peer: Peer) -> None:
        peer.receive()
        peer.send(data)

    return play


def keeping(data: bytes) -> Script:
    """Receive the request, send these bytes, and leave the closing to the client."""

    def play(peer: Peer) -> None:
        peer.receive()
        peer.send(data)
        peer.until_gone()

    return play


def dripping(before: bytes, data: bytes) -> Script:
    """Receive the request, send `before` at once, then `data` a byte at a time, over and over for `DRIPPING`."""

    def play(peer: Peer) -> None:
        peer.receive()
        peer.send(before)
        end = time.monotonic() + DRIPPING
        # The pause is the misbehaviour: longer than a byte takes, shorter than any timeout.
        for byte in itertools.cycle(data):
            peer.send(bytes([byte]))
            if peer.waits(0.05) or time.monotonic() > end:
                return

    return play


def refusing_early(data: bytes) -> Script:
    """Answer as soon as the head is there, and close while the client is still sending."""

    def play(peer: Peer) -> None:
        peer.receive_head()
        peer.send(data)
        socket.socket.shutdown(peer.connection, socket.SHUT_WR)

    return play


def sipping(peer: Peer) -> None:
    """Read a large body in small pieces: each is in time, all of them are not."""
    peer.receive_head()
    while peer.connection.recv(1 << 18):
        peer.rests(0.05)


def silent(peer: Peer) -> None:
    """Receive the request and never answer."""
    peer.receive()
    peer.until_gone()


def deaf(peer: Peer) -> None:
    """Read nothing, answer nothing."""
    peer.rests(PATIENCE)


def closing(peer: Peer) -> None:
    """Close without reading."""


def hanging_up(peer: Peer) -> None:
    """Receive the request, then close without an answer."""
    peer.receive()


def resetting(peer: Peer) -> None:
    """Receive the request, then reset the connection."""
    peer.receive()
    peer.connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
