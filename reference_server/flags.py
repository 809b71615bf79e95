"""Settings, each told once: a field of a dataclass that is a flag of a command too.

What `setting` is told of a field becomes an argument of argparse (`add_flags`), the way back
from parsed flags to values (`read_flags`) and a line of the class' documentation (`documented`).
"""

import inspect
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import MISSING, Field, field, fields
from typing import TYPE_CHECKING, Any, TypedDict, TypeVar, cast

if TYPE_CHECKING:
    # argparse is for commands: who uses a gateway in process does not wait for it.
    import argparse

    from typing_extensions import Unpack

T = TypeVar("T")


class How(TypedDict, total=False):
    """What may be told of a setting besides its name, type, default and help."""

    flags: Sequence[str]
    """Names of its flag, without dashes; empty for none. Else the field's name, or `no-` and the
    name for what is true by default."""
    metavar: str
    nargs: str
    """`*` or `+` for a flag that takes several words."""
    parse: Callable[[str], object]
    """What each word becomes; a `ValueError` makes it a malformed flag. Else the default's type,
    `str` for None and for several words."""
    read: Callable[[Any], object]
    """What the whole becomes for the field; a `ValueError` makes it a refused value."""
    launch: object
    """The default of the flag, where it is not the field's."""
    group: str
    """The title of the flag in `--help`."""
    parts: type[Any]
    """The dataclass of the value: its fields are the settings, within this one's group."""


def setting(default: T, help: str, *, secret: bool = False, **how: "Unpack[How]") -> T:
    """A field of a dataclass: `help` is one sentence for flag and field, imperative for a bool,
    as the flag of what is true by default reads `do not …`. A secret is in no `repr`."""
    return field(default=default, repr=not secret, metadata=about(help, **how))


def about(help: str, **how: "Unpack[How]") -> Mapping[str, object]:
    """The metadata of such a field, for one that has no default or makes it."""
    return {"help": help, **how}


def documented(kind: type[T]) -> type[T]:
    """A class decorator: the docstring of a dataclass ends with what is told of each field."""
    told = [f"{one.name}: {one.metadata['help']}" for one in fields(cast("type[Any]", kind))]
    kind.__doc__ = "\n".join([inspect.cleandoc(f"{kind.__doc__}"), "", *told])
    return kind


def add_flags(
    parser: "argparse.ArgumentParser", kind: type[Any], only: Collection[str] = ()
) -> "dict[str, argparse._ArgumentGroup]":
    """Give a parser the flags of a dataclass' fields, or `only` of some; returns the groups by title."""
    groups: dict[str, argparse._ArgumentGroup] = {}
    for path, title, one in _flagged(kind):
        if only and path not in only:
            continue
        if title and title not in groups:
            groups[title] = parser.add_argument_group(title)
        names = [f"--{name}" for name in _names(one)]
        (groups[title] if title else parser).add_argument(*names, dest=path, **_argument(one))
    return groups


def read_flags(kind: type[Any], parsed: "argparse.Namespace", within: str = "") -> dict[str, Any]:
    """The keywords for a dataclass that its parsed flags stand for.

    What is None by default and has `parts` stays None unless one of the parts that have no
    default is given. Raises `ValueError` for a refused value, beginning with the field's name.
    """
    found: dict[str, Any] = {}
    for one in fields(kind):
        how, path = _how(one), within + one.name
        if parts := how.get("parts"):
            values = read_flags(parts, parsed, f"{path}.")
            if one.default is not None or any(values[part.name] for part in fields(parts) if _required(part)):
                found[one.name] = parts(**values)
        elif _names(one):
            found[one.name] = _read(path, getattr(parsed, path), how)
    return found


def default_of(one: "Field[Any]") -> object:
    """What a flag is when it is not typed: None for a field that has no default."""
    return _how(one).get("launch", None if one.default is MISSING else one.default)


def shown(default: object) -> str:
    """How `--help` tells a default: as one would type it."""
    words = [] if default is None else default if isinstance(default, (tuple, list)) else [default]
    return f"(default {' '.join(map(str, words)) or 'none'})"


def _flagged(kind: type[Any], within: str = "", title: str = "") -> "Iterator[tuple[str, str, Field[Any]]]":
    """Every field that has a flag, those of its parts too: path (`health.interval`), group, field."""
    for one in fields(kind):
        how, path = _how(one), within + one.name
        group = how.get("group", title)
        if parts := how.get("parts"):
            yield from _flagged(parts, f"{path}.", group)
        elif _names(one):
            yield path, group, one


def _how(one: "Field[Any]") -> "How":
    return cast("How", one.metadata)


def _required(one: "Field[Any]") -> bool:
    return one.default is MISSING and one.default_factory is MISSING


def _names(one: "Field[Any]") -> Sequence[str]:
    name = one.name.replace("_", "-")
    return _how(one).get("flags", (f"no-{name}" if one.default is True else name,))


def _argument(one: "Field[Any]") -> dict[str, Any]:
    """The keywords of `add_argument`."""
    how, default, help = _how(one), default_of(one), str(one.metadata["help"])
    if isinstance(default, bool):
        action = "store_false" if default else "store_true"
        return {"action": action, "help": _escaped(f"do not {help}" if default else help)}
    own = str if default is None or "nargs" in how else type(default)
    return {
        "type": how.get("parse", own),
        "default": default,
        "nargs": how.get("nargs"),
        "metavar": how.get("metavar", one.name.upper()),
        "help": _escaped(f"{help} {shown(default)}"),
    }


def _escaped(help: str) -> str:
    # argparse fills in what stands behind a %.
    return help.replace("%", "%%")


def _read(path: str, typed: object, how: "How") -> object:
    # A value that is frozen holds no list.
    value = tuple(typed) if isinstance(typed, list) else typed
    try:
        return how["read"](value) if "read" in how else value
    except ValueError as problem:
        raise ValueError(f"{path}: {problem}") from None
