"""One entry makes a setting: a field, its flag, its help and its documentation."""

import argparse
import dataclasses

import pytest

from reference_server.flags import about, add_flags, documented, read_flags, setting, shown


@documented
@dataclasses.dataclass(frozen=True)
class Water:
    """What tea is brewed with."""

    spring: str = dataclasses.field(metadata=about("spring that it comes from", flags=["spring"]))
    degrees: int = setting(80, "degrees that it has", flags=["degrees"])


def _even(cups: int) -> int:
    if cups % 2:
        raise ValueError("must be even")
    return cups


@documented
@dataclasses.dataclass(frozen=True)
class Tea:
    """What is brewed."""

    leaves: str = setting("green", "leaves that are taken, 100% of them", metavar="KIND")
    sweet: bool = setting(True, "add some honey to it")
    cups: int = setting(1, "cups that are filled", launch=2, read=_even, group="amounts")
    friends: tuple[str, ...] = setting((), "guests that come", flags=["friend", "friends"], nargs="*")
    recipe: str = setting("old", "recipe that only a keyword sets", secret=True, flags=())
    water: Water | None = setting(None, "water of its own", parts=Water, group="the water")


def brewed(flags: str) -> Tea:
    parser = argparse.ArgumentParser()
    assert list(add_flags(parser, Tea)) == ["amounts", "the water"]
    return Tea(**read_flags(Tea, parser.parse_args(flags.split())))


BREWED = [
    ("", Tea(cups=2)),
    ("--leaves black --no-sweet --cups 4", Tea("black", False, 4)),
    ("--friend a b", Tea(cups=2, friends=("a", "b"))),
    ("--friends a", Tea(cups=2, friends=("a",))),
    ("--spring deep", Tea(cups=2, water=Water("deep"))),
    ("--spring deep --degrees 70", Tea(cups=2, water=Water("deep", 70))),
    ("--degrees 70", Tea(cups=2)),
]


@pytest.mark.parametrize(("flags", "tea"), BREWED, ids=[flags for flags, _ in BREWED])
def test_flags_become_fields(flags: str, tea: Tea) -> None:
    assert brewed(flags) == tea


def test_a_refused_value_is_told_with_its_field_and_a_malformed_one_with_its_flag(
    capsys: pytest.CaptureFixture[str],
) -> None:
    with pytest.raises(ValueError, match="^cups: must be even$"):
        brewed("--cups 3")
    for flags, says in (("--cups few", "argument --cups: invalid int value: 'few'"), ("--recipe new", "--recipe new")):
        with pytest.raises(SystemExit):
            brewed(flags)
        assert says in capsys.readouterr().err


HELP = """\
options:
  -h, --help            show this help message and exit
  --leaves KIND         leaves that are taken, 100% of them (default green)
  --no-sweet            do not add some honey to it
  --friend [FRIENDS ...], --friends [FRIENDS ...]
                        guests that come (default none)

amounts:
  --cups CUPS           cups that are filled (default 2)
"""


def test_help_is_made_of_what_was_told(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "80")
    parser = argparse.ArgumentParser()
    add_flags(parser, Tea, only=("leaves", "sweet", "cups", "friends"))
    _usage, _, told = parser.format_help().partition("\n\n")
    # Since Python 3.13 the metavar stands behind the last name only.
    assert told.replace("--friend, --friends", "--friend [FRIENDS ...], --friends") == HELP


def test_documentation_is_made_of_what_was_told() -> None:
    assert str(Tea.__doc__).startswith("What is brewed.\n\nleaves: leaves that are taken, 100% of them\nsweet: add")
    assert "old" not in repr(Tea())


def test_a_default_is_shown_as_one_would_type_it() -> None:
    shows = {60: "60", 0.5: "0.5", (): "none", None: "none", "": "none", ("a", "b"): "a b", "/x": "/x"}
    assert {value: shown(value) for value in shows} == {value: f"(default {text})" for value, text in shows.items()}
