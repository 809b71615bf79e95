"""The selector language: text -> Selector(Term…) -> matches(labels).

Contract, chapter "Selectors". The grammar, one production a method of `_Parser`::

    selector = term *( "," term )
    term     = key ( "=" value / "!=" value / ( "in" / "notin" ) "(" value *( "," value ) ")" )
    key      = 1*[A-Za-z0-9_./-]
    value    = quoted / bare
    quoted   = DQUOTE *( any but DQUOTE and backslash / "\\" DQUOTE / "\\\\" ) DQUOTE
    bare     = 1*( any but white space, comma, parentheses and DQUOTE )

White space around every token is ignored.
"""

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass

# Unicode's White_Space property. `str.isspace` differs: it counts U+001C to U+001F.
SPACE = "\t\n\x0b\x0c\r \x85\xa0\u1680" + "".join(map(chr, range(0x2000, 0x200B))) + "\u2028\u2029\u202f\u205f\u3000"
"""The white space that may stand around a selector and its tokens."""

_SPACES = re.compile(f"[{SPACE}]*")
_KEY = re.compile(r"[A-Za-z0-9_./-]+")
_OPERATOR = re.compile(rf"!=|=|(?:in|notin)(?=[{SPACE}(])")
_BARE = re.compile(rf'[^{SPACE},()"]+')
_QUOTED = re.compile(r'"((?:[^"\\]|\\["\\])*)')

_HOLDS = {
    "=": lambda value, wanted: value is not None and value in wanted,
    "in": lambda value, wanted: value is not None and value in wanted,
    "!=": lambda value, wanted: value is None or value not in wanted,
    "notin": lambda value, wanted: value is None or value not in wanted,
}


class SelectorError(ValueError):
    """A selector that does not parse.

    `source` is the selector without outer white space, `offset` the place of the
    problem in bytes of its UTF-8 form, `reason` what was expected there.
    """

    def __init__(self, source: str, offset: int, reason: str) -> None:
        super().__init__(f"invalid selector at byte {offset}: {reason}")
        self.source, self.offset, self.reason = source, offset, reason

    @property
    def caret(self) -> str:
        """The selector, and below it a caret at the place of the problem."""
        before = self.source.encode("utf-8", "surrogatepass")[: self.offset].decode("utf-8", "surrogatepass")
        shown = self.source.replace("\n", " ").replace("\t", " ")
        return f"{shown}\n{' ' * len(before)}^"

    def __reduce__(self) -> "tuple[type[SelectorError], tuple[str, int, str]]":
        return type(self), (self.source, self.offset, self.reason)


@dataclass(frozen=True)
class Term:
    """One condition: `key`, `operator` (`=`, `!=`, `in`, `notin`), `values`.

    Raises `ValueError` for a key, an operator or a number of values that the
    language does not have, so that every term can be printed and parsed back.
    """

    key: str
    operator: str
    values: tuple[str, ...]

    def __post_init__(self) -> None:
        if not _KEY.fullmatch(self.key):
            raise ValueError(f"a selector key is made of A-Z a-z 0-9 _ . / -, got {self.key!r}")
        if self.operator not in _HOLDS:
            raise ValueError(f"a selector operator is one of {', '.join(_HOLDS)}, got {self.operator!r}")
        if not self.values or (self.operator in ("=", "!=") and len(self.values) != 1):
            raise ValueError(f"`{self.key} {self.operator}` cannot take {len(self.values)} values")

    def matches(self, labels: Mapping[str, str]) -> bool:
        """Whether this condition holds; a missing key satisfies `!=` and `notin` only."""
        return _HOLDS[self.operator](labels.get(self.key), self.values)

    def __str__(self) -> str:
        if self.operator in ("=", "!="):
            return f"{self.key}{self.operator}{_written(self.values[0])}"
        return f"{self.key} {self.operator} ({','.join(map(_written, self.values))})"


