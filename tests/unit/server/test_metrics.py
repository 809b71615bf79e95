"""Metrics: what is counted, and how it is written."""

import pytest
from hypothesis import given
from hypothesis import strategies as st
from prometheus_client.parser import text_string_to_metric_families

from reference_server import ConfigError, Gateway
from reference_server.events import FanoutEnded
from reference_server.metrics import BUCKETS, Metrics
from reference_server.outcome import Outcome, TimedOut, Unreachable, Unsupported

from ...support.outcomes import answered, call_ended


def samples(metrics: Metrics) -> dict[tuple[str, tuple[tuple[str, str], ...]], float]:
    """Our page as the judge reads it."""
    return {
        (sample.name, tuple(sorted(sample.labels.items()))): sample.value
        for family in text_string_to_metric_families(metrics.page())
        for sample in family.samples
    }


def test_a_series_appears_when_it_is_first_recorded() -> None:
    metrics = Metrics()
    assert metrics.page() == ""
    metrics(call_ended(answered()))
    assert [line for line in metrics.page().splitlines() if line.startswith("#")] == [
        "# HELP smg_rl_control_call_duration_seconds Seconds one engine call took, failures included.",
        "# TYPE smg_rl_control_call_duration_seconds histogram",
        "# HELP smg_rl_control_calls_total Engine calls by operation and result.",
        "# TYPE smg_rl_control_calls_total counter",
    ]


@pytest.mark.parametrize(
    ("outcome", "result"),
    [
        (answered(), "ok"),
        (answered(status=204), "ok"),
        (answered(status=302), "upstream_error"),
        (answered(status=500), "upstream_error"),
        (TimedOut(1), "timeout"),
        (Unreachable("x"), "unreachable"),
    ],
)
def test_a_call_is_counted_by_operation_and_result(outcome: Outcome, result: str) -> None:
    metrics = Metrics()
    metrics(call_ended(outcome))
    metrics(call_ended(outcome, "some/other"))
    seen = samples(metrics)
    assert seen[("smg_rl_control_calls_total", (("op", "flush_cache"), ("result", result)))] == 1
    assert seen[("smg_rl_control_calls_total", (("op", "other"), ("result", result)))] == 1
    assert seen[("smg_rl_control_call_duration_seconds_count", (("op", "other"),))] == 1


@pytest.mark.parametrize(
    ("outcomes", "result"),
    [
        ([answered(), answered(status=201)], "ok"),
        ([answered(), answered(status=500)], "partial"),
        ([TimedOut(1)], "partial"),
        ([Unsupported()], "partial"),
        ([], "no_match"),
    ],
)
def test_a_fan_out_is_counted_by_its_result(outcomes: list[Outcome], result: str) -> None:
    metrics = Metrics()
    metrics(FanoutEnded("x", "a=b", outcomes, 0.5))
    seen = samples(metrics)
    assert seen[("smg_rl_fanout_total", (("result", result),))] == 1
    assert seen[("smg_rl_fanout_duration_seconds_sum", ())] == 0.5


@given(st.lists(st.floats(0, 10_000), min_size=1, max_size=30))
def test_a_histogram_counts_every_call_once_and_upwards(seconds: list[float]) -> None:
    metrics = Metrics()
    for one in seconds:
        metrics(call_ended(answered(), seconds=one))
    name = "smg_rl_control_call_duration_seconds"
    buckets = [(dict(labels)["le"], value) for (n, labels), value in samples(metrics).items() if n == f"{name}_bucket"]
    assert [bound for bound, _ in buckets] == [*(f"{bound:.15g}" for bound in BUCKETS), "+Inf"]
    for bound, count in buckets:
        assert count == sum(one <= float(bound) for one in seconds)


def test_other_buckets_replace_the_default_ones() -> None:
    with Gateway(prometheus_duration_buckets=[0.5, 1]) as gateway:
        gateway.metrics(call_ended(answered()))
        assert gateway.metrics.page().count("_bucket{") == 3
    for buckets in ([], [2, 1], [1, 1]):
        with pytest.raises(ConfigError, match="prometheus_duration_buckets"):
            Gateway(prometheus_duration_buckets=buckets)
