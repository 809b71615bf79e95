"""What SMG 1.11 made of 255 selectors, asked of the selector language alone."""

import json
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs, urlsplit

import pytest

from smg.rl import Selector, SelectorError

FILE: dict[str, Any] = json.loads((Path(__file__).parents[2] / "vectors" / "selectors.json").read_text("utf-8"))
# Three never reached the selector: their raw `<` and `>` are not a URL, and the answer is no JSON.
CASES = [case for case in FILE["cases"] if "json" in case["expect"]["responses"][0]]

DISCOVERED = {"s0": {"weight_version": "default"}, "s1": {"weight_version": "default"}, "s2": {"version": "0.11.0"}}


def fleet() -> dict[str, dict[str, str]]:
    """The labels of the recorded workers: discovered ones, registered ones, derived keys; the later one wins."""
    registered = {row["url"][len("http://<<addr:") : -len(">>")]: row for row in FILE["setups"]["sel"]["register"]}
    engines = {engine["name"]: engine["profile"] for engine in FILE["setups"]["sel"]["engines"]}
    return {
        f"<<id:{name}>>": {
            **DISCOVERED[name],
            **registered[name]["labels"],
            "id": f"<<id:{name}>>",
            "url": registered[name]["url"],
            "base_url": registered[name]["url"],
            "engine": engines[name],
            "model": "test/model",
            "worker_type": "regular",
            "connection_mode": "http",
            "health": "ready",
        }
        for name in engines
    }


def outcome(text: str) -> object:
    """What the language says: an offset and a message, or whom the selector matches."""
    try:
        selector = Selector.parse(text)
    except SelectorError as error:
        return error.offset, str(error)
    return {worker for worker, labels in fleet().items() if selector.matches(labels)}


def recorded(answer: dict[str, Any]) -> object:
    if answer["status"] == 200:
        return set(answer["json"]["results"])
    if answer["json"]["error"] == "no_workers_match":
        return set()
    if answer["json"]["error"] == "selector_required":
        return 0, "invalid selector at byte 0: expected key"
    assert answer["json"]["error"] == "invalid_selector"
    return answer["json"]["offset"], answer["json"]["message"]


def test_nearly_every_vector_is_here() -> None:
    assert len(FILE["cases"]) - len(CASES) == 3
    assert len(CASES) >= 255


@pytest.mark.parametrize("case", CASES, ids=[case["id"] for case in CASES])
def test_a_selector_means_what_it_meant_to_smg(case: dict[str, Any]) -> None:
    (step,), (answer,) = case["steps"], case["expect"]["responses"]
    query = parse_qs(urlsplit(step["target"]).query, keep_blank_values=True, strict_parsing=True)
    assert outcome(query["selector"][0]) == recorded(answer)
