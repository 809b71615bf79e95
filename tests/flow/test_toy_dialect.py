"""A dialect is one row, one `Kind` and the routes behind them: here is a whole one, in a fleet with others."""

import pytest

from reference_server import Fleet, MockEngine
from reference_server.engines.fastapi import routing, validation
from reference_server.engines.fastapi.routing import Call, Endpoint
from reference_server.engines.kind import Kind
from reference_server.engines.options import EngineOptions
from reference_server.engines.state.machine import EngineState, Refit
from reference_server.httpd.messages import Reply
from smg.rl import RL, PauseRoutes, paused
from smg.rl.engines import ENGINES, Capabilities, EngineFacts, Question

TOY_ROUTES = PauseRoutes("v9/halt", "v9/go")
FACTS = EngineFacts(
    pause=TOY_ROUTES,
    version_routes=("v9/weights",),
    refits=("v9/load",),
    capabilities=Capabilities(pause_modes=("abort",), update_from=("disk",), reports_weight_version=True),
    registration=(Question(("/v9/weights",), {"weight_version": str}),),
    sign="/v9/weights",
)
STEP = {"model_path": "step-42", "weight_version": "42"}


class Toy:
    """Its four routes of its own, and those that every engine has."""

    def __init__(self, options: EngineOptions, state: EngineState, port: int) -> None:
        self._state, self._key = state, options.api_key
        self.routes = {
            "/health": Endpoint("GET", lambda call: Reply(200)),
            "/v1/models": Endpoint("GET", lambda call: Reply.of_json(200, {"data": [{"id": options.model}]})),
            "/v9/halt": Endpoint("POST", self._halt),
            "/v9/go": Endpoint("POST", self._go),
            "/v9/load": Endpoint("POST", self._load),
            "/v9/weights": Endpoint("GET", self._weights),
        }

    def answer(self, call: Call) -> Reply:
        return routing.answer(self.routes, call, self._key)

    def _halt(self, call: Call) -> Reply:
        self._state.pause("abort")
        return Reply.of_json(200, {"halted": True})

    def _go(self, call: Call) -> Reply:
        self._state.resume()
        return Reply.of_json(200, {"halted": False})

    def _load(self, call: Call) -> Reply:
        sent = validation.body(call, dict.fromkeys(STEP, (validation.string, validation.REQUIRED)))
        loaded = self._state.refit(sent["model_path"], sent["weight_version"]) is Refit.DONE
        return Reply.of_json(200 if loaded else 400, {"loaded": loaded})

    def _weights(self, call: Call) -> Reply:
        return Reply.of_json(200, {"weight_version": self._state.weights.version})


TOY = Kind("toy", FACTS, "9.0", Toy)


def refit(rl: RL, kind: str, routes: PauseRoutes, path: str) -> None:
    with paused(rl, f"engine={kind}", routes=routes, quarantine=True, mode="abort", check=True):
        rl.fanout(path, STEP, selector=f"engine={kind}")


def test_a_mixed_fleet_with_a_new_dialect_is_discovered_refitted_and_verified(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(ENGINES, "toy", FACTS)
    with Fleet(MockEngine(TOY), MockEngine(TOY), sglang=1) as fleet:
        rl, toys = fleet.rl, fleet.engines[:2]
        refit(rl, "toy", TOY_ROUTES, "v9/load")
        refit(rl, "sglang", ENGINES["sglang"].pause or TOY_ROUTES, "update_weights_from_disk")
        rl.expect_weight_version("engine in (toy,sglang)", "42")
        assert [(toy.state, toy.weight_version, len(toy.calls("v9/halt"))) for toy in toys] == [
            ("running", "42", 1)
        ] * 2
        assert [w.capabilities["pause_modes"] for w in rl.match("engine=toy")] == [["abort"]] * 2
        # A gateway that is told nothing finds out what it is.
        _, tried = fleet.gateway.register(toys[0].url)
        assert tried.wait(10) and {w.engine for w in rl.workers()} == {"toy", "sglang"}
        fleet.check()
