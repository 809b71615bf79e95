"""The set of workers: ids, ranks, rows, and whom a selector means."""

import random
import uuid

from hypothesis import given
from hypothesis import strategies as st

from reference_server.registry import Ids, Registry, Worker, collapse, targets
from smg.rl import Selector

from ...support.outcomes import worker


def test_ranks_of_one_address_collapse_into_the_lowest() -> None:
    ranks = [worker(1, rank=rank) for rank in (2, 0, 1)]
    assert [w.rank for w in collapse([*ranks, worker(0)])] == [-1, 0]
    assert [w.url for w in collapse(ranks)] == ["http://engine:3001@0"]


def test_derived_keys_shadow_labels_of_the_same_name() -> None:
    liar = worker(1, labels={"engine": "vllm", "role": "policy"})
    assert targets([liar], Selector.parse("engine=sglang,role=policy")) == [liar]
    assert targets([liar], Selector.parse("engine=vllm")) == []


def test_targets_ignore_health_unless_the_selector_asks() -> None:
    sick = worker(1, health="not_ready")
    assert targets([sick], Selector.parse("engine=sglang")) == [sick]
    assert targets([sick], Selector.parse("engine=sglang,health=ready")) == []


@given(st.lists(st.integers(0, 3), min_size=2, max_size=200))
def test_worker_ids_count_upwards_even_when_the_clock_does_not(steps: list[int]) -> None:
    clock = iter(1_700_000_000_000 + step for step in steps)
    ids = Ids(lambda: next(clock), random.Random(0))
    made = [ids() for _ in steps]
    assert made == sorted(set(made))
    assert {uuid.UUID(i).version for i in made} == {7}


def test_a_rank_is_shown_its_engines_row_under_its_own_id() -> None:
    registry = Registry()
    registry.add(Worker(f"rank-{r}", "http://engine:1", "sglang", rank=r) for r in range(3))
    third = registry.get("rank-2")
    assert third is not None
    row = registry.row(third)
    assert (row["id"], row["url"], row["dp_ranks"]) == ("rank-2", "http://engine:1@2", 3)
    assert [r["id"] for r in registry.rows()] == ["rank-0"]
