"""What is true of every selector."""

from hypothesis import given
from hypothesis import strategies as st

from smg.rl import Selector, SelectorError, Term

from .strategies import (
    SPACES,
    keys,
    labels,
    quoted,
    selectors,
    spaced,
    spaces,
    terms,
    texts,
    values,
)

OPPOSITES = [("=", "!="), ("in", "notin")]


def parsed(text: str) -> Selector | SelectorError:
    try:
        return Selector.parse(text)
    except SelectorError as error:
        return error


def holds(term: Term, given_labels: dict[str, str]) -> bool:
    """The table of the contract, word by word."""
    if term.key not in given_labels:
        return term.operator in ("!=", "notin")
    value = given_labels[term.key]
    return {
        "=": value == term.values[0],
        "!=": value != term.values[0],
        "in": any(value == wanted for wanted in term.values),
        "notin": all(value != wanted for wanted in term.values),
    }[term.operator]


@given(selectors)
def test_what_is_printed_parses_back(selector: Selector) -> None:
    assert Selector.parse(str(selector)) == selector


@given(terms)
def test_a_printed_term_is_a_selector_of_one_term(term: Term) -> None:
    assert Selector.parse(str(term)).terms == (term,)


@given(texts)
def test_any_text_parses_or_says_where_it_does_not(text: str) -> None:
    found = parsed(text)
    if isinstance(found, SelectorError):
        source = text.strip(SPACES)
        before = found.source.encode("utf-8", "surrogatepass")[: found.offset]
        assert found.source == source
        assert 0 <= found.offset <= len(source.encode("utf-8", "surrogatepass"))
        before.decode("utf-8", "surrogatepass")  # at the border of a character
        assert str(found) == f"invalid selector at byte {found.offset}: {found.reason}"


@given(texts)
def test_printing_what_parsed_changes_nothing(text: str) -> None:
    found = parsed(text)
    if isinstance(found, Selector):
        assert Selector.parse(str(found)) == found
        assert str(Selector.parse(str(found))) == str(found)


@given(selectors, labels)
def test_a_selector_matches_when_every_term_holds(selector: Selector, some: dict[str, str]) -> None:
    assert selector.matches(some) is all(holds(term, some) for term in selector.terms)


@given(terms, values)
def test_a_term_is_told_by_its_own_label_alone(term: Term, value: str) -> None:
    assert term.matches({term.key: value}) is holds(term, {term.key: value})
    assert term.matches({term.key: value, term.key + "x": value}) is term.matches({term.key: value})


@given(keys, st.lists(values, min_size=1, max_size=3), labels, st.sampled_from(OPPOSITES), values)
def test_the_negative_operators_negate(
    key: str, wanted: list[str], some: dict[str, str], pair: tuple[str, str], own: str
) -> None:
    wanted = wanted[:1] if pair[0] == "=" else wanted
    yes, no = (Term(key, operator, tuple(wanted)) for operator in pair)
    for case in (some, {**some, key: own}, {**some, key: wanted[-1]}):
        assert yes.matches(case) is not no.matches(case)


@given(keys, values, labels)
def test_in_with_one_value_is_equality(key: str, value: str, some: dict[str, str]) -> None:
    for single, many in (("=", "in"), ("!=", "notin")):
        for case in (some, {**some, key: value}):
            assert Term(key, single, (value,)).matches(case) is Term(key, many, (value,)).matches(case)


@given(selectors, st.data())
def test_white_space_never_changes_the_meaning(selector: Selector, data: st.DataObject) -> None:
    assert Selector.parse(data.draw(spaced(selector))) == selector


@given(spaces, texts, spaces)
def test_white_space_around_a_text_changes_neither_outcome_nor_offset(before: str, text: str, after: str) -> None:
    plain, padded = parsed(text), parsed(before + text + after)
    if isinstance(plain, SelectorError) and isinstance(padded, SelectorError):
        assert (plain.source, plain.offset, plain.reason) == (padded.source, padded.offset, padded.reason)
    else:
        assert plain == padded


@given(keys, values)
def test_every_value_may_be_quoted(key: str, value: str) -> None:
    assert Selector.parse(f"{key}={quoted(value)}") == Selector((Term(key, "=", (value,)),))


@given(selectors, selectors, labels)
def test_a_comma_means_and(one: Selector, other: Selector, some: dict[str, str]) -> None:
    assert Selector.parse(f"{one},{other}").matches(some) is (one.matches(some) and other.matches(some))
