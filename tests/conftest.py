"""Hypothesis profiles (`dev` at a desk; `ci`, the same examples in every run, where CI is set), Ctrl-C, threads."""

import os
import signal
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor

import pytest
from hypothesis import settings

from .support.aside import Aside

settings.register_profile("dev", deadline=None, max_examples=100)
settings.register_profile("ci", deadline=None, max_examples=100, derandomize=True, database=None)
settings.load_profile("ci" if os.environ.get("CI") else "dev")


@pytest.fixture
def control_c() -> Iterator[Callable[[], None]]:
    """What a user at a terminal presses: it interrupts the main thread, whichever thread calls this."""

    def press() -> None:
        main = threading.main_thread().ident
        assert main is not None
        signal.pthread_kill(main, signal.SIGINT)

    # Where the tests run in the background, it is ignored.
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    yield press
    signal.signal(signal.SIGINT, before)


@pytest.fixture
def aside() -> Iterator[Aside]:
    """Call something that waits, in another thread.

    Engines whose fixtures ask for this one stop before the pool waits for its threads.
    """
    with ThreadPoolExecutor(80) as pool:
        yield pool.submit
