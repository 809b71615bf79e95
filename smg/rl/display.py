"""Results for people: aligned tables, a bar for each engine, a clock on a long call."""

import contextlib
import dataclasses
import json
import sys
import threading
import time
from collections.abc import Iterator, Mapping, Sequence

from .results import CallResult, FanoutResult, Worker

_BAR = 24
_QUIET_SECONDS, _TICK_SECONDS = 1.0, 0.2


def as_json(value: object) -> str:
    """The same for a script: the fields by their names."""
    return json.dumps(_plain(value), ensure_ascii=False)


def _plain(value: object) -> object:
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        return dataclasses.asdict(value)
    return [_plain(item) for item in value] if isinstance(value, list) else value


def for_people(value: object) -> str:
    """A table, or lines of names and values."""
    if isinstance(value, FanoutResult):
        return fanout(value)
    if isinstance(value, CallResult):
        body = value.body if isinstance(value.body, str) else json.dumps(value.body, ensure_ascii=False, indent=2)
        return f"HTTP {value.status} from {value.url or value.worker_id} in {value.latency_ms} ms\n{body}"
    if isinstance(value, Worker):
        return table([[name, shown(field)] for name, field in dataclasses.asdict(value).items()])
    if isinstance(value, list):
        return workers(value)
    return versions(value) if isinstance(value, Mapping) else str(value)


def workers(rows: Sequence[Worker]) -> str:
    """One line a worker."""
    head = ["ID", "URL", "ENGINE", "VERSION", "MODEL", "HEALTH", "ROLE"]
    lines = [[w.id, w.url, w.engine, shown(w.engine_version), w.model_id, w.health, shown(w.role)] for w in rows]
    return table([head, *lines]) if lines else "no workers"


def fanout(result: FanoutResult) -> str:
    """One line a target, the slowest with the longest bar; then the count."""
    failed = {failure.worker_id: failure for failure in result.failed}
    slowest = max([1, *(answer.latency_ms for answer in result.results.values())])
    lines = []
    for key in sorted({*result.results, *failed}):
        answer, failure = result.results.get(key), failed.get(key)
        url = answer.url if answer else failure.url if failure else ""
        took = f"{answer.latency_ms} ms" if answer else "-"
        bar = "█" * max(1, round(_BAR * answer.latency_ms / slowest)) if answer else ""
        said = f"HTTP {answer.status}" if answer else failure.error if failure else ""
        lines.append([key, url, said, took, bar])
    count = f"{result.succeeded} of {result.total} succeeded"
    return "\n".join([table([["ID", "URL", "ANSWER", "TOOK", ""], *lines]), count]) if lines else count


def versions(found: Mapping[str, str | None], expected: str | None = None) -> str:
    """One line a worker; those without the expected version, or the one of most, are marked."""
    reported = list(found.values())
    usual = expected or max(reported, key=reported.count, default=None)
    lines = [[key, "reports none" if v is None else v, "" if v == usual else "differs"] for key, v in found.items()]
    return table([["ID", "WEIGHT VERSION", ""], *lines]) if lines else "no workers"


def statuses(found: Mapping[str, str], urls: Mapping[str, str]) -> str:
    """One line a worker, those that do not run first; then the count."""
    rows = sorted(found, key=lambda key: (found[key] == "running", found[key], key))
    lines = [[key, urls.get(key, "-"), found[key]] for key in rows]
    count = f"{sum(status == 'running' for status in found.values())} of {len(found)} run"
    return "\n".join([table([["ID", "URL", "STATUS"], *lines]), count]) if lines else "no workers"


def table(rows: Sequence[Sequence[str]]) -> str:
    """Columns as wide as their widest cell."""
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    return "\n".join("  ".join(c.ljust(w) for c, w in zip(row, widths, strict=True)).rstrip() for row in rows)


def shown(value: object) -> str:
    """A value in a cell; nothing is a dash."""
    if value is None or value in ("", {}):
        return "-"
    if isinstance(value, Mapping):
        return ", ".join(f"{key}={item}" for key, item in value.items())
    return str(value)


@contextlib.contextmanager
def elapsed(what: str) -> Iterator[None]:
    """A clock on standard error while something takes long; on a terminal only."""
    if not sys.stderr.isatty():
        yield
        return
    done = threading.Event()
    thread = threading.Thread(target=_tick, args=(what, time.monotonic(), done), daemon=True)
    thread.start()
    try:
        yield
    finally:
        done.set()
        thread.join()


def _tick(what: str, started: float, done: threading.Event) -> None:
    if done.wait(_QUIET_SECONDS):
        return
    while not done.wait(_TICK_SECONDS):
        print(f"\r{what}: {time.monotonic() - started:.0f} s ", end="", file=sys.stderr, flush=True)
    print("\r\x1b[K", end="", file=sys.stderr, flush=True)
