"""No traceback shows the key, not even one that prints every local variable of every frame.

Error reporters, `pytest -l` and rich print such tracebacks, into places that many can read.
"""

import socket
import traceback
from collections.abc import Callable
from typing import Any

import pytest

from smg.rl import RL, RlError, paused

from ..support.calls import CALLS
from ..support.misbehaving_server import (
    Peer,
    Script,
    answer,
    answering,
    closing,
    hanging_up,
    keeping,
    refusing_early,
    silent,
)
from ..support.wire_answers import Serve

KEY = "sk-The-Key-0123456789"

FAILING: dict[str, Script] = {
    "closes at once": closing,
    "hangs up": hanging_up,
    "garbage": answering(b"garbage\r\n"),
    "cut": answering(answer(200, b"{", length=9)),
    "never answers": silent,
    "refuses early": refusing_early(answer(413)),
    "401": keeping(answer(401)),
    "400": keeping(answer(400, b'{"error": "invalid_selector", "message": "m", "offset": 0}')),
    "404": keeping(answer(404, b"<html>")),
    "odd": keeping(answer(200, b"[]")),
    "redirect": keeping(answer(302, b"", "Location: http://elsewhere")),
    "partial": keeping(
        answer(207, b'{"results": {}, "failed": [{"worker_id": "w0", "error": "upstream_error"}], "total": 1}')
    ),
    "says the key": keeping(answer(401, f'{{"error": "bad_key", "message": "{KEY}", "more": ["{KEY}"]}}'.encode())),
    "shows the key": keeping(answer(200, f'["{KEY}"]'.encode())),
    "redirects with the key": keeping(answer(302, b"", f"Location: http://elsewhere/?key={KEY}")),
}

REFUSED: dict[str, Callable[[RL], object]] = {
    "NaN": lambda rl: rl.call("w0", "x", float("nan")),
    "bytes": lambda rl: rl.call("w0", "x", b""),
    "method": lambda rl: rl.call("w0", "x", method="\n"),
    "timeout": lambda rl: rl.workers(timeout=0),
    "id": lambda rl: rl.worker(""),
}


def shows_the_key(error: BaseException) -> bool:
    """Whether it is anywhere in a traceback with locals, of every error in the chain."""
    report = traceback.TracebackException.from_exception(error, capture_locals=True)
    return any(KEY in line for line in report.format())


def failure(rl: RL, call: Callable[[RL], Any]) -> BaseException:
    with pytest.raises(BaseException) as caught:
        call(rl)
    return caught.value


@pytest.mark.parametrize("name", CALLS)
@pytest.mark.parametrize("script", FAILING.values(), ids=FAILING)
def test_a_call_that_fails_never_shows_the_key(serve: Serve, script: Script, name: str) -> None:
    error = failure(RL(serve(script).url, KEY, timeout=0.3), lambda rl: CALLS[name](rl, None))
    assert isinstance(error, RlError)
    assert not shows_the_key(error)


def test_nor_does_one_that_finds_nobody() -> None:
    with socket.socket() as unused:
        unused.bind(("127.0.0.1", 0))  # bound, not listening: refuses
        error = failure(RL(f"http://127.0.0.1:{unused.getsockname()[1]}", KEY), RL.workers)
    assert not shows_the_key(error)


@pytest.mark.parametrize("name", REFUSED)
def test_nor_does_one_that_is_refused_before_it_is_sent(name: str) -> None:
    error = failure(RL("http://127.0.0.1:1", KEY), REFUSED[name])
    assert isinstance(error, (ValueError, TypeError))
    assert not shows_the_key(error)


@pytest.mark.parametrize("when", [Peer.receive_head, Peer.receive], ids=["sending", "waiting"])
def test_nor_does_one_that_is_interrupted(
    serve: Serve, when: Callable[[Peer], None], control_c: Callable[[], None]
) -> None:
    def interrupting(peer: Peer) -> None:
        when(peer)
        control_c()
        peer.until_gone()

    server = serve(interrupting)
    body = "x" * (8 << 20) if when is Peer.receive_head else ""
    error = failure(RL(server.url, KEY), lambda rl: rl.call("w0", "x", body))
    assert isinstance(error, KeyboardInterrupt)
    assert not shows_the_key(error)


def test_nor_does_a_block_that_fails_between_two_of_them(serve: Serve) -> None:
    def work(rl: RL) -> None:
        with paused(rl, "a=b"):
            raise ValueError("block")

    server = serve(keeping(answer(200, b'{"results": {}, "failed": []}')), hanging_up)
    error = failure(RL(server.url, KEY), work)
    assert isinstance(error.__context__, RlError)
    assert not shows_the_key(error)
