"""The selector language, as its reference, chapter "Selectors", has it; and what SMG 1.11 made of 255 selectors."""

import json
import sys
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs, urlsplit

import pytest

from smg.rl import Selector, SelectorError, Term

WHITE_SPACE = [char for char in map(chr, range(sys.maxunicode + 1)) if char.isspace() and not "\x1c" <= char <= "\x1f"]

A_IS_B = (Term("a", "=", ("b",)),)

PARSED = {
    "a=b": A_IS_B,
    " \t a\n=\r\nb \x0b": A_IS_B,
    'a="b"': A_IS_B,
    "a!=b": (Term("a", "!=", ("b",)),),
    "a in (b)": (Term("a", "in", ("b",)),),
    "a in(b)": (Term("a", "in", ("b",)),),
    "a  in\t( b ,c,\nd )": (Term("a", "in", ("b", "c", "d")),),
    "a notin (b,c)": (Term("a", "notin", ("b", "c")),),
    "a notin(b)": (Term("a", "notin", ("b",)),),
    "a in (b,b)": (Term("a", "in", ("b", "b")),),
    "a=b , c!=d": (Term("a", "=", ("b",)), Term("c", "!=", ("d",))),
    "a=b,a=b": A_IS_B * 2,
    "a=b,a=c": (Term("a", "=", ("b",)), Term("a", "=", ("c",))),
    "azAZ09_./-=b": (Term("azAZ09_./-", "=", ("b",)),),
    "in in (in)": (Term("in", "in", ("in",)),),
    "notin=notin": (Term("notin", "=", ("notin",)),),
    'a=""': (Term("a", "=", ("",)),),
    'a in ("")': (Term("a", "in", ("",)),),
    'a=" b, (c) "': (Term("a", "=", (" b, (c) ",)),),
    r'a="say \"hi\" \\ bye"': (Term("a", "=", ('say "hi" \\ bye',)),),
    r"a=b\c": (Term("a", "=", (r"b\c",)),),
    "a= =b": (Term("a", "=", ("=b",)),),
    "a!==b": (Term("a", "!=", ("=b",)),),
    "a=b=c": (Term("a", "=", ("b=c",)),),
    "a=!~;&|'*[]{}<>?#%": (Term("a", "=", ("!~;&|'*[]{}<>?#%",)),),
    "a=café☃😀": (Term("a", "=", ("café☃😀",)),),
    "a=\x00\x1c\u180e\u200b\ufeff": (Term("a", "=", ("\x00\x1c\u180e\u200b\ufeff",)),),
    "base_url=http://[::1]:31000": (Term("base_url", "=", ("http://[::1]:31000",)),),
    'base_url="http://[::1]:31000"': (Term("base_url", "=", ("http://[::1]:31000",)),),
}

OPERATOR = "expected operator (`=`, `!=`, `in`, `notin`)"
END = "expected `,` or end of selector"

REFUSED = [
    ("", 0, "expected key"),
    (" \t\n", 0, "expected key"),
    ("=b", 0, "expected key"),
    ("  =b", 0, "expected key"),
    ("!a", 0, "expected key"),
    (",", 0, "expected key"),
    ("(a=b)", 0, "expected key"),
    ('"a"=b', 0, "expected key"),
    ("☃=b", 0, "expected key"),
    ("\x1ca=b", 0, "expected key"),
    ("a=b,,c=d", 4, "expected key"),
    ("a=b, ,c=d", 5, "expected key"),
    ("a=b,", 4, "expected key after `,`"),
    ("a=b ,  ", 5, "expected key after `,`"),
    ("a", 1, OPERATOR),
    ("a  ", 1, OPERATOR),
    ("  a b", 2, OPERATOR),
    ("a,b=c", 1, OPERATOR),
    ("café=b", 3, OPERATOR),
    ("a IN (b)", 2, OPERATOR),
    ("a not in (b)", 2, OPERATOR),
    ("a in", 2, OPERATOR),
    ("a notin", 2, OPERATOR),
    ("a inx (b)", 2, OPERATOR),
    ("a in=b", 2, OPERATOR),
    ('a in"b"', 2, OPERATOR),
    ("in (b)", 3, OPERATOR),
    ("ain (b)", 4, OPERATOR),
    ("a==b", 2, "expected value after `=`"),
    ("a  == b", 4, "expected value after `=`"),
    ("a=", 2, "expected value"),
    ("a!= ", 3, "expected value"),
    ("a=,b=c", 2, "expected value"),
    ("a=(b)", 2, "expected value"),
    ("a in ()", 6, "expected value"),
    ("a in ( )", 7, "expected value"),
    ("a in (", 6, "expected value"),
    ("a in (b,)", 8, "expected value"),
    ("a in (,b)", 6, "expected value"),
    ("a in b", 5, "expected `(`"),
    ("a notin [b]", 8, "expected `(`"),
    ("a in (b", 7, "expected `,` or `)`"),
    ("a in (b c)", 8, "expected `,` or `)`"),
    ('a in ("b"c)', 9, "expected `,` or `)`"),
    ("a=b c", 4, END),
    ("a=b)", 3, END),
    ('a=b"', 3, END),
    ('a="b"c', 5, END),
    ("a in (b)c", 8, END),
    ("a=é b", 5, END),
    ("a=😀 b", 7, END),
    ("a=\ud800 b", 6, END),
    ('a="b', 4, "unterminated quoted value"),
    ('a="é☃', 8, "unterminated quoted value"),
    (r'a="b\"', 6, "unterminated quoted value"),
    (r'a="\x"', 5, "invalid escape in quoted value"),
    ('a="b\\', 5, "invalid escape in quoted value"),
    ('a="\\é"', 6, "invalid escape in quoted value"),
]

