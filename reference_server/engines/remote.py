"""Remote control: an engine's state, log, faults and holds over HTTP, under `/_mock/`.

Only for who asked for it: nobody needs a key here.
"""

import contextlib
import dataclasses
import inspect
import itertools
import json
import re
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Protocol
from urllib.parse import parse_qs

from ..httpd.messages import Reply, Request
from ..httpd.request_log import Entry
from . import faults
from .faults.fault import Fault
from .faults.schedule import Rule
from .faults.script import HeldRequests, Script

_MAX_BODY = 1 << 20
_ONE = re.compile(r"/_mock(/[a-z]+)")
_NUMBERED = re.compile(r"/_mock/engines/([0-9]{1,9})(/[a-z]+)")
_SHOWN = "kind url state pause_mode weight_version model_path adapters flushes in_flight parked".split()

FAULTS: Mapping[str, type[Fault]] = {
    name: kind
    for name, kind in vars(faults).items()
    if isinstance(kind, type) and issubclass(kind, Fault) and not inspect.isabstract(kind)
}
"""The faults by the name they have in a request."""


class Controlled(Protocol):
    """The engine that is controlled."""

    @property
    def log(self) -> tuple[Entry, ...]: ...

    @property
    def asleep(self) -> frozenset[str]: ...

    def calls(self, path: str) -> tuple[Entry, ...]: ...


class Remote:
    """The control of one engine; `crash` crashes it, and starts it again if told so.

    With `later` it crashes after the answer, because it is the engine itself that answers.
    """

    def __init__(self, engine: Controlled, script: Script, crash: Callable[[bool], None], *, later: bool) -> None:
        self._engine, self._script, self._crash, self._later = engine, script, crash, later
        self._holds: dict[int, tuple[HeldRequests, contextlib.ExitStack]] = {}
        self._numbers = itertools.count(1)
        self._routes: Mapping[str, Mapping[str, Callable[[Request], Reply]]] = {
            "/state": {"GET": lambda request: self._state()},
            "/log": {"GET": self._log},
            "/faults": {"GET": lambda request: self._faults(), "POST": self._fail, "DELETE": self._clear},
            "/hold": {"POST": self._hold},
            "/release": {"POST": self._release},
            "/crash": {"POST": lambda request: self._crash_it(request, restart=False)},
            "/restart": {"POST": lambda request: self._crash_it(request, restart=True)},
        }

    def __call__(self, request: Request) -> Reply | None:
        """The answer under the engine's own URL, None for a request that is not for the control."""
        if not request.path.startswith("/_mock/"):
            return None
        one = _ONE.fullmatch(request.path)
        return self.answer(request, one[1]) if one else _error(404, _unknown(request.path, self._routes))

    def answer(self, request: Request, route: str) -> Reply:
        """The answer of one route, such as `/state`."""
        methods = self._routes.get(route)
        if methods is None:
            return _error(404, _unknown(route, self._routes))
        if request.method not in methods:
            return _error(405, f"{route} knows {', '.join(methods)}, not {request.method}")
        try:
            return methods[request.method](request)
        except ValueError as problem:
            return _error(400, str(problem))

    def _state(self) -> Reply:
        shown = {name: getattr(self._engine, name) for name in _SHOWN}
        held = [(number, one) for number, (one, _) in list(self._holds.items())]
        holds = [{"hold": number, "path": one.path, "entered": one.entered} for number, one in held]
        return Reply.of_json(200, {**shown, "asleep": sorted(self._engine.asleep), "holds": holds})

    def _log(self, request: Request) -> Reply:
        path = parse_qs(request.query).get("path", [None])[-1]
        entries = self._engine.log if path is None else self._engine.calls(path)
        return Reply.of_json(200, [_entry(entry) for entry in entries])

    def _faults(self) -> Reply:
        return Reply.of_json(200, [_rule(rule) for rule in self._script.faults])

    def _fail(self, request: Request) -> Reply:
        fields = _fields(request, "path", "fault", "times", "method", "probability", "seed")
        _need(fields, "path", "fault")
        self._script.fail(Rule(_fault(fields.pop("fault")), **fields))
        return self._faults()

    def _clear(self, request: Request) -> Reply:
        self._script.clear()
        return self._faults()

    def _hold(self, request: Request) -> Reply:
        fields = {"times": 1, "method": None, **_fields(request, "path", "times", "method")}
        _need(fields, "path")
        stack = contextlib.ExitStack()
        held = stack.enter_context(self._script.hold(fields["path"], fields["times"], fields["method"]))
        number = next(self._numbers)
        self._holds[number] = (held, stack)
        return Reply.of_json(200, {"hold": number})

    def _release(self, request: Request) -> Reply:
        number = _fields(request, "hold").get("hold")
        if number is not None and number not in list(self._holds):
            raise ValueError(f"there is no hold {number!r}")
        for one in list(self._holds) if number is None else [number]:
            _, stack = self._holds.pop(one)
            stack.close()
        return self._state()

    def _crash_it(self, request: Request, *, restart: bool) -> Reply:
        _fields(request)
        self._crash(restart)
        return Reply.of_json(202, {"message": "it crashes after this answer"}) if self._later else self._state()


