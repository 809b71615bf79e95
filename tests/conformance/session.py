"""One setup brought to life: scripted engines, and a gateway that knows them."""

import json
import time
from contextlib import ExitStack
from typing import cast

from .caller import Answer, exchange
from .engine import Call, Engine
from .gateway import Gateway, choose, exit_code, free_port
from .names import Names, address
from .vectors import JSON, Rule, Setup, Step

ENGINE_PORTS = range(20000, 32000)
"""Five digits each, and ascending in the order of the setup, so that URLs sort in that order too."""


class Session:
    """The gateway is ready when the constructor returns; after `close` nothing is left of it."""

    def __init__(self, setup: Setup) -> None:
        self.setup = setup
        self.gateway: Gateway | None = None
        port = free_port()
        with ExitStack() as stack:
            self.engines = _start_engines(setup)
            for engine in self.engines.values():
                stack.callback(engine.close)
            self.names = Names(port, {name: engine.port for name, engine in self.engines.items()})
            self.script({spec["name"]: spec.get("rules", []) for spec in setup.get("engines", [])})
            if not setup.get("no_gateway"):
                self.gateway = Gateway(self._arguments(setup), port, setup.get("env", {}))
                stack.callback(self.gateway.close)
                self._bring_up(self.gateway)
            self._stack = stack.pop_all()

    def close(self) -> None:
        self._stack.close()

    def script(self, rules: dict[str, list[Rule]]) -> None:
        """Give every engine its rules (none, if not named), and forget the calls so far."""
        filled = cast("dict[str, list[Rule]]", self.names.fill(cast(JSON, rules)))
        for name, engine in self.engines.items():
            engine.begin(filled.get(name, []))

    def calls(self) -> list[Call]:
        """Every engine's calls, in the order of their arrival."""
        return sorted((call for engine in self.engines.values() for call in engine.calls()), key=lambda c: c.arrived)

    def refused_start(self, step: Step) -> int | None:
        """The exit code of another gateway with the step's flags; None if it keeps running."""
        return exit_code(self._arguments(step), step.get("timeout", 6.0))

    def _arguments(self, source: Setup | Step) -> list[str]:
        urls = [self._worker_url(worker) for worker in source.get("workers", [])]
        flags = [self.names.fill_text(flag) for flag in source.get("flags", [])]
        return ["--worker-urls", *urls, *flags] if urls else flags

    def _worker_url(self, worker: str) -> str:
        return self.names.fill_text(worker) if "://" in worker else f"http://{address(self.engines[worker].port)}"

    def _bring_up(self, gateway: Gateway) -> None:
        """Wait until the gateway listens and knows its workers, learn their ids, stop who must be dead."""
        setup, operator = self.setup, _Operator(gateway.port, self.setup.get("setup_auth"))

        def await_rows(count: int) -> None:
            gateway.until(lambda: len(operator.workers("/v1/rl/workers")) >= count, f"it has not {count} workers")

        gateway.until(lambda: operator.status("/health") is not None, "it does not listen")
        rows = given = len(setup.get("workers", []))
        for rows, body in enumerate(setup.get("register", []), given + 1):
            operator.register(self.names.fill(body))
            await_rows(min(rows, setup.get("rows", rows)))
        if "ready" in setup:
            gateway.until(lambda: operator.status(setup["ready"]) == 200, f"{setup['ready']} is not 200")
        else:
            await_rows(setup.get("rows", rows))
        time.sleep(setup.get("settle", 0.0))
        for worker in [*operator.workers("/workers"), *operator.workers("/v1/rl/workers")]:
            self.names.learn(str(worker["id"]), str(worker["url"]))
        for name in setup.get("stop", []):
            self.engines[name].close()
        time.sleep(setup.get("settle_after_stop", 0.0))


class _Operator:
    """Asks a gateway what it takes to set it up."""

    def __init__(self, port: int, authorization: str | None) -> None:
        self._port = port
        self._headers = [("Authorization", authorization)] if authorization else []

    def status(self, target: str) -> int | None:
        answer = self._ask({"target": target})
        return answer.status if answer else None

    def workers(self, target: str) -> list[dict[str, JSON]]:
        answer = self._ask({"target": target})
        if answer is None or answer.status != 200:
            return []
        return cast("list[dict[str, JSON]]", json.loads(answer.body)["workers"])

    def register(self, worker: JSON) -> None:
        headers = [*self._headers, ("Content-Type", "application/json")]
        answer = self._ask({"method": "POST", "target": "/workers", "headers": headers, "body": json.dumps(worker)})
        if answer is None or answer.status >= 300:
            raise RuntimeError(f"registering {worker} was answered with {answer}")

    def _ask(self, step: Step) -> Answer | None:
        try:
            return exchange(self._port, {"headers": self._headers, "timeout": 5, **step}).answer
        except OSError:
            return None


def _start_engines(setup: Setup) -> dict[str, Engine]:
    while True:
        started: dict[str, Engine] = {}
        try:
            for port, spec in enumerate(setup.get("engines", []), choose(ENGINE_PORTS)):
                name, profile = spec["name"], spec.get("profile", "sglang")
                started[name] = Engine(name, profile, port, spec.get("options", {}))
            return started
        except OSError:  # one port of the block is taken: try another block
            for engine in started.values():
                engine.close()
