"""Made-up selectors and labels, with a taste for what is hard to write down."""

import string

from hypothesis import strategies as st

from smg.rl import Selector, Term

# Unicode's White_Space property, written out.
SPACES = "\t\n\x0b\x0c\r \x85\xa0\u1680\u2000\u2001\u2002\u2003\u2004\u2005\u2006\u2007\u2008\u2009\u200a"
SPACES += "\u2028\u2029\u202f\u205f\u3000"

spaces = st.text(SPACES, max_size=3)

keys = st.one_of(
    st.sampled_from(["a", "b", "in", "notin", "engine", "x.y/z-1", ".", "/", "-", "0"]),
    st.text(string.ascii_letters + string.digits + "_./-", min_size=1, max_size=8),
)

# Any text at all: lone surrogates too, which a JSON body can bring in.
values = st.one_of(
    st.sampled_from(["", "a", "b", "=", "=a", "!=a", '"', "\\", '\\"', "a,b", "(a)", " a ", "\x1c", "é", "☃", "in"]),
    st.text(st.characters(), max_size=8),
    st.text('"\\,() =', max_size=6),
)


def _term(key: str, operator: str, some: list[str]) -> Term:
    return Term(key, operator, tuple(some if operator in ("in", "notin") else some[:1]))


terms = st.builds(_term, keys, st.sampled_from(["=", "!=", "in", "notin"]), st.lists(values, min_size=1, max_size=4))
selectors = st.builds(Selector, st.lists(terms, min_size=1, max_size=4).map(tuple))
labels = st.dictionaries(keys, values, max_size=6)

# Texts that nearly are selectors go further into the grammar than arbitrary ones.
scraps = st.one_of(st.sampled_from('a b role in notin = != == ( ) , " \\ é ☃ \\x'.split()), spaces, values)
texts = st.one_of(st.text(st.characters(), max_size=20), st.lists(scraps, max_size=12).map("".join))


def quoted(value: str) -> str:
    return '"' + value.replace("\\", "\\\\").replace('"', '\\"') + '"'


@st.composite
def spaced(draw: st.DrawFn, selector: Selector) -> str:
    """A way to write the selector with white space wherever it may stand."""

    def listed(values: tuple[str, ...]) -> str:
        return "(" + ",".join(f"{draw(spaces)}{quoted(value)}{draw(spaces)}" for value in values) + ")"

    def written(term: Term) -> str:
        if term.operator in ("=", "!="):
            return f"{term.key}{draw(spaces)}{term.operator}{draw(spaces)}{quoted(term.values[0])}"
        # Without white space before it, `in` would be part of the key.
        return f"{term.key}{draw(st.text(SPACES, min_size=1))}{term.operator}{draw(spaces)}{listed(term.values)}"

    return ",".join(f"{draw(spaces)}{written(term)}{draw(spaces)}" for term in selector.terms)