class Remotes:
    """The control of several engines, under the URL of their gateway: see `router.Interceptor`."""

    def __init__(self, remotes: Sequence[Remote]) -> None:
        self._remotes = remotes

    def __call__(self, request: Request) -> Reply | None:
        if not request.path.startswith("/_mock/"):
            return None
        found = _NUMBERED.fullmatch(request.path)
        if not found or int(found[1]) >= len(self._remotes):
            last = len(self._remotes) - 1
            return _error(404, f"no {request.path}; there is /_mock/engines/N/state, with N from 0 to {last}, …")
        return self._remotes[int(found[1])].answer(request, found[2])


def _fault(value: object) -> Fault:
    given = {"kind": value} if isinstance(value, str) else value
    if not isinstance(given, dict) or given.get("kind") not in list(FAULTS):
        raise ValueError(f"fault must be one of {', '.join(FAULTS)}, or an object with one as its kind, not {value!r}")
    kind: Any = FAULTS[given["kind"]]
    known = {field.name: field for field in dataclasses.fields(kind)}
    fields = {name: item for name, item in given.items() if name != "kind"}
    _know(fields, known, given["kind"])
    required = [name for name, field in known.items() if field.default is dataclasses.MISSING]
    _need(fields, *required)
    fault: Fault = kind(**fields)
    return fault


def _rule(rule: Rule[Fault]) -> dict[str, object]:
    named: Any = rule.plan
    fault = {"kind": type(rule.plan).__name__, **dataclasses.asdict(named)}
    return {
        "path": rule.path,
        "fault": fault,
        "times": rule.times,
        "method": rule.method,
        "probability": rule.probability,
        "seed": rule.seed,
    }


def _entry(entry: Entry) -> dict[str, object]:
    return {**dataclasses.asdict(entry), "body": entry.body.decode("utf-8", "replace")}


def _fields(request: Request, *known: str) -> dict[str, Any]:
    """The fields of the body; raises `ValueError` for others, and for what is no JSON object."""
    body = request.body.read(_MAX_BODY)
    try:
        value = json.loads(body or b"{}")
    except (ValueError, RecursionError):
        raise ValueError("the body must be JSON") from None
    if not isinstance(value, dict):
        raise ValueError(f"the body must be a JSON object, not {type(value).__name__}")
    _know(value, known, "the body")
    return value


def _know(fields: Mapping[str, object], known: "Sequence[str] | Mapping[str, object]", what: str) -> None:
    for name in fields:
        if name not in known:
            raise ValueError(f"{what} has no field {name!r}; it has {', '.join(known) or 'none'}")


def _need(fields: Mapping[str, object], *names: str) -> None:
    for name in names:
        if name not in fields:
            raise ValueError(f"the field {name!r} is missing")


def _unknown(path: str, known: Mapping[str, object]) -> str:
    return f"no {path}; there is {', '.join('/_mock' + route for route in known)}"


def _error(status: int, message: str) -> Reply:
    return Reply.of_json(status, {"error": message})
