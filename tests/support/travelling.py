"""The ways in which a value leaves a process or is copied, and a result that is hard to carry."""

import copy
import pickle
from collections.abc import Callable
from functools import partial
from typing import Any

import pytest

from smg.rl import CallResult, FanoutFailure, FanoutResult

RESULT = FanoutResult(
    {"w0": CallResult("w0", "http://e0:1", 500, 3, {"x": [None, 1.5, "é"]}, truncated=True)},
    [FanoutFailure("w0", "http://e0:1", 500, "upstream_error", "HTTP 500", None)],
    2,
    1,
)


def pickled(version: int, value: Any) -> Any:
    return pickle.loads(pickle.dumps(value, version))


WAYS: dict[str, Callable[[Any], Any]] = {
    **{f"pickle {version}": partial(pickled, version) for version in range(6)},
    "copy": copy.copy,
    "deepcopy": copy.deepcopy,
    "twice": lambda value: copy.deepcopy(pickle.loads(pickle.dumps(value))),
}
EVERY_WAY = pytest.mark.parametrize("way", WAYS.values(), ids=WAYS)
