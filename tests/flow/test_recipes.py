"""Every recipe of examples/rl does its job on a mock fleet, as a user runs it."""

import importlib.util
import re
import subprocess
import sys
from functools import partial
from pathlib import Path
from types import ModuleType

import pytest

from reference_server import Fleet, MockEngine, faults
from smg.rl import FanoutError

from ..support.commands import run

RECIPES = Path(__file__).parents[2] / "examples" / "rl"


def recipe(name: str) -> ModuleType:
    spec = importlib.util.spec_from_file_location(name, RECIPES / f"{name}.py")
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module
    spec.loader.exec_module(module)
    return module


def script(name: str, *arguments: str) -> "subprocess.CompletedProcess[str]":
    return run(str(RECIPES / f"{name}.py"), *arguments)


def test_the_vllm_recipe_reloads_and_drops_the_cache_before_it_resumes() -> None:
    with Fleet(vllm=2) as fleet:
        done = script("refit_vllm", "--smg", fleet.url, "--model-path", "/ckpt/7", "--weight-version", "7")
        assert (done.returncode, done.stderr) == (0, "")
        for engine in fleet.engines:
            assert (engine.model_path, engine.weight_version, engine.state) == ("/ckpt/7", "7", "running")
            asked = [entry.path for entry in engine.log if entry.method == "POST"]
            assert asked == ["/pause", "/collective_rpc", "/reset_prefix_cache", "/update_weight_version", "/resume"]
        fleet.check()


def test_the_vllm_recipe_names_an_engine_that_did_not_load() -> None:
    with Fleet(vllm=2) as fleet:
        fleet.engines[1].fail("collective_rpc", faults.Status(500), times=1)
        done = script("refit_vllm", "--smg", fleet.url, "--model-path", "/ckpt/7", "--weight-version", "7")
        assert done.returncode == 1
        assert fleet.engines[1].url in done.stderr and "Traceback" not in done.stderr
        fleet.check()


def test_every_rank_hears_of_a_refit_that_worked() -> None:
    with Fleet(sglang=2) as fleet:
        done = script("trainer_ranks", "--smg", fleet.url, "--ranks", "3", "--steps", "2")
        assert (done.returncode, done.stderr) == (0, "")
        assert sorted(done.stdout.splitlines()) == [f"rank {rank}: 2 steps" for rank in range(3)]
        assert [len(engine.calls("update_weights_from_disk")) for engine in fleet.engines] == [2, 2]
        fleet.check()


def test_every_rank_hears_of_a_refit_that_failed() -> None:
    with Fleet(sglang=2) as fleet:
        fleet.engines[0].fail("update_weights_from_disk", faults.Status(500))
        done = script("trainer_ranks", "--smg", fleet.url, "--ranks", "3", "--steps", "2")
        assert done.returncode == 1
        assert sorted(
            line.partition(": fanout_partial")[0] for line in done.stderr.splitlines() if line.startswith("rank")
        ) == [f"rank {rank}" for rank in range(3)]
        fleet.check()


def test_the_asyncio_trainer_refits_under_its_rollouts() -> None:
    with Fleet(sglang=2) as fleet:
        done = script("trainer_asyncio", "--smg", fleet.url, "--steps", "2")
        assert (done.returncode, done.stderr) == (0, "")
        assert len(done.stdout.splitlines()) == 2
        assert [engine.weight_version for engine in fleet.engines] == ["2", "2"]
        fleet.check()


@pytest.mark.parametrize(
    ("tp_sizes", "layout"),
    [
        ({}, (1, {})),
        ({"a": 1}, (2, {"a": 1})),
        ({"a": 4, "b": 4}, (9, {"a": 1, "b": 5})),
        ({"a": 1, "b": 8, "c": 2}, (12, {"a": 1, "b": 2, "c": 10})),
    ],
)
def test_the_ranks_of_engines_follow_the_trainers_without_a_gap(
    tp_sizes: dict[str, int], layout: tuple[int, dict[str, int]]
) -> None:
    assert recipe("refit_over_group").rank_layout(tp_sizes) == layout


