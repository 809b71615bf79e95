"""`http.server`, corrected: bytes <-> Request and Reply. No routes, no rules.

Corrected are the backlog of 5, Nagle's delay, the half-second stop, HTTP/1.0 and
the reverse name look-up at start. An application is a function of one `Request`
that returns one `Reply`; it runs in the thread of the connection.
"""

import contextlib
import http
import http.server
import socket
import socketserver
import struct
import threading
import time
from collections.abc import Callable, Generator
from email.utils import formatdate

from . import messages, well_formed
from .messages import Body, Reply, Request

Application = Callable[[Request], Reply]

_BACKLOG = 1024
_MAX_LINE = 65536
_LINGER_SECONDS = 2.0


class HttpServer:
    """A listening server; `start` returns when it answers, `stop` when all is gone.

    Raises `OSError`, its text naming the address, when that cannot be had.
    """

    def __init__(self, application: Application, host: str = "127.0.0.1", port: int = 0) -> None:
        try:
            self._listener = _Listener(application, host, port)
        except OSError as problem:
            raise OSError(problem.errno, f"cannot listen on {host}:{port}: {problem.strerror}") from None
        self._thread: threading.Thread | None = None
        self.host = host
        self.port = int(self._listener.server_address[1])

    @property
    def failures(self) -> list[Exception]:
        """What the application raised and should not have; each was answered with a 500."""
        return self._listener.failures

    @property
    def address(self) -> str:
        """`host:port`, an IPv6 host in brackets."""
        return f"[{self.host}]:{self.port}" if ":" in self.host else f"{self.host}:{self.port}"

    @property
    def url(self) -> str:
        return f"http://{self.address}"

    def start(self) -> None:
        self._thread = threading.Thread(
            target=self._listener.serve_forever, args=(0.1,), daemon=True, name=f"listen-{self.port}"
        )
        self._thread.start()

    def stop(self, grace: float = 0.0, cut: Callable[[], None] = lambda: None) -> None:
        """Stop listening at once, give running requests `grace` seconds, then cut them off.

        `cut` is called at that point, to wake whatever those requests wait for.
        """
        if self._thread is not None:
            # Wakes the accept loop at once where the system allows it; else it polls.
            with contextlib.suppress(OSError):
                self._listener.socket.shutdown(socket.SHUT_RDWR)
            self._listener.shutdown()
            self._thread.join()
            self._thread = None
        self._listener.server_close()
        self._listener.connections.close(grace, cut)


class _Connections:
    """The open connections and their threads: who is busy, who is only kept alive."""

    def __init__(self) -> None:
        self._changed = threading.Condition()
        self._threads: dict[socket.socket, threading.Thread] = {}
        self._ending: list[threading.Thread] = []
        self._busy: set[socket.socket] = set()
        self.closing = False

    def add(self, connection: socket.socket, thread: threading.Thread) -> None:
        with self._changed:
            self._threads[connection] = thread

    def remove(self, connection: socket.socket) -> None:
        with self._changed:
            # A thread ends after its connection: `close` waits for it too.
            left = self._threads.pop(connection, None)
            self._ending = [one for one in (*self._ending, left) if one and one.is_alive()]
            self._busy.discard(connection)
            self._changed.notify_all()

    def busy(self, connection: socket.socket, busy: bool) -> None:
        with self._changed:
            (self._busy.add if busy else self._busy.discard)(connection)
            self._changed.notify_all()

    def close(self, grace: float, cut: Callable[[], None]) -> None:
        with self._changed:
            self.closing = True
            # A request already received is still read and served after this.
            for connection in self._threads.keys() - self._busy:
                _shutdown(connection, socket.SHUT_RD)
            self._changed.wait_for(lambda: not self._busy, grace)
            threads = [*self._threads.values(), *self._ending]
            for connection in self._threads:
                _shutdown(connection, socket.SHUT_RDWR)
        cut()
        for thread in threads:
            thread.join()


def _shutdown(connection: socket.socket, how: int) -> None:
    with contextlib.suppress(OSError):
        connection.shutdown(how)


class _Listener(socketserver.ThreadingMixIn, socketserver.TCPServer):
    allow_reuse_address = True
    request_queue_size = _BACKLOG

    def __init__(self, application: Application, host: str, port: int) -> None:
        self.address_family = socket.AF_INET6 if ":" in host else socket.AF_INET
        self.application = application
        self.connections = _Connections()
        self.failures: list[Exception] = []
        super().__init__((host, port), _Handler)

    def answer(self, request: Request) -> Reply:
        try:
            return self.application(request)
        except OSError:
            raise
        except Exception as error:
            self.failures.append(error)
            return Reply(500)

    def process_request(self, request: socket.socket, client_address: object) -> None:  # type: ignore[override]  # narrower: only TCP here
        thread = threading.Thread(
            target=self.process_request_thread,
            args=(request, client_address),
            daemon=True,
            name=f"connection-{self.server_address[1]}",
        )
        self.connections.add(request, thread)
        thread.start()

    def shutdown_request(self, request: socket.socket) -> None:  # type: ignore[override]  # narrower: only TCP here
        self.connections.remove(request)
        super().shutdown_request(request)

    def handle_error(self, request: object, client_address: object) -> None:
        """A caller that goes away in the middle of something is not an event."""