LABELS = {"a": "1", "b": "", "A": "x"}

MATCHED = {
    "a=1": True,
    "a=2": False,
    "a=01": False,
    "A=X": False,
    "A=1": False,
    'b=""': True,
    'c=""': False,
    "a!=1": False,
    "a!=2": True,
    'b!=""': False,
    "c!=1": True,
    'c!=""': True,
    "a in (0,1)": True,
    "a in (0,2)": False,
    'c in ("",1)': False,
    "a notin (0,1)": False,
    "a notin (0,2)": True,
    "c notin (0,1)": True,
    "a=1,A=x": True,
    "a=1,A=y": False,
    "a=1,a=2": False,
    "a!=2,c notin (1)": True,
    "a=*": False,
}

PRINTED = [
    (Term("a", "=", ("b",)), "a=b"),
    (Term("a", "!=", ("b",)), "a!=b"),
    (Term("a", "in", ("b", "c d")), 'a in (b,"c d")'),
    (Term("a", "notin", ("b",)), "a notin (b)"),
    (Term("a", "=", ("",)), 'a=""'),
    (Term("a", "=", ("a,b",)), 'a="a,b"'),
    (Term("a", "=", ("(b)",)), 'a="(b)"'),
    (Term("a", "=", ('b"c',)), r'a="b\"c"'),
    (Term("a", "=", ('\\ "',)), r'a="\\ \""'),
    (Term("a", "=", (r"b\c",)), r"a=b\c"),
    (Term("a", "=", ("=b",)), 'a="=b"'),
    (Term("a", "=", ("\xa0b",)), 'a="\xa0b"'),
    (Term("a", "=", ("http://h:1/x@2",)), "a=http://h:1/x@2"),
]


@pytest.mark.parametrize(("text", "terms"), PARSED.items())
def test_a_selector_is_its_terms(text: str, terms: tuple[Term, ...]) -> None:
    assert Selector.parse(text) == Selector(terms)


@pytest.mark.parametrize("space", WHITE_SPACE, ids=ascii)
def test_every_white_space_of_unicode_is_ignored_around_tokens(space: str) -> None:
    text = f"{space}a{space}={space}b{space},{space}c{space}in{space}({space}d{space},{space}e{space}){space}"
    assert Selector.parse(text) == Selector.parse("a=b,c in (d,e)")


@pytest.mark.parametrize(("text", "offset", "reason"), REFUSED)
def test_an_error_says_where_and_what_was_expected(text: str, offset: int, reason: str) -> None:
    with pytest.raises(SelectorError) as caught:
        Selector.parse(text)
    error = caught.value
    assert (error.offset, error.reason) == (offset, reason)
    assert error.source == text.strip("".join(WHITE_SPACE))
    assert str(error) == f"invalid selector at byte {offset}: {reason}"


def test_an_error_is_a_value_error() -> None:
    assert issubclass(SelectorError, ValueError)


@pytest.mark.parametrize(("text", "matches"), MATCHED.items())
def test_all_terms_must_hold_exactly(text: str, matches: bool) -> None:
    assert Selector.parse(text).matches(LABELS) is matches


