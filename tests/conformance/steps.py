"""Takes the steps of a vector in a session, and returns what was seen."""

import threading
import time
from collections.abc import Callable, Mapping
from typing import cast

from . import view
from .caller import exchange
from .gateway import Gateway
from .session import Session
from .vectors import JSON, Step, Vector

LOG_DELAY = 0.15
"""A gateway may write a log line after it has answered; waiting is the only way to see that there is none."""

BACKGROUND_PATIENCE = 30.0


def take(session: Session, vector: Vector) -> JSON:
    """What the vector's caller saw, and what each engine received."""
    session.script(vector.get("rules", {}))
    run = _Run(session)
    try:
        responses = [item for step in vector["steps"] for item in run.take(step)]
    finally:
        run.join()
    return {"responses": responses, "engines": view.engine_calls(session.calls(), session.names)}


class _Run:
    """Each operation returns what it adds to the responses: one item, or none."""

    def __init__(self, session: Session) -> None:
        self.session = session
        self.names = session.names
        self.log_start = session.gateway.log_size() if session.gateway else 0
        self._background: list[threading.Thread] = []

    @property
    def gateway(self) -> Gateway:
        assert self.session.gateway is not None, "this setup has no gateway"
        return self.session.gateway

    def take(self, step: Step) -> list[JSON]:
        filled = cast(Step, self.names.fill(cast(JSON, step)))
        return OPERATIONS[step.get("op", "http")](self, filled)

    def join(self) -> None:
        for thread in self._background:
            thread.join(BACKGROUND_PATIENCE)

    def http(self, step: Step) -> list[JSON]:
        port = self.gateway.metrics_port if step.get("port") == "metrics" else self.gateway.port
        if step.get("background"):
            thread = threading.Thread(target=exchange, args=(port, step), name="a call in the background")
            thread.start()
            self._background.append(thread)
            return []
        ordered_ids = self.session.setup.get("ordered_ids", False)
        return [view.response(exchange(port, step), step, self.names, ordered_ids=ordered_ids)]

    def sleep(self, step: Step) -> list[JSON]:
        time.sleep(step["s"])
        return []

    def metrics(self, step: Step) -> list[JSON]:
        answer = exchange(self.gateway.metrics_port, {"target": "/metrics"}).answer
        assert answer is not None, "no metrics"
        return [view.metric_lines(answer, str(step.get("match", "smg_rl_")), self.names)]

    def log(self, step: Step) -> list[JSON]:
        time.sleep(LOG_DELAY)
        return [view.log_lines(self.gateway.log_since(self.log_start), step["match"], self.names)]

    def launch(self, step: Step) -> list[JSON]:
        code = self.session.refused_start(step)
        return [{"exit": "still running" if code is None else code}]

    def engine(self, step: Step) -> list[JSON]:
        calls = self.session.engines[step["engine"]].calls()
        if step["what"] == "max_inflight":
            return [{"max_inflight": view.peak(calls)}]
        return [view.departures(calls, step)]

    def order(self, step: Step) -> list[JSON]:
        calls = view.counted(self.session.calls())
        return [{"order": [call.engine for call in calls], "peak": view.peak(calls)}]


OPERATIONS: Mapping[str, Callable[[_Run, Step], list[JSON]]] = {
    "http": _Run.http,
    "sleep": _Run.sleep,
    "metrics": _Run.metrics,
    "log": _Run.log,
    "launch": _Run.launch,
    "engine": _Run.engine,
    "order": _Run.order,
}
