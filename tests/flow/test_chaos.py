"""Hundreds of refits while engines are killed, restarted, re-registered, slowed and lie.

After every refit each live engine runs, or is named in `still_paused`. Seed and counts
are printed; SMG_CHAOS_SEED repeats a run, SMG_CHAOS_REFITS says how many refits.
"""

import os
import random
import socket
import time
from collections import Counter
from collections.abc import Callable

import pytest

from reference_server import Fleet, MockEngine, faults
from smg.rl import RlError, Target, paused

ALL = "engine=sglang"
REFITS = int(os.environ.get("SMG_CHAOS_REFITS", "500"))
ENGINES = 8


class Chaos:
    """A fleet and the things that may happen to it."""

    def __init__(self, fleet: Fleet, dice: random.Random) -> None:
        self.fleet, self.dice = fleet, dice
        self.counts: Counter[str] = Counter()

    def kill(self) -> None:
        self.dice.choice(self.fleet.engines).stop()

    def restart(self) -> None:
        engine = self.dice.choice(self.fleet.engines)
        engine.stop()
        engine.start()

    def register_anew(self) -> None:
        self.fleet.register_anew(*self.registered())

    def restart_gateway(self) -> None:
        self.fleet.restart_gateway(*[engine for engine in self.fleet.engines if answers(engine)])

    def slow(self) -> None:
        self.dice.choice(self.fleet.engines).fail("*", faults.Delay(before=0.05), times=3)

    def lie(self) -> None:
        # A resume that lies is beyond every client: SGLang has no route that tells whether it is paused.
        path = self.dice.choice(["update_weights_from_disk", "pause_generation"])
        self.dice.choice(self.fleet.engines).fail(path, faults.Lie(), times=1)

    def drop(self) -> None:
        engines = self.registered()
        if engines:
            self.fleet.drop(engines[0])

    def nothing(self) -> None:
        pass

    def registered(self) -> list[MockEngine]:
        known = {worker.base_url for worker in self.fleet.gateway.registry.all()}
        found = [engine for engine in self.fleet.engines if engine.url in known and answers(engine)]
        return self.dice.sample(found, min(1, len(found)))

    def strike(self) -> None:
        acts: list[Callable[[], None]] = [self.kill, self.restart, self.register_anew, self.restart_gateway, self.drop]
        act = self.dice.choice([*acts, self.slow, self.lie, self.nothing, self.nothing])
        self.counts[act.__name__] += 1
        act()

    def compare_versions(self) -> None:
        """What the client tells of the weights is what the engines serve, whoever lied."""
        rl = self.fleet.rl
        versions = rl.weight_versions(ALL)
        assert versions == {self.fleet.worker_id(engine): engine.weight_version for engine in self.fleet.engines}
        self.counts["served an older version"] += len(set(versions.values())) > 1

    def recover(self) -> None:
        """Between steps an operator brings back what is away, and resumes what is stuck."""
        for engine in self.fleet.engines:
            engine.clear_faults()
            engine.start()
        self.fleet.register_anew()
        self.fleet.rl.fanout("continue_generation", {}, selector=ALL)


def answers(engine: MockEngine) -> bool:
    """Whether the engine listens."""
    try:
        socket.create_connection(("127.0.0.1", int(engine.url.rpartition(":")[2])), 5).close()
    except OSError:
        return False
    return True


def refit(chaos: Chaos, number: int) -> list[Target]:
    """One refit with a blow before it, in it and in its block; who is named as stuck."""
    version = str(number)
    if chaos.dice.random() < 0.3:
        chaos.strike()
    try:
        with paused(chaos.fleet.rl, ALL, resume_retries=chaos.dice.choice([0, 1]), settle=0.3) as pause:
            if chaos.dice.random() < 0.6:
                chaos.strike()
            body = {"model_path": f"/ckpt/{version}", "weight_version": version}
            chaos.fleet.rl.fanout("update_weights_from_disk", body, selector=ALL, allow_partial=True)
            if chaos.dice.random() < 0.6:
                chaos.strike()
    except RlError as error:
        chaos.counts[f"ended with {error.code}"] += 1
        return error.still_paused
    chaos.counts["ended well"] += 1
    return pause.still_paused


def test_after_every_refit_each_live_engine_runs_or_is_named(capsys: pytest.CaptureFixture[str]) -> None:
    seed = int(os.environ.get("SMG_CHAOS_SEED", str(time.time_ns() % 1_000_000)))
    with capsys.disabled():
        print(f"\nchaos: seed {seed}, {REFITS} refits over {ENGINES} engines", flush=True)
    with Fleet(sglang=ENGINES, gateway={"rl_control_timeout_secs": 5}) as fleet:
        chaos = Chaos(fleet, random.Random(seed))
        named = 0
        for number in range(REFITS):
            stuck = {target.url for target in refit(chaos, number)}
            left = {engine.url for engine in fleet.engines if answers(engine) and engine.state == "paused"}
            assert left <= stuck, f"seed {seed}, refit {number}: {left - stuck} are paused and nobody was told"
            named += len(stuck)
            chaos.recover()
            chaos.compare_versions()
        fleet.check()
        with capsys.disabled():
            print(f"chaos: {named} engines named as stuck; {dict(sorted(chaos.counts.items()))}")
