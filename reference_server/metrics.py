"""Counters and histograms of the control plane, in Prometheus' text format.

Contract, chapter "Metrics". A series appears when it is first recorded.
"""

import threading
from bisect import bisect_left
from collections.abc import Sequence
from dataclasses import dataclass, field

from .events import CallEnded, FanoutEnded
from .httpd.messages import Reply, Request
from .outcome import Answered, Outcome, TimedOut, succeeded
from .paths import operation

BUCKETS = (
    0.001, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 15.0, 30.0, 45.0, 60.0, 90.0, 120.0,
    180.0, 240.0, 300.0, 480.0, 900.0, 1200.0, 1800.0, 2700.0, 3600.0, 5400.0, 7200.0,
)  # fmt: skip
"""Upper bounds in seconds."""

CONTENT_TYPE = "text/plain; version=0.0.4; charset=utf-8"

_CALLS = "smg_rl_control_calls_total"
_CALL_SECONDS = "smg_rl_control_call_duration_seconds"
_FANOUTS = "smg_rl_fanout_total"
_FANOUT_SECONDS = "smg_rl_fanout_duration_seconds"
_HELP = {
    _CALL_SECONDS: "Seconds one engine call took, failures included.",
    _CALLS: "Engine calls by operation and result.",
    _FANOUT_SECONDS: "Seconds one fan-out took.",
    _FANOUTS: "Fan-outs by result.",
}

_Labels = tuple[tuple[str, str], ...]


@dataclass
class _Histogram:
    counts: list[int]
    sum: float = 0.0


@dataclass
class Metrics:
    """An observer that counts, and the page that shows it."""

    buckets: Sequence[float] = BUCKETS
    _lock: threading.Lock = field(default_factory=threading.Lock, repr=False)
    _counters: dict[str, dict[_Labels, int]] = field(default_factory=dict, repr=False)
    _histograms: dict[str, dict[_Labels, _Histogram]] = field(default_factory=dict, repr=False)

    def __call__(self, event: CallEnded | FanoutEnded) -> None:
        if isinstance(event, CallEnded):
            op = ("op", operation(event.path))
            self._record(_CALLS, (op, ("result", call_result(event.outcome))), _CALL_SECONDS, (op,), event.seconds)
        else:
            result = (("result", fanout_result(event.outcomes)),)
            self._record(_FANOUTS, result, _FANOUT_SECONDS, (), event.seconds)

    def _record(self, counter: str, labels: _Labels, histogram: str, under: _Labels, seconds: float) -> None:
        with self._lock:
            counts = self._counters.setdefault(counter, {})
            counts[labels] = counts.get(labels, 0) + 1
            series = self._histograms.setdefault(histogram, {})
            held = series.setdefault(under, _Histogram([0] * (len(self.buckets) + 1)))
            held.counts[bisect_left(self.buckets, seconds)] += 1
            held.sum += seconds

    def page(self) -> str:
        """The text exposition."""
        with self._lock:
            lines = []
            for name in _HELP:
                if name in self._counters or name in self._histograms:
                    kind = "counter" if name in self._counters else "histogram"
                    lines += [f"# HELP {name} {_HELP[name]}", f"# TYPE {name} {kind}"]
                lines += [f"{name}{_braces(k)} {v}" for k, v in sorted(self._counters.get(name, {}).items())]
                for labels, held in sorted(self._histograms.get(name, {}).items(), key=lambda item: item[0]):
                    lines += self._histogram_lines(name, labels, held)
        return "".join(f"{line}\n" for line in lines)

    def _histogram_lines(self, name: str, labels: _Labels, held: _Histogram) -> list[str]:
        lines, total = [], 0
        bounds = [*(f"{bound:.15g}" for bound in self.buckets), "+Inf"]
        for bound, count in zip(bounds, held.counts, strict=True):
            total += count
            lines.append(f"{name}_bucket{_braces((*labels, ('le', bound)))} {total}")
        return [*lines, f"{name}_sum{_braces(labels)} {held.sum!r}", f"{name}_count{_braces(labels)} {total}"]

    def application(self, request: Request) -> Reply:
        """The metrics port: `GET /metrics` and nothing else."""
        if request.path != "/metrics":
            return Reply(404)
        if request.method not in ("GET", "HEAD"):
            return Reply(405, (("allow", "GET,HEAD"),))
        return Reply(200, (("content-type", CONTENT_TYPE),), self.page().encode())


def call_result(outcome: Outcome) -> str:
    """The `result` label of one call."""
    if isinstance(outcome, Answered):
        return "ok" if outcome.succeeded else "upstream_error"
    return "timeout" if isinstance(outcome, TimedOut) else "unreachable"


def fanout_result(outcomes: Sequence[Outcome]) -> str:
    """The `result` label of one fan-out: `partial` also when all targets failed."""
    if not outcomes:
        return "no_match"
    return "ok" if all(map(succeeded, outcomes)) else "partial"


def _braces(labels: _Labels) -> str:
    return "{" + ",".join(f'{name}="{value}"' for name, value in labels) + "}" if labels else ""
