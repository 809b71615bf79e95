"""What arrived at a server, in order."""

import json
import threading
from collections.abc import Iterable
from dataclasses import dataclass, field, replace

_SECRET = "authorization"


@dataclass(frozen=True)
class Entry:
    """One request. `number` counts from 0.

    `headers` are as sent, without `Authorization`: only `authorized` tells that there was
    one. `status` is None until there is an answer, 0 if the connection was closed without.
    `hung_up`: the caller went away before the whole answer was there.
    """

    number: int
    method: str
    path: str
    query: str
    headers: tuple[tuple[str, str], ...]
    authorized: bool
    body: bytes = field(repr=False)
    status: int | None = None
    hung_up: bool = False

    def json(self) -> object:
        """The body, read as JSON."""
        return json.loads(self.body)


class Log:
    """An ordered log; `changed` is notified of every change, for those who wait for one."""

    def __init__(self, changed: threading.Condition) -> None:
        self._changed = changed
        self._entries: list[Entry] = []

    @property
    def entries(self) -> tuple[Entry, ...]:
        with self._changed:
            return tuple(self._entries)

    def calls(self, path: str) -> tuple[Entry, ...]:
        """The entries of one path, its first slash optional."""
        wanted = "/" + path.lstrip("/")
        return tuple(entry for entry in self.entries if entry.path == wanted)

    def arrived(self, method: str, path: str, query: str, headers: Iterable[tuple[str, str]], body: bytes) -> int:
        """Write down a request; its number."""
        headers = tuple(headers)
        kept = tuple(header for header in headers if header[0].lower() != _SECRET)
        with self._changed:
            number = len(self._entries)
            self._entries.append(Entry(number, method, path, query, kept, len(kept) < len(headers), body))
            self._changed.notify_all()
            return number

    def answered(self, number: int, status: int, *, hung_up: bool, body: bytes | None = None) -> None:
        """Write down what became of it; `body` when it was read only after the request arrived."""
        with self._changed:
            entry = self._entries[number]
            body = entry.body if body is None else body
            self._entries[number] = replace(entry, status=status, hung_up=hung_up, body=body)
            self._changed.notify_all()
