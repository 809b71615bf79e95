"""Servers for the tests of this folder; none outlives its test, nor does a thread of anybody."""

import contextlib
import threading
from collections.abc import Iterator

import pytest

from ..support.misbehaving_server import Server
from ..support.wire_answers import Serve


@pytest.fixture
def serve() -> Iterator[Serve]:
    before = threading.active_count()
    with contextlib.ExitStack() as running:
        yield lambda *scripts, **options: running.enter_context(Server(*scripts, **options))
    assert threading.active_count() == before, threading.enumerate()
