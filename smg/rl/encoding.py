"""The caller's arguments -> the parts of a request. Refuses what cannot be sent.

Everything here is a function of values; nothing is sent.
"""

import json
import re
from collections.abc import Iterable, Mapping, Sequence
from urllib.parse import quote, urlencode, urlsplit

from smg import __version__

from .messages import Request

Headers = Mapping[str, str]
Param = None | str | int | float | Sequence[None | str | int | float]
"""One query parameter: a list becomes the key repeated, None is left out."""
Params = Mapping[str, Param] | Sequence[tuple[str, Param]]

_TOKEN = re.compile(r"[!#$%&'*+.^_`|~0-9A-Za-z-]+")
_FRAMING = {"Content-Length", "Transfer-Encoding", "Connection"}
_VISIBLE = re.compile(r"[\x21-\x7e]+")
_VALUE = re.compile(r"[\t\x20-\x7e\xa0-\xff]*")


def base_url(url: object) -> str:
    """A gateway's URL without slashes at its end; raises `ValueError` for any other form."""
    if not isinstance(url, str) or not _VISIBLE.fullmatch(url):
        raise ValueError(f"base_url must be a URL like http://host:30000, got {url!r}")
    scheme, _, rest = url.partition("://")
    scheme = scheme.lower()
    if scheme not in ("http", "https"):
        raise ValueError(f"base_url must begin with http:// or https://, got {url!r}")
    try:
        parts = urlsplit(f"{scheme}://{rest}")
        host, _ = parts.hostname, parts.port
    except ValueError as problem:
        raise ValueError(f"base_url has no usable host and port: {problem}") from None
    if "@" in parts.netloc:
        raise ValueError("base_url must not hold a user or password: pass api_key")
    if not host or "?" in rest or "#" in rest:
        raise ValueError(f"base_url must be scheme, host and an optional prefix only, got {url!r}")
    return f"{scheme}://{rest.rstrip('/')}"


def path_of(url: str) -> str:
    """The prefix before the routes of a gateway, as it stands in a request line."""
    return urlsplit(url).path


def api_key(key: object) -> str | None:
    """The key, if it can stand in a header. Its value is in no error."""
    if not key:
        return None
    if not isinstance(key, str) or not _VISIBLE.fullmatch(key):
        raise ValueError("api_key must be visible ASCII without spaces or line ends")
    return key


def part(text: object, name: str) -> str:
    """One segment of a path, with everything escaped that could end it."""
    if not isinstance(text, str):
        raise TypeError(f"{name} must be a str, got {type(text).__name__}")
    if not text:
        raise ValueError(f"{name} must not be empty")
    # Dots alone are escaped too: proxies resolve them.
    return quote(text, safe="") if text.strip(".") else text.replace(".", "%2E")


def engine_path(path: object) -> str:
    """An engine's route without its leading slash, escaped."""
    if not isinstance(path, str):
        raise TypeError(f"path must be a str, got {type(path).__name__}")
    if not path.strip("/"):
        raise ValueError(f"path must name a route of the engine, got {path!r}")
    return quote(path.lstrip("/"), safe="/")


def query(params: Params | None) -> list[tuple[str, str]]:
    """The pairs of a query string, in order."""
    if params is None:
        return []
    pairs = params.items() if isinstance(params, Mapping) else params
    return [(str(key), _word(one)) for key, value in pairs for one in _many(value) if one is not None]


def _many(value: Param) -> Iterable[None | str | int | float]:
    return (value,) if value is None or isinstance(value, (str, int, float)) else value


def _word(value: str | int | float) -> str:
    return str(value).lower() if isinstance(value, bool) else str(value)


def request(method: object, url: str, pairs: Iterable[tuple[str, str]], body: object, given: Headers) -> Request:
    """A request ready to be sent; raises `ValueError` or `TypeError` before anything is."""
    if not isinstance(method, str) or not _TOKEN.fullmatch(method):
        raise ValueError(f"method must be an HTTP method, got {method!r}")
    sent = {"Accept": "application/json", "User-Agent": f"smg-rl/{__version__}"}
    if body is not None:
        sent["Content-Type"] = "application/json"
    sent.update(given)
    encoded = urlencode(list(pairs))
    return Request(method.upper(), f"{url}?{encoded}" if encoded else url, sent, _json(body))


def headers(given: Headers | None) -> dict[str, str]:
    """The caller's own headers; raises `ValueError` for what cannot stand in one."""
    return {_header_name(name): _header_value(name, value) for name, value in (given or {}).items()}


def _json(body: object) -> bytes | None:
    if body is None:
        return None
    try:
        return json.dumps(body, allow_nan=False).encode()
    except ValueError as problem:
        raise ValueError(f"body cannot be written as JSON (NaN and Infinity cannot): {problem}") from None
    except TypeError as problem:
        raise TypeError(f"body cannot be written as JSON: {problem}") from None


def _header_name(name: object) -> str:
    if not isinstance(name, str) or not _TOKEN.fullmatch(name):
        raise ValueError(f"headers: {name!r} is not a header name")
    if name.title() in _FRAMING:
        raise ValueError(f"headers: {name!r} is for the client to set")
    return name.title()


def _header_value(name: str, value: object) -> str:
    if not isinstance(value, str) or not _VALUE.fullmatch(value):
        raise ValueError(f"headers: the value of {name} must be Latin-1 text on one line")
    return value
