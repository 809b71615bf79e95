"""The target of a control request: path parameters, engine path, operation, and the `selector` parameter.

An engine path has 1 to 4 segments of a small alphabet. Contract, chapters "Engine paths,
query, headers, body" and "Metrics" (the known operations).
"""

import re
from urllib.parse import unquote_to_bytes

from .errors import Code, refusal
from .httpd.messages import Refusal

_SEGMENT = re.compile(r"[A-Za-z0-9._-]+")
_MAX_SEGMENTS = 4
_SELECTOR = "selector"
_NOT_IN_A_URL = re.compile(r"[\x80-\xff']")

OPERATIONS = frozenset(
    "pause_generation continue_generation update_weights_from_disk update_weights_from_tensor"
    " update_weights_from_distributed init_weights_update_group destroy_weights_update_group"
    " update_weight_version flush_cache abort_request release_memory_occupation"
    " resume_memory_occupation pause resume sleep wake_up collective_rpc server_info"
    " get_server_info health".split()
)


def decode_part(raw: str, name: str) -> str:
    """A path parameter without its percent escapes; raises `Refusal` when it is not UTF-8."""
    try:
        return unquote_to_bytes(raw.encode("latin-1")).decode()
    except UnicodeDecodeError:
        raise Refusal.of_text(400, f"Invalid URL: Invalid UTF-8 in `{name}`") from None


def engine_path(decoded: str) -> str:
    """The path without its leading slash; raises `Refusal` (`invalid_engine_path`).

    `decoded` has its percent escapes resolved already, so that `%2e%2e` is seen as `..`.
    """
    path = decoded.removeprefix("/")
    segments = path.split("/")
    if not path:
        raise _invalid("path is empty")
    if "?" in path or "#" in path:
        raise _invalid("path must not contain `?` or `#`")
    if len(segments) > _MAX_SEGMENTS:
        raise _invalid(f"path has more than {_MAX_SEGMENTS} segments")
    for segment in segments:
        if not segment:
            raise _invalid("path has an empty segment")
        if segment in (".", ".."):
            raise _invalid("path must not contain `.` or `..` segments")
        if not _SEGMENT.fullmatch(segment):
            raise _invalid(f"segment `{segment}` contains characters outside [A-Za-z0-9._-]")
    return path


def operation(path: str) -> str:
    """The metric label of a path: its own name when known, else `other`."""
    return path if path in OPERATIONS else "other"


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


def _invalid(reason: str) -> Refusal:
    return refusal(Code.INVALID_ENGINE_PATH, f"invalid engine path: {reason}")
