"""HTTP/1.1 from a socket, as callers and engines both need it: heads and bodies, byte for byte."""

import socket

Headers = list[tuple[str, str]]


class Closed(EOFError):
    """The other side closed the connection."""


class Reader:
    """Reads a connection by mark and by count."""

    def __init__(self, sock: socket.socket) -> None:
        self.sock = sock
        self._buffer = bytearray()

    def _more(self) -> None:
        data = self.sock.recv(65536)
        if not data:
            raise Closed
        self._buffer += data

    def exactly(self, count: int) -> bytes:
        while len(self._buffer) < count:
            self._more()
        taken = bytes(self._buffer[:count])
        del self._buffer[:count]
        return taken

    def until(self, mark: bytes) -> bytes:
        """The bytes before the mark, which is dropped."""
        while (end := self._buffer.find(mark)) < 0:
            self._more()
        taken = self.exactly(end)
        del self._buffer[: len(mark)]
        return taken

    def rest(self) -> bytes:
        try:
            while True:
                self._more()
        except Closed:
            return bytes(self._buffer)

    def head(self) -> tuple[str, Headers]:
        """The first line, and the headers in order and as spelled."""
        first, *lines = self.until(b"\r\n\r\n").decode("latin-1").split("\r\n")
        pairs = (line.partition(":") for line in lines)
        return first, [(name.strip(), value.strip(" \t")) for name, _, value in pairs]

    def chunked(self) -> bytes:
        body = bytearray()
        while size := int(self.until(b"\r\n").partition(b";")[0], 16):
            body += self.exactly(size)
            self.exactly(2)
        while self.until(b"\r\n"):
            pass
        return bytes(body)


def first_values(headers: Headers) -> dict[str, str]:
    """Lower-case name to the value that came first."""
    return {name.lower(): value for name, value in reversed(headers)}


def chunks(body: bytes, size: int) -> bytes:
    """The body in chunks of that size (at least one byte each), with the end mark."""
    pieces = [body[at : at + size] for at in range(0, len(body), max(1, size))]
    return b"".join(b"%x\r\n%b\r\n" % (len(piece), piece) for piece in pieces) + b"0\r\n\r\n"
