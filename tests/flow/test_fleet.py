"""A fleet and the fixtures, as the tests of a trainer use them."""

import re
import subprocess
import sys
import threading
from pathlib import Path
from typing import Any

import pytest

from reference_server import Fleet, Gateway, GatewaySettings, MockEngine, faults
from smg.rl import RL, RlError, RlTimeoutError, paused

from ..support.aside import Aside
from ..support.asking import ask
from ..support.bare_connection import raw
from ..support.commands import ENVIRONMENT
from ..support.sglang_calls import post
from ..support.threads import assert_no_thread_is_left
from ..support.waiting import wait_until

ALL = "engine in (sglang, vllm, tokenspeed)"
PAGE = Path(__file__).parents[2] / "docs" / "mock-fleet.md"
BLOCKS = re.compile(r"^```python\n(.*?)^```$", re.MULTILINE | re.DOTALL)


def ids(fleet: Fleet) -> list[str]:
    return [fleet.worker_id(engine) for engine in fleet.engines]


class TestFleet:
    def test_it_is_all_there_when_it_has_started(self) -> None:
        with Fleet(sglang=2, vllm=1, tokenspeed=1, labels={"pool": "a"}) as fleet:
            assert [engine.kind for engine in fleet.engines] == ["sglang", "sglang", "vllm", "tokenspeed"]
            rows = {worker.id: worker for worker in fleet.rl.workers()}
            assert set(rows) == set(ids(fleet))
            for id, worker in rows.items():
                engine = fleet.engine(id)
                assert (worker.url, worker.engine, worker.health) == (engine.url, engine.kind, "ready")
                assert worker.labels["pool"] == "a"
            assert RL(fleet.url).workers() == fleet.rl.workers()
            assert "sglang" in repr(fleet) and fleet.url in repr(fleet)

    def test_options_for_its_engines_and_settings_for_its_gateway(self) -> None:
        gateway: GatewaySettings = {"api_key": "s3cret", "rl_control_timeout_secs": 5}
        with Fleet(sglang=1, engine={"weight_version": "7", "api_key": "s3cret"}, gateway=gateway) as fleet:
            assert fleet.engines[0].weight_version == "7"
            assert fleet.gateway.config.rl_control_timeout_secs == 5
            assert fleet.rl.fanout("flush_cache", {}, selector=ALL).succeeded == 1
            with pytest.raises(RlError, match="401"):
                RL(fleet.url).workers()

    @pytest.mark.parametrize(
        ("arguments", "error"),
        [
            ({"slang": 1}, ValueError),
            ({"engine": {"port": -1}, "sglang": 1}, ValueError),
            ({"gateway": {"bogus": 1}}, TypeError),
        ],
    )
    def test_what_cannot_be(self, arguments: dict[str, Any], error: type[Exception]) -> None:
        with pytest.raises(error):
            Fleet(**arguments)

    def test_ids_depend_on_the_seed_alone(self) -> None:
        seen = []
        for seed in (1, 1, 2):
            with Fleet(sglang=2, seed=seed) as fleet:
                seen.append(ids(fleet))
        assert seen[0] == seen[1] != seen[2]
        assert len(set(seen[0])) == 2

    def test_the_gateways_log_has_what_the_client_sent(self) -> None:
        with Fleet(sglang=1, gateway={"api_key": "s3cret"}) as fleet:
            fleet.rl.fanout("flush_cache", {"a": 1}, selector=ALL)
            (entry,) = fleet.gateway.log
            assert (entry.method, entry.path, entry.status) == ("POST", "/v1/rl/engine/flush_cache", 200)
            assert entry.json() == {"a": 1}
            assert entry.authorized and "s3cret" not in repr(fleet.gateway.log)

    def test_start_and_stop_leave_nothing(self) -> None:
        threads = {*threading.enumerate()}
        with Fleet(sglang=2, vllm=1) as fleet:
            fleet.rl.fanout("model_info", method="GET", selector="engine=sglang")
            addresses = [fleet.url, *(engine.url for engine in fleet.engines)]
        assert_no_thread_is_left()
        assert {*threading.enumerate()} <= threads
        for address in addresses:
            with pytest.raises(ConnectionRefusedError):
                ask(address, "GET", "/health")
        fleet.stop()

    def test_a_start_that_fails_leaves_nothing(self) -> None:
        threads = {*threading.enumerate()}
        with Gateway() as other, pytest.raises(OSError, match="in use"):
            Fleet(sglang=2, gateway={"port": int(other.url.rpartition(":")[2])}).start()
        assert_no_thread_is_left()
        assert {*threading.enumerate()} <= threads