def called(engine: MockEngine, route: str) -> bool:
    return bool(engine.calls(route))


class MockGroup:
    """The trainer's end, where the engines are mocks: what it joins and sends, they wait for."""

    def __init__(self, engines: list[MockEngine]) -> None:
        self.engines = engines
        self.world_size = 0
        self.waited: list[bool] = []

    def join(self, world_size: int) -> None:
        self.world_size = world_size
        self._meet("init_weights_update_group")

    def broadcast(self, name: str) -> None:
        self._meet("update_weights_from_distributed")

    def _meet(self, route: str) -> None:
        for engine in self.engines:
            engine.wait_until(partial(called, engine, route))
            self.waited.append(engine.calls(route)[-1].status is None)
            engine.join()


@pytest.mark.parametrize(("version", "framed"), [("0.5.23", True), ("0.5.15", False)])
def test_the_group_refit_has_each_call_in_flight_while_the_trainer_does_its_part(version: str, framed: bool) -> None:
    group_recipe = recipe("refit_over_group")
    with Fleet(sglang=2, engine={"tp_size": 2, "version": version}) as fleet:
        group = MockGroup(fleet.engines)
        tensors = [group_recipe.Tensor("lm_head.weight", "bfloat16", (256, 128))]
        workers = fleet.rl.match("engine=sglang")
        with group_recipe.joined(fleet.rl, workers, group, "127.0.0.1", 29600, "gloo"):
            group_recipe.refit(fleet.rl, "engine=sglang", group, tensors, "42")
        assert (group.world_size, group.waited) == (5, [True] * 4)
        assert sorted(rank_offset(engine) for engine in fleet.engines) == [1, 3]
        for engine in fleet.engines:
            assert (engine.weight_version, engine.state) == ("42", "running")
            assert [entry.status for entry in engine.calls("end_weight_update")] == [200] * framed
            assert [entry.status for entry in engine.calls("destroy_weights_update_group")] == [200]
        fleet.check()


def test_a_group_that_an_engine_cannot_join_is_destroyed_and_names_it() -> None:
    group_recipe = recipe("refit_over_group")
    with Fleet(sglang=2) as fleet:
        bad, good = fleet.engines
        bad.fail("init_weights_update_group", faults.Status(400, {"success": False, "message": "no device"}), times=1)
        workers = fleet.rl.match("engine=sglang")
        with pytest.raises(RuntimeError, match=f"{bad.url} did not join: HTTP 400"):
            with group_recipe.joined(fleet.rl, workers, MockGroup([good]), "127.0.0.1", 29600, "gloo"):
                pytest.fail("the block ran")
        assert [entry.status for entry in good.calls("destroy_weights_update_group")] == [200]


def rank_offset(engine: MockEngine) -> int:
    sent = engine.calls("init_weights_update_group")[0].json()
    assert isinstance(sent, dict)
    return int(sent["rank_offset"])


def test_the_ci_job_runs_the_tests_it_names() -> None:
    job = (RECIPES / "ci" / "github.yml").read_text(encoding="utf-8")
    (command,) = re.findall(r"run: python -m (pytest .*)", job)
    # The plug-in by its module: this project may not be installed here.
    done = run("-m", *command.split(), "-p", "reference_server.pytest_plugin", PYTEST_DISABLE_PLUGIN_AUTOLOAD="1")
    assert done.returncode == 0, done.stdout + done.stderr
    assert "2 passed" in done.stdout


def test_the_first_recipe_leaves_nothing_paused_when_a_refit_fails() -> None:
    module = recipe("refit_from_disk")
    with Fleet(sglang=2) as fleet:
        fleet.engines[0].fail("update_weights_from_disk", faults.Unsuccessful(), times=1)
        fleet.engines[1].fail("update_weights_from_disk", faults.Status(400), times=1)
        with pytest.raises(FanoutError):
            module.refit(fleet.rl, "engine=sglang", "/ckpt/1", "1")
        fleet.check()