@dataclass(frozen=True)
class Selector:
    """Terms that must all hold. `Selector.parse` reads one, `str` writes it back."""

    terms: tuple[Term, ...]

    def __post_init__(self) -> None:
        if not self.terms:
            raise ValueError("a selector has at least one term")

    @classmethod
    def parse(cls, text: str) -> "Selector":
        """Read a selector; raises `SelectorError` with the byte offset of the problem."""
        return cls(_Parser(text.strip(SPACE)).selector())

    @classmethod
    def of(cls, labels: Mapping[str, str | Iterable[str]] | None = None, /, **more: str | Iterable[str]) -> "Selector":
        """A selector from values: `Selector.of(engine="sglang", role=("policy", "critic"))`.

        A text must be equal, of several one. Keys that are no Python names go into a mapping.
        """
        wanted = {**(labels or {}), **more}
        return cls(tuple(_of(key, value) for key, value in wanted.items()))

    def matches(self, labels: Mapping[str, str]) -> bool:
        """Whether a worker with these labels (derived keys included) is selected."""
        return all(term.matches(labels) for term in self.terms)

    def __str__(self) -> str:
        return ",".join(map(str, self.terms))


def _of(key: str, value: str | Iterable[str]) -> Term:
    return Term(key, "=", (value,)) if isinstance(value, str) else Term(key, "in", tuple(value))


def _written(value: str) -> str:
    # `k==v` is not in the language, so a value that begins with `=` needs its quotes.
    if _BARE.fullmatch(value) and not value.startswith("="):
        return value
    escaped = value.replace("\\", "\\\\").replace('"', '\\"')
    return f'"{escaped}"'


class _Parser:
    def __init__(self, source: str) -> None:
        self.source, self.at = source, 0

    def error(self, reason: str) -> SelectorError:
        offset = len(self.source[: self.at].encode("utf-8", "surrogatepass"))
        return SelectorError(self.source, offset, reason)

    def take(self, pattern: re.Pattern[str], expected: str) -> str:
        found = pattern.match(self.source, self.at)
        if not found:
            raise self.error(f"expected {expected}")
        self.at = found.end()
        return found.group()

    def token(self, pattern: re.Pattern[str], expected: str) -> str:
        text = self.take(pattern, expected)
        self.space()
        return text

    def space(self) -> None:
        self.take(_SPACES, "nothing")

    def next_is(self, char: str) -> bool:
        return self.source.startswith(char, self.at)

    def skip(self, char: str, expected: str) -> None:
        if not self.next_is(char):
            raise self.error(f"expected {expected}")
        self.at += 1
        self.space()

    def selector(self) -> tuple[Term, ...]:
        terms = [self.term("key")]
        while self.at < len(self.source):
            self.skip(",", "`,` or end of selector")
            # Only at the very end does the comma take the blame.
            terms.append(self.term("key" if self.at < len(self.source) else "key after `,`"))
        return tuple(terms)

    def term(self, expected: str) -> Term:
        key = self.token(_KEY, expected)
        operator = self.take(_OPERATOR, "operator (`=`, `!=`, `in`, `notin`)")
        if operator == "=" and self.next_is("="):
            raise self.error("expected value after `=`")
        self.space()
        values = (self.value(),) if operator in ("=", "!=") else self.list()
        return Term(key, operator, values)

    def list(self) -> tuple[str, ...]:
        self.skip("(", "`(`")
        values = [self.value()]
        while self.next_is(","):
            self.skip(",", "`,`")
            values.append(self.value())
        self.skip(")", "`,` or `)`")
        return tuple(values)

    def value(self) -> str:
        if self.next_is('"'):
            return self.quoted()
        return self.token(_BARE, "value")

    def quoted(self) -> str:
        text = self.take(_QUOTED, "value")[1:]
        if not self.next_is('"'):
            # The pattern stops at the end, or before a backslash that escapes nothing.
            escape = self.at < len(self.source)
            self.at = min(self.at + 2, len(self.source))
            raise self.error("invalid escape in quoted value" if escape else "unterminated quoted value")
        self.at += 1
        self.space()
        return re.sub(r"\\(.)", r"\1", text)
