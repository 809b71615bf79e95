"""The target of a control request: path parts and the `selector` parameter.

Contract, chapter "Engine paths, query, headers, body".
"""

import re
from urllib.parse import unquote_to_bytes

from .errors import text_refusal

_SELECTOR = "selector"
_NOT_IN_A_URL = re.compile(r"[\x80-\xff']")


def decode_part(raw: str, name: str) -> str:
    """A path parameter without its percent escapes; raises `Refusal` when it is not UTF-8."""
    try:
        return unquote_to_bytes(raw.encode("latin-1")).decode()
    except UnicodeDecodeError:
        raise text_refusal(400, f"Invalid URL: Invalid UTF-8 in `{name}`") from None


def selectors_in(query: str) -> list[str]:
    """Every value of the `selector` parameter, read as a form: `+` is a space."""
    pieces = (piece.partition("=") for piece in query.split("&"))
    return [_form(value) for name, _, value in pieces if _form(name) == _SELECTOR]


def without_selector(query: str) -> str:
    """What goes on to the engine: every other piece as it came. Empty pieces vanish,
    and a byte that may not stand in a URL is escaped."""
    pieces = query.split("&")
    kept = "&".join(piece for piece in pieces if piece and _form(piece.partition("=")[0]) != _SELECTOR)
    return _NOT_IN_A_URL.sub(lambda found: f"%{ord(found.group()):02X}", kept)


def _form(raw: str) -> str:
    return unquote_to_bytes(raw.replace("+", " ").encode("latin-1")).decode("utf-8", "replace")
