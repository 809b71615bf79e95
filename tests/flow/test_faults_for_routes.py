"""A fault or a hold is for a route that the engine has; another one is refused when it is planned."""

from typing import Any

import pytest

from reference_server import MockEngine, faults

from ..support.sglang_calls import post


@pytest.mark.parametrize("path", ["pause_generatoin", "/pause_generatoin"])
def test_a_slip_of_the_pen_is_refused_at_once(path: str) -> None:
    engine = MockEngine("sglang")
    sentence = "sglang 0.5.23 has no route /pause_generatoin; did you mean /pause_generation"
    with pytest.raises(ValueError, match=sentence):
        engine.fail(path, faults.Status(500))
    with pytest.raises(ValueError, match=sentence):
        engine.hold(path)


def test_nothing_near_nothing_guessed() -> None:
    with pytest.raises(ValueError, match=r"^sglang 0\.5\.23 has no route /xyzzy$"):
        MockEngine("sglang").fail("xyzzy", faults.Status(500))


@pytest.mark.parametrize("path", ["*", "update_weights_from_disk", "/v1/models", "/", "get_model_info"])
def test_what_it_has_and_every_one(path: str) -> None:
    engine = MockEngine("sglang")
    engine.fail(path, faults.Status(500))
    with engine.hold(path):
        pass


@pytest.mark.parametrize(
    ("kind", "options", "path"),
    [
        ("vllm", {"dev_mode": False}, "pause"),
        ("vllm", {"version": "0.26.0"}, "weight_info"),
        ("sglang", {"version": "0.5.15"}, "begin_weight_update"),
        ("tokenspeed", {}, "load_lora_adapter"),
    ],
)
def test_kind_version_and_options_decide(kind: str, options: dict[str, Any], path: str) -> None:
    engine = MockEngine(kind, **options)
    with pytest.raises(ValueError, match=f"has no route /{path}"):
        engine.fail(path, faults.Status(500))


@pytest.mark.parametrize(("route", "body"), [("faults", {"fault": "Reset"}), ("hold", {})])
def test_the_remote_control_says_so_in_a_400(route: str, body: dict[str, object]) -> None:
    with MockEngine("sglang", remote_control=True) as engine:
        answer = post(engine, f"/_mock/{route}", {"path": "flush_cash", **body})
        assert answer.status == 400
        assert answer.json["error"] == "sglang 0.5.23 has no route /flush_cash; did you mean /flush_cache?"
        assert post(engine, "/flush_cache").status == 200
