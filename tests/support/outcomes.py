"""Workers, and what became of calls to them, as values."""

from reference_server.events import CallEnded
from reference_server.outcome import Answered, Outcome
from reference_server.registry import Worker

WORKER = Worker("w-1", "http://engine:1", "sglang")


def worker(number: int, **fields: object) -> Worker:
    return Worker(f"id-{number}", f"http://engine:{3000 + number}", "sglang", **fields)  # type: ignore[arg-type]  # as given


def answered(body: bytes = b"{}", status: int = 200, content_type: str = "application/json") -> Answered:
    """An engine's answer after 7 ms."""
    return Answered(status, content_type, body, False, 7)


def call_ended(outcome: Outcome, path: str = "flush_cache", seconds: float = 0.02) -> CallEnded:
    return CallEnded(WORKER, "POST", path, outcome, seconds)
