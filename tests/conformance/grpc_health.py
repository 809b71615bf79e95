"""Just enough HTTP/2 for a gateway to register a gRPC engine.

The health check of one service says "healthy"; every other method is unimplemented. That takes
six kinds of frame, and of HPACK (RFC 7541) what is needed to find the path of a call.
"""

from collections.abc import Callable
from functools import cache

from .wire import Reader

DATA, HEADERS, SETTINGS, PING, GOAWAY = 0, 1, 4, 6, 7
ACK = END_STREAM = 0x1
END_HEADERS, PADDED, PRIORITY = 0x4, 0x8, 0x20
PREFACE_LENGTH = 24
STATIC_ENTRIES = 61
STATIC_PATHS = {4: "/", 5: "/index.html"}

RESPONSE_HEAD = b"\x88\x0f\x10\x10application/grpc"
HEALTHY = b"\x00\x00\x00\x00\x02\x08\x01"
OK, UNIMPLEMENTED = b"\x00\x0bgrpc-status\x010", b"\x00\x0bgrpc-status\x0212"

# RFC 7541, appendix B, as far as paths go. The code is canonical: length and order give the bits.
HUFFMAN_SYMBOLS = {
    5: "012aceiost",
    6: " %-./3456789=A_bdfghlmnpru",
    7: ":BCDEFGHIJKLMNOPQRSTUVWYjkqvwxyz",
    8: "&*,;XZ",
}


def serve(reader: Reader, package: str, record: Callable[[str], None]) -> None:
    """Answer calls until the other side leaves; `record` gets each call's path."""
    reader.exactly(PREFACE_LENGTH)
    reader.sock.sendall(_frame(SETTINGS, 0, 0))
    block_reader = HeaderBlocks()
    paths: dict[int, str] = {}
    while True:
        kind, flags, stream, payload = _read_frame(reader)
        if kind == GOAWAY:
            return
        if kind in (SETTINGS, PING) and not flags & ACK:
            reader.sock.sendall(_frame(kind, ACK, 0, payload if kind == PING else b""))
        if kind == HEADERS:
            paths[stream] = block_reader.path(_header_block(flags, payload))
        if kind in (DATA, HEADERS) and flags & END_STREAM:
            path = paths.pop(stream, "")
            record(path)
            reader.sock.sendall(_reply(path, package, stream))


def _reply(path: str, package: str, stream: int) -> bytes:
    if path.startswith(f"/{package}") and path.endswith("/HealthCheck"):
        head = _frame(HEADERS, END_HEADERS, stream, RESPONSE_HEAD)
        return head + _frame(DATA, 0, stream, HEALTHY) + _frame(HEADERS, END_HEADERS | END_STREAM, stream, OK)
    return _frame(HEADERS, END_HEADERS | END_STREAM, stream, RESPONSE_HEAD + UNIMPLEMENTED)


def _frame(kind: int, flags: int, stream: int, payload: bytes = b"") -> bytes:
    return len(payload).to_bytes(3, "big") + bytes((kind, flags)) + stream.to_bytes(4, "big") + payload


def _read_frame(reader: Reader) -> tuple[int, int, int, bytes]:
    head = reader.exactly(9)
    stream = int.from_bytes(head[5:], "big") & 0x7FFFFFFF
    return head[3], head[4], stream, reader.exactly(int.from_bytes(head[:3], "big"))


def _header_block(flags: int, payload: bytes) -> bytes:
    if flags & PADDED:
        payload = payload[1 : len(payload) - payload[0]]
    return payload[5:] if flags & PRIORITY else payload


class HeaderBlocks:
    """The header blocks of one connection: each may point back at entries of those before it."""

    def __init__(self) -> None:
        self._table: list[tuple[str, str]] = []
        self._block = b""
        self._at = 0

    def path(self, block: bytes) -> str:
        """The `:path` of a block, "" if it has none."""
        self._block, self._at = block, 0
        found = ""
        while self._at < len(block):
            name, value = self._entry()
            if name == ":path":
                found = value
        return found

    def _entry(self) -> tuple[str, str]:
        first = self._block[self._at]
        if first & 0x80:
            return self._indexed(self._integer(7))
        if first & 0xE0 == 0x20:  # a new size for the table: ours never shrinks
            self._integer(5)
            return "", ""
        remember = bool(first & 0x40)
        index = self._integer(6 if remember else 4)
        entry = (self._indexed(index)[0] if index else self._text(), self._text())
        if remember:
            self._table.insert(0, entry)
        return entry

    def _indexed(self, index: int) -> tuple[str, str]:
        if index <= STATIC_ENTRIES:
            return (":path", STATIC_PATHS[index]) if index in STATIC_PATHS else ("", "")
        return self._table[index - STATIC_ENTRIES - 1]

    def _integer(self, bits: int) -> int:
        full = (1 << bits) - 1
        value = self._byte() & full
        if value < full:
            return value
        shift = 0
        while True:
            byte = self._byte()
            value += (byte & 0x7F) << shift
            shift += 7
            if byte < 0x80:
                return value

    def _text(self) -> str:
        packed = bool(self._block[self._at] & 0x80)
        length = self._integer(7)
        raw = self._block[self._at : self._at + length]
        self._at += length
        return unpacked(raw) if packed else raw.decode("latin-1")

    def _byte(self) -> int:
        self._at += 1
        return self._block[self._at - 1]


@cache
def _codes() -> dict[str, str]:
    """Bit strings to symbols."""
    codes, code, previous = {}, 0, 5
    for length, symbols in HUFFMAN_SYMBOLS.items():
        for symbol in symbols:
            code <<= length - previous
            previous = length
            codes[f"{code:0{length}b}"] = symbol
            code += 1
    return codes


def unpacked(raw: bytes) -> str:
    """A Huffman-coded text; it ends at the padding, or at the first symbol no path has."""
    bits = "".join(f"{byte:08b}" for byte in raw)
    text, at = "", 0
    while found := next((n for n in HUFFMAN_SYMBOLS if bits[at : at + n] in _codes()), 0):
        text += _codes()[bits[at : at + found]]
        at += found
    return text
