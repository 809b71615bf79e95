"""What a trainer's own CI runs: its refit against a mock fleet, on good days and bad ones."""

from collections.abc import Callable

import pytest

from reference_server import Fleet, faults
from smg.rl import RL, FanoutError, paused


def refit(rl: RL, version: str) -> None:
    """The trainer's own code."""
    with paused(rl, "engine=sglang", mode="retract"):
        body = {"model_path": f"/ckpt/{version}", "weight_version": version}
        rl.fanout("update_weights_from_disk", body, selector="engine=sglang")
    rl.expect_weight_version("engine=sglang", version)


def test_every_engine_gets_the_weights(smg_fleet: Callable[..., Fleet]) -> None:
    fleet = smg_fleet(sglang=2)
    refit(fleet.rl, "42")
    assert [engine.weight_version for engine in fleet.engines] == ["42", "42"]


def test_an_engine_that_cannot_load_leaves_no_engine_paused(smg_fleet: Callable[..., Fleet]) -> None:
    fleet = smg_fleet(sglang=2)
    fleet.engines[1].fail("update_weights_from_disk", faults.Status(500), times=1)
    with pytest.raises(FanoutError):
        refit(fleet.rl, "42")
    assert [engine.state for engine in fleet.engines] == ["running", "running"]
