"""Long selectors in pieces: a list of ids grows with the fleet, a request line must not.

What stands before a gateway takes request lines of 8 KiB, often of 4. Everything here is a
function of values.
"""

from collections.abc import Iterator
from urllib.parse import quote_plus

from .selectors import Selector, SelectorError, Term

LONGEST_LINE = 4000
"""Bytes of a request line, method and version included."""


def pieces(selector: str | Selector, room: int) -> list[str]:
    """Selectors that together select the same, each at most `room` bytes long in a query.

    Only what `key in (…)` lists is split, of the longest list; each worker is in one piece
    only. What cannot be split is one piece, however long.
    """
    text = str(selector)
    if len(quote_plus(text)) <= room:
        return [text]
    try:
        terms = (selector if isinstance(selector, Selector) else Selector.parse(selector)).terms
    except SelectorError:
        return [text]  # the gateway says what is wrong with it
    lists = [term for term in terms if term.operator == "in" and len(term.values) > 1]
    if not lists:
        return [text]
    longest = max(lists, key=lambda term: len(str(term)))
    others = tuple(term for term in terms if term is not longest)
    spare = room - sum(len(quote_plus(str(term))) + 3 for term in others)
    return [str(Selector((*others, Term(longest.key, "in", some)))) for some in _runs(longest, spare)]


def _runs(term: Term, room: int) -> Iterator[tuple[str, ...]]:
    """The values of a term, in runs that fit; a value that is named twice comes once."""
    frame = len(quote_plus(f"{term.key} in ()"))
    run: list[str] = []
    used = frame
    for value in dict.fromkeys(term.values):
        needs = len(quote_plus(str(Term("k", "=", (value,))))) + 2
        if run and used + needs > room:
            yield tuple(run)
            run, used = [], frame
        run.append(value)
        used += needs
    yield tuple(run)
