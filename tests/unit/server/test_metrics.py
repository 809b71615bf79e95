"""Metrics and log lines: what is counted, how it is written, and that nobody can forge it."""

import io
import json
import logging
from collections.abc import Iterator

import pytest
from hypothesis import given
from hypothesis import strategies as st
from prometheus_client.parser import text_string_to_metric_families

from reference_server import ConfigError, Gateway
from reference_server.events import CallEnded, FanoutEnded
from reference_server.logs import JsonFormatter, TextFormatter, log_event, printable, stop_writing, write_to_stderr
from reference_server.metrics import BUCKETS, Metrics
from reference_server.outcome import Answered, Outcome, TimedOut, Unreachable, Unsupported
from reference_server.registry import Worker

WORKER = Worker("w-1", "http://engine:1", "sglang")


def answered(status: int = 200) -> Answered:
    return Answered(status, "", b"", False, 7)


def call(outcome: Outcome, path: str = "flush_cache", seconds: float = 0.02) -> CallEnded:
    return CallEnded(WORKER, "POST", path, outcome, seconds)


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
    metrics(call(answered()))
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
        (answered(204), "ok"),
        (answered(302), "upstream_error"),
        (answered(500), "upstream_error"),
        (TimedOut(1), "timeout"),
        (Unreachable("x"), "unreachable"),
    ],
)
def test_a_call_is_counted_by_operation_and_result(outcome: Outcome, result: str) -> None:
    metrics = Metrics()
    metrics(call(outcome))
    metrics(call(outcome, "some/other"))
    seen = samples(metrics)
    assert seen[("smg_rl_control_calls_total", (("op", "flush_cache"), ("result", result)))] == 1
    assert seen[("smg_rl_control_calls_total", (("op", "other"), ("result", result)))] == 1
    assert seen[("smg_rl_control_call_duration_seconds_count", (("op", "other"),))] == 1


@pytest.mark.parametrize(
    ("outcomes", "result"),
    [
        ([answered(), answered(201)], "ok"),
        ([answered(), answered(500)], "partial"),
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
        metrics(call(answered(), seconds=one))
    name = "smg_rl_control_call_duration_seconds"
    buckets = [(dict(labels)["le"], value) for (n, labels), value in samples(metrics).items() if n == f"{name}_bucket"]
    assert [bound for bound, _ in buckets] == [*(f"{bound:.15g}" for bound in BUCKETS), "+Inf"]
    for bound, count in buckets:
        assert count == sum(one <= float(bound) for one in seconds)


def test_other_buckets_replace_the_default_ones() -> None:
    with Gateway(prometheus_duration_buckets=[0.5, 1]) as gateway:
        gateway.metrics(call(answered()))
        assert gateway.metrics.page().count("_bucket{") == 3
    for buckets in ([], [2, 1], [1, 1]):
        with pytest.raises(ConfigError, match="prometheus_duration_buckets"):
            Gateway(prometheus_duration_buckets=buckets)


# -- logs


@pytest.fixture(params=[TextFormatter, JsonFormatter], ids=["text", "json"])
def written(request: pytest.FixtureRequest) -> Iterator[io.StringIO]:
    """What a handler of each form writes of the control plane's events."""
    stream = io.StringIO()
    handler = logging.StreamHandler(stream)
    handler.setFormatter(request.param())
    logger = logging.getLogger("smg_rl")
    logger.addHandler(handler)
    logger.setLevel(logging.INFO)
    yield stream
    logger.removeHandler(handler)
    logger.setLevel(logging.NOTSET)


HOSTILE = 'role="a\nINFO smg_rl: rl.fanout path=x total=9 succeeded=9"\r\x1b[31m\u2028\x85\u202e'


def test_no_caller_can_forge_a_line(written: io.StringIO) -> None:
    log_event(FanoutEnded("x", HOSTILE, [answered()], 0.01))
    assert len(written.getvalue().splitlines()) == 1
    assert "\x1b" not in written.getvalue()


def test_an_event_has_its_fields_in_text_and_in_json() -> None:
    stream = io.StringIO()
    for formatter in (TextFormatter(), JsonFormatter()):
        handler = logging.StreamHandler(stream)
        handler.setFormatter(formatter)
        logger = logging.getLogger("smg_rl")
        logger.addHandler(handler)
        logger.setLevel(logging.INFO)
        log_event(call(answered(418)))
        log_event(FanoutEnded("x", "a = b", [answered(), TimedOut(1)], 0.01))
        logger.removeHandler(handler)
    logger.setLevel(logging.NOTSET)
    proxy, fanout, *json_lines = stream.getvalue().splitlines()
    assert proxy.endswith(
        " INFO smg_rl: rl.proxy worker_id=w-1 url=http://engine:1 method=POST path=flush_cache status=418 latency_ms=7"
    )
    assert fanout.endswith(" INFO smg_rl: rl.fanout path=x selector=a = b total=2 succeeded=1 failed=1 latency_ms=10")
    first, second = map(json.loads, json_lines)
    assert (first["level"], first["target"], first["message"], first["status"]) == ("INFO", "smg_rl", "rl.proxy", 418)
    assert (second["message"], second["selector"], second["failed"]) == ("rl.fanout", "a = b", 1)


@pytest.mark.parametrize("outcome", [TimedOut(1), Unreachable("x")])
def test_a_call_without_an_answer_is_no_proxy_line(written: io.StringIO, outcome: Outcome) -> None:
    log_event(call(outcome))
    log_event(FanoutEnded("x", "a=b", [], 0.1))
    assert written.getvalue() == ""


def test_a_level_above_info_hides_the_events(capsys: pytest.CaptureFixture[str]) -> None:
    for level, lines in (("warn", 0), ("info", 1), ("debug", 1)):
        handler = write_to_stderr(level, as_json=False)
        log_event(call(answered()))
        stop_writing(handler)
        assert len(capsys.readouterr().err.splitlines()) == lines


@given(st.text())
def test_printable_text_is_one_line_of_printable_characters(text: str) -> None:
    assert printable(text).isprintable()
    assert len(printable(text).splitlines()) <= 1
    assert not text.isprintable() or printable(text) == text
