"""A gateway and engines in memory, behind the client's own seam: no socket, no thread, no clock.

A `World` is told its faults before it begins: what goes wrong with which request, by its
number. Whatever happens is in its `trace`.
"""

import json
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from urllib.parse import parse_qsl, urlsplit

from smg.rl import Selector
from smg.rl.engines import ENGINES, PauseRoutes
from smg.rl.messages import Began, Failure, Request, Response

GATEWAY = "http://gateway:1"
REFIT = {"sglang": "update_weights_from_disk", "vllm": "collective_rpc", "tokenspeed": "update_weights_from_disk"}


class Died(BaseException):
    """The caller is dead: nothing it asks for reaches anybody any more."""


@dataclass(frozen=True)
class Fault:
    """What goes wrong with the request of a number: `kind` is a key of `OF_REQUESTS` or of
    `OF_ENGINES`, then with one `engine`, or an event of `EVENTS` that happens before it."""

    number: int
    kind: str
    engine: int = 0

    def __str__(self) -> str:
        return f"{self.number}:{self.kind}" + ("" if self.kind in OF_REQUESTS else f":{self.engine}")

    @classmethod
    def parse(cls, text: str) -> "Fault":
        number, kind, *engine = text.split(":")
        return cls(int(number), kind, int(engine[0]) if engine else 0)


@dataclass
class Engine:
    """One engine: whether it lives, whether it runs, what it was told."""

    name: int
    kind: str
    url: str
    alive: bool = True
    paused: bool = False
    pauses: int = 0
    refits: int = 0
    version: str = "1"

    def do(self, path: str, routes: PauseRoutes) -> None:
        """Carry a control call out."""
        if path == routes.pause:
            self.paused = True
        elif path == routes.resume:
            self.paused = False
        elif path == REFIT[self.kind]:
            self.version = "2"


