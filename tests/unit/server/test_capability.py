"""What each kind of engine promises, and labels that say otherwise."""

import pytest

from reference_server import capability


def test_a_label_overrides_one_field_of_the_capability_table() -> None:
    row = capability.capabilities("sglang", {"rl.pause_modes": " abort,, in_place ", "rl.abort": "yes"})
    assert row["source"] == "label"
    assert row["pause_modes"] == ["abort", "in_place"]
    assert row["abort"] is False
    assert row["update_from"] == ["disk", "tensor", "distributed"]


@pytest.mark.parametrize("engine", ["trtllm", "tokenspeed", "mlx", "generic", "external", "unknown"])
def test_other_engines_promise_nothing(engine: str) -> None:
    row = capability.capabilities(engine, {})
    assert row.pop("source") == "static"
    assert not any(row.values())
