"""Real engines that somebody has started, each with the tiny checkpoints step-1 and step-2."""

import os

import pytest

PROMPT = "w1 w2 w3"
TOKENS = 8


def engine_urls(variable: str) -> list[str]:
    """The engines a variable names, `URL[,URL…]`; skips the test when it names none."""
    urls = [url for url in os.environ.get(variable, "").split(",") if url]
    if not urls:
        pytest.skip(f"{variable} names no running engine")
    return urls


def checkpoint(variable: str, step: int) -> str:
    """The folder of a checkpoint, below the one that `<variable>_MODEL` names."""
    return f"{os.environ[f'{variable}_MODEL']}/step-{step}"
