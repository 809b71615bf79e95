"""A scripted engine: records exactly what arrives, answers by rule, else by profile."""

import socket
import threading
import time
from collections.abc import Iterable
from dataclasses import dataclass, field

import h11
from h2.exceptions import ProtocolError

from . import grpc_health
from .profiles import Options, Question, default_reply
from .replies import CallerLeft, play
from .vectors import Reply, Rule
from .wire import Closed, Headers, Reader, awaiting_request, spelled

FRAMINGS = {b"transfer-encoding": "chunked", b"content-length": "length"}


@dataclass
class Call:
    """One request as it arrived. `ended` and `left` are instants; `left` is when its caller hung up."""

    engine: str
    method: str
    target: str
    headers: Headers = field(default_factory=list)
    framing: str = "none"
    body: bytes = b""
    arrived: float = field(default_factory=time.monotonic)
    ended: float | None = None
    left: float | None = None

    @property
    def path(self) -> str:
        return self.target.partition("?")[0]


class Engine:
    """Serves on 127.0.0.1 from its construction until `close`."""

    def __init__(self, name: str, profile: str, port: int, options: Options) -> None:
        self.name, self.port = name, port
        self._profile, self._options = profile, dict(options)
        self._rules: list[Rule] = []
        self._calls: list[Call] = []
        self._lock = threading.Lock()
        self._closing = False
        self._connections: dict[socket.socket, threading.Thread] = {}
        self._listener = socket.create_server(("127.0.0.1", port), backlog=256)
        self._acceptor = threading.Thread(target=self._accept, name=f"{name} accepts")
        self._acceptor.start()

    def begin(self, rules: Iterable[Rule]) -> None:
        """Forget what arrived so far, and answer by these rules from now on."""
        with self._lock:
            self._rules = [rule.copy() for rule in rules]
            self._calls = []

    def calls(self) -> list[Call]:
        with self._lock:
            return list(self._calls)

    def close(self) -> None:
        """Refuse and drop connections, then wait for every thread. May be called twice."""
        with self._lock:
            if self._closing:
                return
            self._closing = True
            open_now = dict(self._connections)
        socket.create_connection(("127.0.0.1", self.port)).close()  # wakes the acceptor everywhere
        self._acceptor.join()
        self._listener.close()
        for sock in open_now:
            _hang_up(sock)
        for thread in open_now.values():
            thread.join()

    def _accept(self) -> None:
        while True:
            sock, _ = self._listener.accept()
            with self._lock:
                if self._closing:
                    sock.close()
                    return
                thread = threading.Thread(target=self._serve, args=(sock,), name=f"{self.name} serves")
                self._connections[sock] = thread
                thread.start()

    def _serve(self, sock: socket.socket) -> None:
        try:
            sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            if self._profile == "grpc":
                grpc_health.serve(sock, str(self._options.get("grpc", "sglang")), self._record_rpc)
            else:
                reader = Reader(sock, awaiting_request)
                while self._answer_one(reader):
                    pass
        except (Closed, OSError, h11.RemoteProtocolError, ProtocolError):
            pass  # the caller went away, or sent what is not HTTP: both end a connection only
        finally:
            with self._lock:
                del self._connections[sock]
            sock.close()

    def _record_rpc(self, path: str) -> None:
        with self._lock:
            self._calls.append(Call(self.name, "POST", path, framing="grpc"))

    def _answer_one(self, reader: Reader) -> bool:
        call = self._receive(reader)
        with self._lock:
            self._calls.append(call)
            reply = self._pick(call)
        if reply is None:
            reply = default_reply(self._profile, Question(call.method, call.path, call.body, self._options))
        try:
            return play(reader.sock, reply, call.method)
        except CallerLeft:
            call.left = time.monotonic()
            return False
        finally:
            call.ended = time.monotonic()

    def _receive(self, reader: Reader) -> Call:
        head = reader.head(h11.Request)
        arrived = time.monotonic()
        if reader.awaits_100:
            reader.sock.sendall(b"HTTP/1.1 100 Continue\r\n\r\n")
        names = [name for name, _ in head.headers]
        framing = next((framing for name, framing in FRAMINGS.items() if name in names), "none")
        method, target = head.method.decode("latin-1"), head.target.decode("latin-1")
        return Call(self.name, method, target, spelled(head), framing, reader.body(), arrived)

    def _pick(self, call: Call) -> Reply | None:
        """The first rule that fits and is not used up; counts its use."""
        for rule in self._rules:
            fits = rule["path"] in ("*", call.path) and rule.get("method", call.method) == call.method
            left = rule.get("times", 1)
            if fits and left > 0:
                if "times" in rule:
                    rule["times"] = left - 1
                return rule["reply"]
        return None


def _hang_up(sock: socket.socket) -> None:
    try:
        sock.shutdown(socket.SHUT_RDWR)
    except OSError:
        pass  # already gone