@pytest.mark.parametrize(("term", "text"), PRINTED)
def test_a_term_prints_as_it_is_written_with_quotes_only_where_needed(term: Term, text: str) -> None:
    assert (str(term), str(Selector((term,)))) == (text, text)


def test_terms_print_in_their_order_without_spaces_between_them() -> None:
    assert str(Selector.parse(" b = 1 , a  in ( 2 , 3 ) ")) == "b=1,a in (2,3)"


@pytest.mark.parametrize("key", ["", "a b", "é", "a=", '"a"', "a,", "a\n", "a:b"])
def test_a_term_with_a_key_that_cannot_be_written_does_not_construct(key: str) -> None:
    with pytest.raises(ValueError, match="key"):
        Term(key, "=", ("b",))


@pytest.mark.parametrize("operator", ["", "==", "IN", "not in", "=~", ">"])
def test_a_term_with_another_operator_does_not_construct(operator: str) -> None:
    with pytest.raises(ValueError, match="operator"):
        Term("a", operator, ("b",))


@pytest.mark.parametrize(
    ("operator", "values"), [("=", ()), ("=", ("b", "c")), ("!=", ()), ("!=", ("b", "c")), ("in", ()), ("notin", ())]
)
def test_a_term_with_too_few_or_too_many_values_does_not_construct(operator: str, values: tuple[str, ...]) -> None:
    with pytest.raises(ValueError, match=f"{len(values)} values"):
        Term("a", operator, values)


def test_a_selector_without_terms_does_not_construct() -> None:
    with pytest.raises(ValueError, match="at least one term"):
        Selector(())


def test_selectors_and_terms_are_values() -> None:
    assert {Selector.parse("a=b"), Selector.parse(" a = b ")} == {Selector(A_IS_B)}
    with pytest.raises(AttributeError):
        Selector(A_IS_B).terms = ()  # type: ignore[misc]  # frozen, which is the point


FILE: dict[str, Any] = json.loads((Path(__file__).parents[2] / "vectors" / "selectors.json").read_text("utf-8"))
# Three never reached the selector: their raw `<` and `>` are not a URL, and the answer is no JSON.
CASES = [case for case in FILE["cases"] if "json" in case["expect"]["responses"][0]]

DISCOVERED = {"s0": {"weight_version": "default"}, "s1": {"weight_version": "default"}, "s2": {"version": "0.11.0"}}


def fleet() -> dict[str, dict[str, str]]:
    """The labels of the recorded workers: discovered ones, registered ones, derived keys; the later one wins."""
    registered = {row["url"][len("http://<<addr:") : -len(">>")]: row for row in FILE["setups"]["sel"]["register"]}
    engines = {engine["name"]: engine["profile"] for engine in FILE["setups"]["sel"]["engines"]}
    return {
        f"<<id:{name}>>": {
            **DISCOVERED[name],
            **registered[name]["labels"],
            "id": f"<<id:{name}>>",
            "url": registered[name]["url"],
            "base_url": registered[name]["url"],
            "engine": engines[name],
            "model": "test/model",
            "worker_type": "regular",
            "connection_mode": "http",
            "health": "ready",
        }
        for name in engines
    }


def outcome(text: str) -> object:
    """What the language says: an offset and a message, or whom the selector matches."""
    try:
        selector = Selector.parse(text)
    except SelectorError as error:
        return error.offset, str(error)
    return {worker for worker, labels in fleet().items() if selector.matches(labels)}


def recorded(answer: dict[str, Any]) -> object:
    if answer["status"] == 200:
        return set(answer["json"]["results"])
    if answer["json"]["error"] == "no_workers_match":
        return set()
    if answer["json"]["error"] == "selector_required":
        return 0, "invalid selector at byte 0: expected key"
    assert answer["json"]["error"] == "invalid_selector"
    return answer["json"]["offset"], answer["json"]["message"]


def test_nearly_every_vector_is_here() -> None:
    assert len(FILE["cases"]) - len(CASES) == 3
    assert len(CASES) >= 255


@pytest.mark.parametrize("case", CASES, ids=[case["id"] for case in CASES])
def test_a_selector_means_what_it_meant_to_smg(case: dict[str, Any]) -> None:
    (step,), (answer,) = case["steps"], case["expect"]["responses"]
    query = parse_qs(urlsplit(step["target"]).query, keep_blank_values=True, strict_parsing=True)
    assert outcome(query["selector"][0]) == recorded(answer)
