"""What a fault and a rule check of themselves; each raises `ValueError` with a sentence."""

import math
from typing import TypeGuard

_LONGEST = 1e6
"""Seconds; a system can wait no longer than some."""


def require(condition: bool, sentence: str) -> None:
    """That something holds."""
    if not condition:
        raise ValueError(sentence)


def whole(name: str, value: object, low: int, high: float = math.inf) -> None:
    """That a value is a whole number, from `low` to `high`."""
    wanted = f"{low} or more" if high == math.inf else f"{low} to {high}"
    valid = isinstance(value, int) and not isinstance(value, bool) and low <= value <= high
    require(valid, f"{name} must be {wanted}, not {value!r}")


def real(value: object) -> TypeGuard[float]:
    """Whether a value is a finite number."""
    return isinstance(value, (int, float)) and not isinstance(value, bool) and math.isfinite(value)


def seconds(name: str, value: object) -> None:
    """That a value is a number of seconds that may be waited."""
    require(real(value) and 0 <= value < _LONGEST, f"{name} must be 0 or more seconds, not {value!r}")


def flag(name: str, value: object) -> None:
    """That a value is true or false."""
    require(isinstance(value, bool), f"{name} must be true or false, not {value!r}")


def text(name: str, value: object) -> None:
    """That a value is text with something in it."""
    require(isinstance(value, str) and value != "", f"{name} must be a text that is not empty, not {value!r}")
