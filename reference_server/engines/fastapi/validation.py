"""What a request must hold, and the 400 that says what it does not: FastAPI's rules as SGLang words them."""

import json
from collections.abc import Callable, Mapping
from typing import Any

from ...httpd.messages import Reply
from .routing import Call

Check = Callable[[object], object]
"""Takes a value and returns it as it is meant, or raises `BadValue`."""

REQUIRED = object()

Fields = Mapping[str, tuple[Check, object]]
"""The fields of a body: name -> check and default, `REQUIRED` for none."""

_BOOLEANS = dict.fromkeys(("true", "t", "yes", "y", "on", "1"), True) | dict.fromkeys(
    ("false", "f", "no", "n", "off", "0"), False
)


class BadValue(Exception):
    """A value that fails its check: the name of the problem and the sentence for it."""

    def __init__(self, kind: str, message: str) -> None:
        super().__init__(message)
        self.kind = kind


class Invalid(Exception):
    """A request that does not validate; `problems` are the lines of the answer."""

    def __init__(self, *problems: object) -> None:
        super().__init__(*problems)
        self.problems = problems

    @property
    def sentence(self) -> str:
        count = len(self.problems)
        lines = [f"{count} validation error{'s' * (count > 1)}:", *(f"  {problem}" for problem in self.problems)]
        return "\n".join(lines)

    def reply(self) -> Reply:
        return error(self.sentence, "Bad Request")


def error(message: str, kind: str) -> Reply:
    """A 400 in the envelope of the OpenAI API."""
    return Reply.of_json(400, {"object": "error", "message": message, "type": kind, "param": None, "code": 400})


def body(call: Call, fields: Fields) -> dict[str, Any]:
    """The fields of a JSON object with their defaults, others left out; raises `Invalid`."""
    return checked(_json_object(call), fields)


def checked(sent: Mapping[str, object], fields: Fields, place: str = "body") -> dict[str, Any]:
    """The fields of what was sent with their defaults, others left out; raises `Invalid`."""
    values: dict[str, Any] = {}
    problems = []
    for name, (check, default) in fields.items():
        if name not in sent:
            values[name] = default
            if default is REQUIRED:
                problems.append(problem("missing", (place, name), "Field required", sent))
            continue
        try:
            values[name] = check(sent[name])
        except BadValue as wrong:
            problems.append(problem(wrong.kind, (place, name), str(wrong), sent[name]))
    if problems:
        raise Invalid(*problems)
    return values


def seconds(call: Call, name: str) -> float:
    """A query parameter that is a number of seconds, 0 when absent; raises `Invalid`."""
    text = call.query(name)
    if text is None:
        return 0.0
    try:
        value = float(text)
    except ValueError:
        sentence = "Input should be a valid number, unable to parse string as a number"
        raise Invalid(problem("float_parsing", ("query", name), sentence, text)) from None
    if not value >= 0:
        sentence = "Input should be greater than or equal to 0"
        raise Invalid(problem("greater_than_equal", ("query", name), sentence, text))
    return value


def is_json(call: Call) -> bool:
    """Whether the body is declared to be JSON; a body without a type is not."""
    kind, _, subtype = (call.request.header("content-type") or "").partition(";")[0].strip().lower().partition("/")
    return kind == "application" and (subtype == "json" or subtype.endswith("+json"))


def read_json(call: Call) -> object:
    """The body, read as JSON; raises `Invalid`."""
    try:
        return json.loads(call.body)
    except (ValueError, RecursionError) as error:
        place = ("body", getattr(error, "pos", 0))
        raise Invalid(problem("json_invalid", place, "JSON decode error", {})) from None


def string(value: object) -> object:
    if not isinstance(value, str):
        raise BadValue("string_type", "Input should be a valid string")
    # JSON can escape half a character; nothing that holds one can be sent back.
    if any("\ud800" <= character <= "\udfff" for character in value):
        raise BadValue("string_unicode", "Input should be a valid string")
    return value


def boolean(value: object) -> object:
    if isinstance(value, bool | int | float | str):
        # 0, 1, "0" and "on" are booleans too.
        text = str(int(value)) if value in (0, 1) else str(value).lower()
        if text in _BOOLEANS:
            return _BOOLEANS[text]
        raise BadValue("bool_parsing", "Input should be a valid boolean, unable to interpret input")
    raise BadValue("bool_type", "Input should be a valid boolean")


def integer(value: object) -> object:
    if isinstance(value, int) and not isinstance(value, bool):
        return value
    raise BadValue("int_type", "Input should be a valid integer")


def number(value: object) -> object:
    if isinstance(value, int | float) and not isinstance(value, bool):
        return value
    raise BadValue("float_type", "Input should be a valid number")


def at_least(minimum: int) -> Check:
    def checked(value: object) -> object:
        number = integer(value)
        if isinstance(number, int) and number >= minimum:
            return number
        raise BadValue("greater_than_equal", f"Input should be greater than or equal to {minimum}")

    return checked


def between(lowest: int, highest: int) -> Check:
    """For a query, where a number is text."""

    def checked(value: object) -> object:
        text = str(value)
        if not (text.isascii() and text.removeprefix("-").isdigit()):
            raise BadValue("int_parsing", "Input should be a valid integer, unable to parse string as an integer")
        if int(text) < lowest:
            raise BadValue("greater_than_equal", f"Input should be greater than or equal to {lowest}")
        if int(text) > highest:
            raise BadValue("less_than_equal", f"Input should be less than or equal to {highest}")
        return int(text)

    return checked


def mapping(value: object) -> object:
    if isinstance(value, dict):
        return value
    raise BadValue("dict_type", "Input should be a valid dictionary")


def list_of(check: Check) -> Check:
    def checked(value: object) -> object:
        if isinstance(value, list):
            return [check(item) for item in value]
        raise BadValue("list_type", "Input should be a valid list")

    return checked


def optional(check: Check) -> Check:
    return lambda value: None if value is None else check(value)


def either(*checks: Check) -> Check:
    """The first check that passes; else the problem of the last."""

    def checked(value: object) -> object:
        for check in checks[:-1]:
            try:
                return check(value)
            except BadValue:
                continue
        return checks[-1](value)

    return checked


def one_of(*choices: str) -> Check:
    quoted = [repr(choice) for choice in choices]
    sentence = f"Input should be {', '.join(quoted[:-1])} or {quoted[-1]}"

    def checked(value: object) -> object:
        if value in choices:
            return value
        raise BadValue("literal_error", sentence)

    return checked


def _json_object(call: Call) -> dict[str, object]:
    if not call.body:
        raise Invalid(problem("missing", ("body",), "Field required", None))
    value: object = read_json(call) if is_json(call) else call.body
    if not isinstance(value, dict):
        raise Invalid(problem("dict_type", ("body",), "Input should be a valid dictionary", value))
    return value


def problem(kind: str, place: tuple[str | int, ...], message: str, value: object) -> dict[str, object]:
    """One thing that is wrong with a request."""
    return {"type": kind, "loc": place, "msg": message, "input": value}