class TestCheck:
    def test_an_engine_left_paused_is_named(self) -> None:
        with Fleet(sglang=2) as fleet:
            with paused(fleet.rl, ALL):
                pass
            fleet.check()
            post(fleet.engines[1], "/pause_generation")
            with pytest.raises(AssertionError, match=f"paused and never resumed: {fleet.engines[1].url}"):
                fleet.check()
        with pytest.raises(AssertionError):
            fleet.check()

    def test_a_failure_in_a_thread_of_an_engine_is_raised(self, monkeypatch: pytest.MonkeyPatch) -> None:
        with Fleet(sglang=1) as fleet:
            monkeypatch.setattr(fleet.engines[0]._state, "pause", broken)
            assert post(fleet.engines[0], "/pause_generation").status == 500
            with pytest.raises(ArithmeticError):
                fleet.check()

    def test_a_failure_in_a_thread_of_the_gateway_is_raised(self, monkeypatch: pytest.MonkeyPatch) -> None:
        with Fleet(sglang=1) as fleet:
            monkeypatch.setattr(fleet.gateway.registry, "all", broken)
            assert ask(fleet.url, "GET", "/v1/rl/workers").status == 500
            monkeypatch.undo()
            with pytest.raises(ArithmeticError):
                fleet.check()


def broken(*arguments: object) -> None:
    raise ArithmeticError("broken")


class TestGatewayFaults:
    def test_a_worker_is_dropped_and_its_engine_goes_on(self) -> None:
        with Fleet(sglang=2) as fleet:
            gone, kept = fleet.engines
            id = fleet.worker_id(gone)
            fleet.drop(gone)
            assert [worker.url for worker in fleet.rl.workers()] == [kept.url]
            assert fleet.engine(id) is gone and gone.state == "running"
            with pytest.raises(RlError) as caught:
                fleet.rl.call(id, "flush_cache", {})
            assert caught.value.code == "worker_not_found"
            with pytest.raises(KeyError):
                fleet.worker_id(gone)
            with pytest.raises(KeyError):
                fleet.drop(gone)

    def test_registered_anew_they_have_other_ids(self) -> None:
        with Fleet(sglang=3, labels={"pool": "a"}) as fleet:
            before = ids(fleet)
            fleet.drop(fleet.engines[2])
            fleet.register_anew(fleet.engines[1], fleet.engines[2])
            after = ids(fleet)
            assert after[0] == before[0] and len({*before, *after}) == 5
            assert [fleet.engine(id) for id in after] == fleet.engines
            fleet.register_anew()
            assert not {*ids(fleet)} & {*before, *after}
            assert fleet.rl.fanout("flush_cache", {}, selector="pool=a").succeeded == 3

    def test_a_worker_dropped_in_the_block_is_no_longer_reached(self) -> None:
        with Fleet(sglang=2) as fleet:
            lost, kept = fleet.engines
            with pytest.raises(RlError), paused(fleet.rl, "engine=sglang,base_url=" + lost.url):
                fleet.drop(lost)
            assert (lost.state, kept.state) == ("paused", "running")

    def test_a_slow_gateway_is_late_for_the_control_plane_alone(self, aside: Aside) -> None:
        with Fleet(sglang=1) as fleet:
            fleet.slow(3600)
            asked = aside(fleet.rl.fanout, "flush_cache", {}, selector=ALL)
            wait_until(lambda: len(fleet.gateway.log) == 1, "the gateway was asked")
            assert ask(fleet.url, "GET", "/workers").status == 200
            assert not asked.done() and not fleet.engines[0].calls("flush_cache")
            with pytest.raises(RlTimeoutError):
                RL(fleet.url, timeout=0.2).workers()
            fleet.slow(0)
            assert asked.result(10).succeeded == 1
            assert len(fleet.rl.workers()) == 1

    def test_who_does_not_wait_for_a_slow_gateway_is_not_served(self) -> None:
        with Fleet(sglang=1) as fleet:
            fleet.slow(3600)
            with raw(fleet.url) as caller:
                caller.sendall(b"POST /v1/rl/engine/flush_cache?selector=engine%3Dsglang HTTP/1.1\r\nHost: x\r\n\r\n")
                wait_until(lambda: len(fleet.gateway.log) == 1, "the gateway was asked")
            wait_until(lambda: fleet.gateway.log[0].hung_up, "it saw the caller leave")
            assert not fleet.engines[0].calls("flush_cache")

    def test_a_slow_gateway_stops_at_once(self, aside: Aside) -> None:
        with Fleet(sglang=1) as fleet:
            fleet.slow(3600)
            asked = aside(fleet.rl.workers)
            wait_until(lambda: len(fleet.gateway.log) == 1, "the gateway was asked")
        # Whether the answer still came through does not matter, that there is an end does.
        asked.exception(10)
        assert_no_thread_is_left()

    def test_a_slowness_that_cannot_be(self) -> None:
        with pytest.raises(ValueError, match="seconds must be 0 or more seconds, not -1"):
            Fleet().slow(-1)


