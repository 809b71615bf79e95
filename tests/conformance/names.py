"""Placeholders: `<<id:e0>>` in a vector stands for a value that differs from run to run.

<<id:e0>> <<id:e0@1>>   a worker's id (of one rank)
<<addr:e0>> <<qaddr:e0>> <<port:e0>>   an engine's address, percent-encoded, or its port
<<gw>>                  the gateway's address
<<reqid>>               a request id that the gateway made (only in what is seen)
<<any>> <<ms>>          anything, an integer (only in what is expected; see compare)
"""

import re
from collections.abc import Callable, Iterator, Mapping
from urllib.parse import quote

from .vectors import JSON

_PLACEHOLDER = re.compile(r"<<(id|addr|qaddr|port):([^<>]+)>>|<<gw>>")
_GENERATED_ID = re.compile(r"\breq-[A-Za-z0-9]{24}\b")
_FIVE_DIGITS = re.compile(r"(?<!\d)\d{5}(?!\d)")
_PORT_AND_RANK = re.compile(r":(\d+)(@\d+)?(?:/|$)")
_MILLISECONDS = {"latency_ms", "latency"}


def address(port: int) -> str:
    return f"127.0.0.1:{port}"


def _quoted(port: int) -> str:
    return quote(address(port), safe="")


_FORMS: Mapping[str, Callable[[int], str]] = {"addr": address, "qaddr": _quoted, "port": str}


class Names:
    """Translates between the placeholders of a vector and the values of this run."""

    def __init__(self, gateway_port: int, engine_ports: Mapping[str, int]) -> None:
        self._gateway = address(gateway_port)
        self._engines = dict(engine_ports)
        self._owners = {str(port): name for name, port in engine_ports.items()}
        self._ids: dict[str, str] = {}

    def learn(self, worker_id: str, url: str) -> None:
        """Name a worker's id after the engine that its URL points to."""
        found = _PORT_AND_RANK.search(url)
        owner = self._owners.get(found[1]) if found else None
        self._ids[worker_id] = owner + (found[2] or "") if found and owner else url

    def fill(self, value: JSON) -> JSON:
        """Placeholders to values; a name that is not known stays as it is."""
        return _each_text(value, self.fill_text)

    def fill_text(self, text: str) -> str:
        return _PLACEHOLDER.sub(self._value, text)

    def _value(self, found: re.Match[str]) -> str:
        kind, name = found[1], found[2]
        if kind is None:
            return self._gateway
        if kind == "id":
            return next((key for key, owner in self._ids.items() if owner == name), found[0])
        return _FORMS[kind](self._engines[name]) if name in self._engines else found[0]

    def plain(self, value: JSON) -> JSON:
        """Values to placeholders, and durations to `<<ms>>`."""
        return _each_text(_without_durations(value), self.plain_text)

    def plain_text(self, text: str) -> str:
        for value, placeholder in self._placeholders():
            text = text.replace(value, placeholder)
        text = _FIVE_DIGITS.sub(self._port_owner, text)
        return _GENERATED_ID.sub("<<reqid>>", text)

    def _placeholders(self) -> Iterator[tuple[str, str]]:
        for worker_id, name in self._ids.items():
            yield worker_id, f"<<id:{name}>>"
        for name, port in self._engines.items():
            yield address(port), f"<<addr:{name}>>"
            yield _quoted(port), f"<<qaddr:{name}>>"
        yield self._gateway, "<<gw>>"

    def _port_owner(self, found: re.Match[str]) -> str:
        owner = self._owners.get(found[0])
        return found[0] if owner is None else f"<<port:{owner}>>"


def _each_text(value: JSON, change: Callable[[str], str]) -> JSON:
    if isinstance(value, str):
        return change(value)
    if isinstance(value, list):
        return [_each_text(item, change) for item in value]
    if isinstance(value, dict):
        return {change(key): _each_text(item, change) for key, item in value.items()}
    return value


def _without_durations(value: JSON, key: str = "") -> JSON:
    if isinstance(value, dict):
        return {name: _without_durations(item, name) for name, item in value.items()}
    if isinstance(value, list):
        return [_without_durations(item, key) for item in value]
    return "<<ms>>" if key in _MILLISECONDS and type(value) is int else value