class _Handler(http.server.BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    disable_nagle_algorithm = True
    wbufsize = -1
    server: _Listener
    connection: socket.socket

    def handle_one_request(self) -> None:
        self.close_connection = True
        try:
            self.raw_requestline = self.rfile.readline(_MAX_LINE + 1)
            while self.raw_requestline in (b"\r\n", b"\n"):
                self.raw_requestline = self.rfile.readline(_MAX_LINE + 1)
            if not self.raw_requestline:
                return
            self.server.connections.busy(self.connection, True)
            if len(self.raw_requestline) > _MAX_LINE:
                self.send_error(414)
            elif self.parse_request():
                self._serve()
        except (OSError, ValueError):
            self.close_connection = True
        finally:
            self.server.connections.busy(self.connection, False)

    def parse_request(self) -> bool:
        if not well_formed.well_formed(self.raw_requestline):
            self.send_error(400)
            return False
        if not super().parse_request():
            return False
        if not well_formed.clean(self.headers):
            self.send_error(400)
            return False
        return True

    def handle_expect_100(self) -> bool:
        return True  # said when the body is read, so that a refusal needs no body

    def send_error(self, code: int, message: str | None = None, explain: str | None = None) -> None:
        self.close_connection = True
        self._send(Reply(code), head=False)
        self._linger()

    def _serve(self) -> None:
        framing = messages.framing(self.headers, self.request_version)
        if framing is None:
            return self.send_error(400)
        body = Body(self.rfile, framing, self._continue)
        target = self.requestline.split(" ")[1]
        headers = tuple((name, value.strip(" \t")) for name, value in self.headers.items())
        request = Request(self.command, target, headers, body, messages.Caller(self.connection))
        reply = self.server.answer(request)
        if not body.done or self.server.connections.closing:
            self.close_connection = True
        if reply.raw and reply.stream is not None:
            self._send_raw(reply.stream, reset=reply.reset)
        elif reply.status:
            self._send(reply, head=self.command == "HEAD")
        else:
            self.close_connection = True
        if not body.done:
            self._linger()
        return None

    def _continue(self) -> None:
        if self.headers.get("expect", "").lower() == "100-continue" and self.request_version != "HTTP/1.0":
            self.wfile.write(b"HTTP/1.1 100 Continue\r\n\r\n")
            self.wfile.flush()

    def _send(self, reply: Reply, *, head: bool) -> None:
        bodiless = reply.status in (204, 304) or reply.status < 200
        chunked = reply.stream is not None and self.request_version != "HTTP/1.0"
        headers = list(reply.headers)
        if chunked:
            headers.append(("transfer-encoding", "chunked"))
        elif reply.stream is None and not bodiless:
            headers.append(("content-length", str(len(reply.body))))
        else:
            self.close_connection |= not bodiless
        if self.close_connection:
            headers.append(("connection", "close"))
        headers.append(("date", formatdate(usegmt=True)))
        phrase = _PHRASES.get(reply.status, "")
        lines = [f"HTTP/1.1 {reply.status} {phrase}", *(f"{name}: {value}" for name, value in headers)]
        self.wfile.write("\r\n".join([*lines, "", ""]).encode("latin-1"))
        if not head and not bodiless:
            self._send_body(reply, chunked)
        self.wfile.flush()

    def _send_body(self, reply: Reply, chunked: bool) -> None:
        if reply.stream is None:
            self.wfile.write(reply.body)
            return
        self.wfile.flush()
        with contextlib.closing(reply.stream) as pieces:
            for piece in pieces:
                if piece:
                    self.wfile.write(b"%x\r\n%b\r\n" % (len(piece), piece) if chunked else piece)
                    self.wfile.flush()
        if chunked:
            self.wfile.write(b"0\r\n\r\n")

    def _send_raw(self, stream: Generator[bytes, None, None], *, reset: bool) -> None:
        self.close_connection = True
        with contextlib.closing(stream) as pieces:
            for piece in pieces:
                self.wfile.write(piece)
                self.wfile.flush()
        if reset:
            # Not lingering on close is what resets; a shutdown before it would say good-bye.
            self.connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
            self.connection.close()

    def _linger(self) -> None:
        """Take in what is still being sent: closing on it would reset the connection
        and could destroy the answer before the caller has read it."""
        _shutdown(self.connection, socket.SHUT_WR)
        end = time.monotonic() + _LINGER_SECONDS
        with contextlib.suppress(OSError):
            while (left := end - time.monotonic()) > 0 and not self.server.connections.closing:
                self.connection.settimeout(left)
                if not self.connection.recv(1 << 20):
                    break

    def log_message(self, format: str, *args: object) -> None:
        """The gateway has its own events."""


_PHRASES = {status.value: status.phrase for status in http.HTTPStatus}