@dataclass
class World:
    """Three engines behind a gateway. `routes` are those of the pause under test."""

    kind: str
    routes: PauseRoutes
    faults: Sequence[Fault] = ()
    engines: list[Engine] = field(default_factory=list)
    trace: list[str] = field(default_factory=list)
    in_block: bool = False
    now: float = 0.0

    def __post_init__(self) -> None:
        self.engines = [Engine(n, self.kind, f"http://e{n}:1") for n in range(3)]
        self.registered = {n: f"g0-{n}" for n in range(3)}
        self._epoch = self._moves = self.asked = 0
        self._late: list[tuple[int, Engine, str]] = []
        self.dead = False
        self.away_until: dict[int, int] = {}
        """Who has left, and the number of the request at which it came back: far off, as long as it has not."""
        self.broken: list[str] = []
        self.at: dict[int, str] = {}
        """Which path each request asked for, by its number."""

    # The client's clock and seam.

    def clock(self) -> float:
        return self.now

    def sleep(self, seconds: float) -> None:
        self.now += seconds

    def send(self, request: Request, timeout: float, began: Began | None = None) -> Response | Failure:
        """See `smg.rl.messages.Sender`."""
        if self.dead:
            raise Died
        number, self.asked = self.asked, self.asked + 1
        parts = urlsplit(request.url)
        path, query = parts.path, dict(parse_qsl(parts.query, keep_blank_values=True))
        self.at[number] = path
        here = [fault for fault in self.faults if fault.number == number]
        for fault in here:
            if fault.kind in EVENTS:
                EVENTS[fault.kind](self, self.engines[fault.engine])
        mine = next((fault.kind for fault in here if fault.kind in OF_REQUESTS), None)
        whose = {fault.engine: fault.kind for fault in here if fault.kind in OF_ENGINES}
        self.trace.append(f"{number} {request.method} {path} {query.get('selector', '')} {' '.join(map(str, here))}")

        def act() -> Response:
            return self._answer(request.method, path, query, whose)

        answer = OF_REQUESTS[mine](self, number, act, path, query) if mine else act()
        self._land(number)
        self.now += 0.01
        self.trace.append(f"  -> {answer.status if isinstance(answer, Response) else answer.code}")
        return answer

    def finish_late_calls(self) -> None:
        """Everything that is still on its way arrives."""
        self._land(1 << 30)

    # The gateway.

    def _answer(self, method: str, path: str, query: dict[str, str], whose: dict[int, str]) -> Response:
        if path == "/v1/rl/workers":
            rows = [self._row(engine) for engine in self._known()]
            return _json(200, {"workers": rows, "total": len(rows)})
        engine_path = path.partition("/engine/")[2]
        if path.startswith("/v1/rl/workers/"):
            worker_id = path.split("/")[4]
            engines = [engine for engine in self._known() if self.registered[engine.name] == worker_id]
            if not engines:
                return _json(404, {"error": "worker_not_found", "message": "no such worker"})
            answer, failure = self._call(engines[0], engine_path, whose.get(engines[0].name))
            return _json(answer["status"], answer) if answer else _json(502, failure)
        selector = Selector.parse(query["selector"])
        targets = [engine for engine in self._known() if selector.matches(self._lookup(engine))]
        if not targets:
            return _json(400, {"error": "no_workers_match", "message": "nobody"})
        results: dict[str, object] = {}
        failed: list[object] = []
        for engine in targets:
            answer, failure = self._call(engine, engine_path, whose.get(engine.name))
            if answer:
                results[self.registered[engine.name]] = answer
            if failure:
                failed.append(failure)
        report = {"results": results, "failed": failed, "total": len(targets), "succeeded": len(targets) - len(failed)}
        return _json(207 if failed else 200, report)

    def _call(self, engine: Engine, path: str, fault: str | None) -> tuple[dict[str, object], dict[str, object]]:
        """The envelope and the entry of `failed` of one engine call; one of them may be empty."""
        who: dict[str, object] = {"worker_id": self.registered[engine.name], "url": engine.url}
        if not engine.alive:
            return {}, {**who, "error": "upstream_unreachable", "message": "refused"}
        self._count(engine, path)
        return OF_ENGINES[fault or "well"](self, engine, path, who)

    def _count(self, engine: Engine, path: str) -> None:
        """The laws that hold for every single call."""
        engine.pauses += path == self.routes.pause
        engine.refits += path == REFIT[engine.kind]
        if engine.pauses > 1:
            self.broken.append(f"engine {engine.name} was paused twice")
        if engine.refits > 1:
            self.broken.append(f"engine {engine.name} was refitted twice")
        if self.in_block and path == self.routes.resume:
            self.broken.append("a resume before the block has ended")

    def _known(self) -> list[Engine]:
        return [engine for engine in self.engines if engine.name in self.registered]

    def _lookup(self, engine: Engine) -> dict[str, str]:
        return {"id": self.registered[engine.name], "url": engine.url, "engine": engine.kind}

    def _row(self, engine: Engine) -> dict[str, object]:
        return {
            "id": self.registered[engine.name],
            "url": engine.url,
            "base_url": engine.url,
            "engine": engine.kind,
            "model_id": "m",
            "worker_type": "regular",
            "connection_mode": "http",
            "dp_ranks": 1,
            "health": "ready",
            "labels": {},
            "capabilities": {"pause_modes": list(ENGINES[engine.kind].capabilities.pause_modes)},
        }

    def _land(self, number: int) -> None:
        for due, engine, path in [late for late in self._late if late[0] <= number]:
            self._late.remove((due, engine, path))
            if engine.alive:
                engine.do(path, self.routes)
                self.trace.append(f"  late: {path} at engine {engine.name}")

    def later(self, number: int, engine: Engine, path: str, k: int) -> None:
        self._late.append((number + k, engine, path))

    def targets_of(self, path: str, query: dict[str, str]) -> list[Engine]:
        if "selector" not in query:
            return []
        selector = Selector.parse(query["selector"])
        return [engine for engine in self._known() if selector.matches(self._lookup(engine))]

    # Events.

    def restart_gateway(self) -> None:
        self._epoch += 1
        self.registered = {n: f"g{self._epoch}-{n}" for n in self.registered}

    def leave(self, engine: Engine) -> None:
        self.registered.pop(engine.name, None)
        self.away_until[engine.name] = 1 << 30

    def come_back(self, engine: Engine) -> None:
        self._epoch += 1
        self.registered[engine.name] = f"g{self._epoch}-{engine.name}"
        if engine.name in self.away_until:
            self.away_until[engine.name] = self.asked - 1

    def move(self, engine: Engine) -> None:
        self._moves += 1
        engine.url = f"http://moved{self._moves}:{engine.name + 1}"

    def die(self, engine: Engine) -> None:
        engine.alive = False

    def start_anew(self, engine: Engine) -> None:
        engine.alive, engine.paused, engine.version = True, False, "1"
        engine.pauses = engine.refits = 0


def _json(status: object, value: object) -> Response:
    assert isinstance(status, int)
    return Response(status, json.dumps(value).encode())


Act = Callable[[], Response]
Given = tuple[dict[str, object], dict[str, object]]


def _late_request(k: int) -> "Callable[[World, int, Act, str, dict[str, str]], Response | Failure]":
    def late(world: World, number: int, act: Act, path: str, query: dict[str, str]) -> Response | Failure:
        engine_path = path.partition("/engine/")[2]
        for engine in world.targets_of(path, query):
            world._count(engine, engine_path)
            world.later(number, engine, engine_path, k)
        return Failure("client_timeout", "late")

    return late


def _then(answer: Response | Failure) -> "Callable[[World, int, Act, str, dict[str, str]], Response | Failure]":
    def after(world: World, number: int, act: Act, path: str, query: dict[str, str]) -> Response | Failure:
        act()
        return answer

    return after


def _instead(answer: Response | Failure) -> "Callable[[World, int, Act, str, dict[str, str]], Response | Failure]":
    return lambda world, number, act, path, query: answer


