"""What an engine is found to be, from what it answers."""

import json

import pytest

from reference_server.probe import Ask, Findings, probe

from ...support.outcomes import answered


def engine(**paths: object) -> Ask:
    replies = {f"/{name}": body for name, body in paths.items()} | {"/health": {}}
    return lambda path: answered(json.dumps(replies[path]).encode()) if path in replies else answered(status=404)


def test_one_odd_field_hides_itself_only() -> None:
    info = {
        "tp_size": "8",
        "dp_size": None,
        "pp_size": 1.5,
        "weight_version": 42,
        "version": "1",
        "is_embedding": False,
    }
    found = probe(engine(server_info=info), None)
    assert found is not None
    assert found.labels == {"version": "1", "is_embedding": "false"}


def test_an_engine_without_health_is_not_there_yet() -> None:
    assert probe(lambda path: answered(status=503), "sglang") is None
    assert probe(lambda path: None, "sglang") is None


def test_an_engine_of_no_known_kind_is_taken_when_the_registration_names_one() -> None:
    assert probe(engine(), None) is None
    assert probe(engine(), "trtllm") == Findings("trtllm")


@pytest.mark.parametrize("size", ["", "abc", "-1"])
def test_a_dp_size_that_is_no_number_means_one_rank(size: str) -> None:
    assert Findings("sglang", labels={"dp_size": size}).ranks() == 1