TRAINER = """
import pytest
from smg.rl import RL, paused
from reference_server import faults


def test_good(smg_fleet):
    fleet = smg_fleet(sglang=2)
    with paused(fleet.rl, "engine=sglang"):
        body = {"model_path": "s", "weight_version": "42"}
        fleet.rl.fanout("update_weights_from_disk", body, selector="engine=sglang")
    assert {engine.weight_version for engine in fleet.engines} == {"42"}


def test_two_fleets(smg_fleet):
    one, two = smg_fleet(sglang=1), smg_fleet(sglang=1, seed=2)
    assert one.url != two.url


def test_gateway(smg_gateway):
    assert RL(smg_gateway.url).workers() == []


def test_left_paused(smg_fleet):
    fleet = smg_fleet(sglang=1)
    fleet.rl.fanout("pause_generation", {}, selector="engine=sglang")


def test_thread_failure(smg_fleet):
    fleet = smg_fleet(sglang=1)
    fleet.gateway.failures.append(ArithmeticError("broken"))


def test_gateway_failure(smg_gateway):
    smg_gateway.failures.append(ArithmeticError("broken"))


def test_wrong(smg_fleet):
    smg_fleet(slang=1)
"""


def sample() -> str:
    """The test of a trainer that the documentation shows."""
    (found,) = [block for block in BLOCKS.findall(PAGE.read_text(encoding="utf-8")) if "def test_" in block]
    return str(found)


def test_the_fixtures_in_a_test_run_of_their_own(tmp_path: Path) -> None:
    (tmp_path / "test_trainer.py").write_text(TRAINER)
    (tmp_path / "test_sample.py").write_text(sample())
    command = [sys.executable, "-m", "pytest", "-q", "-W", "error", "-rA", "-p", "no:cacheprovider", "."]
    # The plugin may be installed here, or not.
    command[3:3] = [] if plugin_installed() else ["-p", "reference_server.pytest_plugin"]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, timeout=120, env=ENVIRONMENT)
    lines = done.stdout.splitlines()
    for good in ("good", "two_fleets", "gateway", "left_paused", "thread_failure", "gateway_failure"):
        assert f"PASSED test_trainer.py::test_{good}" in lines, done.stdout
    errors = {
        "left_paused": "AssertionError: paused and never",
        "thread_failure": "ArithmeticError",
        "gateway_failure": "ArithmeticError",
    }
    for name, why in errors.items():
        assert any(line.startswith(f"ERROR test_trainer.py::test_{name} - {why}") for line in lines), done.stdout
    assert any(line.startswith("FAILED test_trainer.py::test_wrong - ValueError") for line in lines), done.stdout
    assert "PASSED test_sample.py::test_a_refit_that_fails_on_one_engine_is_noticed" in lines, done.stdout
    assert "7 passed" in lines[-1] and "3 errors" in lines[-1] and "1 failed" in lines[-1]


def plugin_installed() -> bool:
    from importlib.metadata import entry_points

    return any(point.value == "reference_server.pytest_plugin" for point in entry_points(group="pytest11"))


def test_faults_are_for_every_kind() -> None:
    with Fleet(sglang=1, vllm=1, tokenspeed=1) as fleet:
        for engine in fleet.engines:
            engine.fail("v1/models", faults.Status(418))
            assert ask(engine.url, "GET", "/v1/models").status == 418
    assert MockEngine("vllm").state == "running"
