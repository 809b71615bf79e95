"""Something that waits, done in another thread: the type of the fixture `aside`."""

from collections.abc import Callable
from concurrent.futures import Future
from typing import Any

Aside = Callable[..., "Future[Any]"]
