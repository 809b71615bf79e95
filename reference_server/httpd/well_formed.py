"""What `http.server` lets through and HTTP does not: the shape of request line and headers."""

import re
from email.errors import (
    FirstHeaderLineIsContinuationDefect,
    MisplacedEnvelopeHeaderDefect,
    MissingHeaderBodySeparatorDefect,
)
from email.message import Message as Headers

_TOKEN = r"[!#$%&'*+.^_`|~0-9A-Za-z-]+"
# What may stand raw in a target differs between path and query; the rest must be UTF-8.
_PATH = r"(?:/|\*|\w+:)[^\x00-\x20<>`?\x7f]*"
_QUERY = r"""\?[^\x00-\x20"<>\x7f]*"""
_REQUEST_LINE = re.compile(rf"{_TOKEN} {_PATH}(?:{_QUERY})? HTTP/1\.[01]\r?\n")
_HEADER_NAME = re.compile(_TOKEN)
_NOT_IN_A_VALUE = re.compile(r"[\x00-\x08\x0a-\x1f\x7f]")
_BROKEN = (FirstHeaderLineIsContinuationDefect, MisplacedEnvelopeHeaderDefect, MissingHeaderBodySeparatorDefect)


def well_formed(line: bytes) -> bool:
    """Whether a request line is one of HTTP/1.0 or 1.1, in UTF-8."""
    try:
        line.decode()
    except UnicodeDecodeError:
        return False
    return bool(_REQUEST_LINE.fullmatch(line.decode("latin-1")))


def clean(headers: Headers) -> bool:
    """Whether headers are one a line, with a colon, a name and a harmless value."""
    # The parser of `email` takes folded lines and lines without a colon.
    broken = any(isinstance(defect, _BROKEN) for defect in headers.defects)
    return not broken and all(
        _HEADER_NAME.fullmatch(name) and not _NOT_IN_A_VALUE.search(value) for name, value in headers.items()
    )
