"""Says where what was seen differs from what is expected."""

import json
import re
from collections.abc import Iterator

from .vectors import JSON

SHORT = 240

_EVENT = re.compile(r"(?:rl\.proxy|rl\.fanout|control_plane_audit)\b.*", re.DOTALL)
_FRAME = {"timestamp", "filename", "line_number", "threadId", "threadName", "span", "spans"}
_ABSENT_FIELD = re.compile(r" (?:timestamp=\S+|\w+=None\b)")
_PRESENT_FIELD = re.compile(r'Some\("([^"]*)"\)')


def contract(observation: JSON) -> JSON:
    """The part of an observation, expected or seen, that the contract fixes.

    Of a log line that is the event and its fields, without what one logging library puts around
    them; of metrics everything but HELP lines; of a refused start the exit code, not the text.
    """
    responses = observation.get("responses") if isinstance(observation, dict) else None
    if isinstance(observation, dict) and isinstance(responses, list):
        return observation | {"responses": [_essence(response) for response in responses]}
    return observation


def _essence(response: JSON) -> JSON:
    if not isinstance(response, dict):
        return response
    lines = response.get("lines")
    if isinstance(lines, list):
        kept = [_line(line) for line in lines if not str(line).startswith("# HELP")]
        return response | {"lines": sorted(kept, key=lambda line: json.dumps(line, sort_keys=True))}
    return {key: value for key, value in response.items() if key != "stderr_last_line"}


def _line(line: JSON) -> JSON:
    if isinstance(line, dict):
        return {key: value for key, value in line.items() if key not in _FRAME}
    event = _EVENT.search(str(line))
    text = event[0] if event else str(line)
    return _PRESENT_FIELD.sub(r"\1", _ABSENT_FIELD.sub("", text))


def differences(want: JSON, got: JSON, where: str = "") -> Iterator[str]:
    """One sentence per difference. Nothing and 0, true and 1, 1 and 1.0 differ.

    In what is wanted, `<<any>>` stands for anything (as a key's value: even for nothing), as part
    of a text for any text; `<<ms>>` stands for an integer.
    """
    if isinstance(want, dict) and isinstance(got, dict):
        for key in sorted(want.keys() | got.keys()):
            place = f"{where}.{key}"
            if key not in want:
                yield f"{place}: unexpected {_short(got[key])}"
            elif key in got:
                yield from differences(want[key], got[key], place)
            elif want[key] != "<<any>>":
                yield f"{place}: missing, expected {_short(want[key])}"
    elif isinstance(want, list) and isinstance(got, list):
        if len(want) != len(got):
            yield f"{where}: expected {len(want)} items, got {len(got)}: {_short(got)}"
        for index, (wanted, item) in enumerate(zip(want, got, strict=False)):
            yield from differences(wanted, item, f"{where}[{index}]")
    elif not _matches(want, got):
        yield f"{where}: expected {_short(want)}, got {_short(got)}"


def _matches(want: JSON, got: JSON) -> bool:
    if want == "<<any>>":
        return True
    if want == "<<ms>>":
        return got == want or type(got) is int
    if isinstance(want, str) and "<<any>>" in want and isinstance(got, str):
        pattern = ".*".join(re.escape(part) for part in want.split("<<any>>"))
        return re.fullmatch(pattern, got, re.DOTALL) is not None
    return type(want) is type(got) and want == got


def _short(value: JSON) -> str:
    text = json.dumps(value, ensure_ascii=False)
    return text if len(text) <= SHORT else f"{text[:SHORT]}…"
