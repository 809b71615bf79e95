"""The same request to the published gateway and to ours over the same engines.

Answers, and what the engines received, must be equal. SMG_DIFFERENTIAL_EXAMPLES says
how many requests (3000); the count is printed.
"""

import http.client
import json
import os
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from urllib.parse import urlsplit

import pytest
from hypothesis import HealthCheck, Phase, given, settings

from reference_server import Gateway
from tests.conformance import view
from tests.conformance.caller import exchange
from tests.conformance.compare import differences
from tests.conformance.engine import Engine
from tests.conformance.gateway import free_port
from tests.conformance.names import Names
from tests.conformance.vectors import JSON

from . import published
from .drawn import ENGINES, LABELS, Case, cases

EXAMPLES = int(os.environ.get("SMG_DIFFERENTIAL_EXAMPLES", "3000"))


class Side:
    """One of the two gateways, with the engines registered in the same order."""

    def __init__(self, url: str, engines: dict[str, Engine]) -> None:
        self._port = int(urlsplit(url).port or 0)
        self._engines = engines
        self._names = Names(self._port, {name: engine.port for name, engine in engines.items()})
        for number, (name, engine) in enumerate(engines.items(), 1):
            self._register({"url": f"http://127.0.0.1:{engine.port}", "labels": {**LABELS[name]}}, number)

    def _register(self, body: JSON, rows: int) -> None:
        self._ask("POST", "/workers", json.dumps(body).encode())
        end = time.monotonic() + 30
        while True:
            listing = json.loads(self._ask("GET", "/v1/rl/workers"))
            if listing["total"] == rows:
                break
            assert time.monotonic() < end, "the worker was not registered"
            time.sleep(0.02)
        for row in listing["workers"]:
            self._names.learn(row["id"], row["url"])

    def _ask(self, method: str, path: str, body: bytes | None = None) -> bytes:
        connection = http.client.HTTPConnection("127.0.0.1", self._port, timeout=30)
        try:
            connection.request(method, path, body, {"content-type": "application/json"})
            return connection.getresponse().read()
        finally:
            connection.close()

    def observe(self, case: Case) -> JSON:
        """The answer to the case's request, and what each engine received."""
        for name, engine in self._engines.items():
            engine.begin(case.rules.get(name, []))
        step = case.step.copy()
        step["target"] = self._names.fill_text(step["target"])
        seen = exchange(self._port, step)
        calls = [call for engine in self._engines.values() for call in engine.calls()]
        return {
            "response": view.response(seen, step, self._names, ordered_ids=True),
            "engines": view.engine_calls(calls, self._names),
        }


def rounded(value: JSON) -> JSON:
    """Without the last digit of fractions: the published gateway does not always read it right."""
    if isinstance(value, float):
        return float(f"{value:.14g}")
    if isinstance(value, list):
        return [rounded(item) for item in value]
    return {key: rounded(item) for key, item in value.items()} if isinstance(value, dict) else value


@contextmanager
def both() -> Iterator[tuple[Side, Side]]:
    with ExitStack() as stack:
        engines = {}
        for port, (name, profile) in zip(sorted({free_port() for _ in range(9)}), ENGINES.items(), strict=False):
            engines[name] = Engine(name, profile, port, {})
            stack.callback(engines[name].close)
        real = stack.enter_context(published.gateway("1_11", []))
        gateway = stack.enter_context(Gateway(enable_rl=True, health_check=False))
        yield Side(real, engines), Side(gateway.url, engines)
        assert gateway.failures == []


def test_ours_answers_as_the_published_gateway_does(capsys: pytest.CaptureFixture[str]) -> None:
    published.venv("1_11")
    compared = 0
    with both() as (real, ours):

        @settings(
            max_examples=EXAMPLES,
            deadline=None,
            database=None,
            suppress_health_check=list(HealthCheck),
            phases=[Phase.generate, Phase.shrink],
        )
        @given(cases)
        def same(case: Case) -> None:
            nonlocal compared
            compared += 1
            found = list(differences(rounded(real.observe(case)), rounded(ours.observe(case))))
            assert not found, "\n".join([json.dumps(case.step), json.dumps(case.rules), *found])

        same()
    with capsys.disabled():
        print(f"\ndifferential test: {compared} requests compared, no difference")
