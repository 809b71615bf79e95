"""Waiting for something that happens in another thread."""

import time
from collections.abc import Callable

WAIT_SECONDS = 30.0


def wait_until(condition: Callable[[], bool], what: str) -> None:
    """Return as soon as it holds; fail after a long time."""
    end = time.monotonic() + WAIT_SECONDS
    while not condition():
        assert time.monotonic() < end, f"waited in vain until {what}"
        time.sleep(0.002)