def _restarted(world: World, number: int, act: Act, path: str, query: dict[str, str]) -> Response | Failure:
    world.restart_gateway()
    return act()


def _interrupt(*, after: bool) -> "Callable[[World, int, Act, str, dict[str, str]], Response | Failure]":
    def interrupted(world: World, number: int, act: Act, path: str, query: dict[str, str]) -> Response | Failure:
        if after:
            act()
        raise KeyboardInterrupt

    return interrupted


def _death(*, after: bool) -> "Callable[[World, int, Act, str, dict[str, str]], Response | Failure]":
    def died(world: World, number: int, act: Act, path: str, query: dict[str, str]) -> Response | Failure:
        if after:
            act()
        world.dead = True
        raise Died

    return died


HTML = Response(502, b"<html>Bad Gateway</html>")

OF_REQUESTS: dict[str, Callable[[World, int, Act, str, dict[str, str]], Response | Failure]] = {
    "not connected": _instead(Failure("connection_failed", "refused")),
    "lost": _instead(Failure("client_timeout", "lost")),
    "answer lost": _then(Failure("bad_response", "broken")),
    "late 1": _late_request(1),
    "late 3": _late_request(3),
    "refused before": _instead(HTML),
    "refused after": _then(HTML),
    "garbled": _then(Response(200, b"{]")),
    "untrue": _then(Response(200, b'{"results": {}, "failed": [], "total": 3, "succeeded": 3}')),
    "restarted": _restarted,
    "interrupted before": _interrupt(after=False),
    "interrupted after": _interrupt(after=True),
}
DEATHS: dict[str, Callable[[World, int, Act, str, dict[str, str]], Response | Failure]] = {
    "death before": _death(after=False),
    "death after": _death(after=True),
}
OF_REQUESTS |= DEATHS


def _well(world: World, engine: Engine, path: str, who: dict[str, object]) -> Given:
    routes = world.routes
    said: object = {"success": True}
    status = 200
    if path == routes.pause or path in (routes.resume, REFIT[engine.kind]):
        engine.do(path, routes)
    elif path == "ready":
        status = 503 if engine.paused else 200
    elif path in ("is_paused", "is_sleeping"):
        said = {path: engine.paused}
    elif path == "metrics":
        said = 'vllm:engine_sleep_state{sleep_state="awake"} 1.0'
    envelope = {**who, "status": status, "latency_ms": 1, "body": said}
    failure = {**who, "error": "upstream_error", "message": f"HTTP {status}", "status": status}
    return envelope, failure if status >= 300 else {}


def _late_call(k: int) -> Callable[[World, Engine, str, dict[str, object]], Given]:
    def late(world: World, engine: Engine, path: str, who: dict[str, object]) -> Given:
        world.later(world.asked - 1, engine, path, k)
        return {}, {**who, "error": "upstream_timeout", "message": "timed out"}

    return late


def _refused(*, after: bool) -> Callable[[World, Engine, str, dict[str, object]], Given]:
    def refused(world: World, engine: Engine, path: str, who: dict[str, object]) -> Given:
        if after:
            engine.do(path, world.routes)
        envelope = {**who, "status": 500, "latency_ms": 1, "body": "no"}
        return envelope, {**who, "error": "upstream_error", "message": "HTTP 500", "status": 500}

    return refused


def _says(body: object | None, *, done: bool) -> Callable[[World, Engine, str, dict[str, object]], Given]:
    """What is answered, truly or not; None is what a healthy engine says."""

    def said(world: World, engine: Engine, path: str, who: dict[str, object]) -> Given:
        before = engine.paused, engine.version
        envelope, failure = _well(world, engine, path, who)
        if not done:
            engine.paused, engine.version = before
        return ({**envelope, "body": body} if body is not None else envelope), failure

    return said


def _answer_lost(world: World, engine: Engine, path: str, who: dict[str, object]) -> Given:
    engine.do(path, world.routes)
    return {}, {**who, "error": "upstream_unreachable", "message": "broken"}


OF_ENGINES: dict[str, Callable[[World, Engine, str, dict[str, object]], Given]] = {
    "well": _well,
    "engine late 1": _late_call(1),
    "engine late 3": _late_call(3),
    "engine never": lambda world, engine, path, who: (
        {},
        {**who, "error": "upstream_timeout", "message": "timed out"},
    ),
    "engine answer lost": _answer_lost,
    "engine 500 before": _refused(after=False),
    "engine 500 after": _refused(after=True),
    "engine lies": _says(None, done=False),
    "engine says false": _says({"success": False}, done=False),
    "engine says false and did": _says({"success": False}, done=True),
}

EVENTS: dict[str, Callable[[World, Engine], None]] = {
    "gateway restarts": lambda world, engine: world.restart_gateway(),
    "leaves": World.leave,
    "comes back": World.come_back,
    "moves": World.move,
    "dies": World.die,
    "starts anew": World.start_anew,
}
