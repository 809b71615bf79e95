"""Log lines: what they tell of an event, and that nobody can forge one."""

import io
import json
import logging
from collections.abc import Iterator

import pytest
from hypothesis import given
from hypothesis import strategies as st

from reference_server.events import FanoutEnded
from reference_server.logs import JsonFormatter, TextFormatter, log_event, printable, stop_writing, write_to_stderr
from reference_server.outcome import Outcome, TimedOut, Unreachable

from ...support.outcomes import answered, call_ended


@pytest.fixture(params=[TextFormatter, JsonFormatter], ids=["text", "json"])
def written(request: pytest.FixtureRequest) -> Iterator[io.StringIO]:
    """What a handler of each form writes of the control plane's events."""
    stream = io.StringIO()
    handler = logging.StreamHandler(stream)
    handler.setFormatter(request.param())
    logger = logging.getLogger("smg_rl")
    logger.addHandler(handler)
    logger.setLevel(logging.INFO)
    yield stream
    logger.removeHandler(handler)
    logger.setLevel(logging.NOTSET)


HOSTILE = 'role="a\nINFO smg_rl: rl.fanout path=x total=9 succeeded=9"\r\x1b[31m\u2028\x85\u202e'


def test_no_caller_can_forge_a_line(written: io.StringIO) -> None:
    log_event(FanoutEnded("x", HOSTILE, [answered()], 0.01))
    assert len(written.getvalue().splitlines()) == 1
    assert "\x1b" not in written.getvalue()


def test_an_event_has_its_fields_in_text_and_in_json() -> None:
    stream = io.StringIO()
    for formatter in (TextFormatter(), JsonFormatter()):
        handler = logging.StreamHandler(stream)
        handler.setFormatter(formatter)
        logger = logging.getLogger("smg_rl")
        logger.addHandler(handler)
        logger.setLevel(logging.INFO)
        log_event(call_ended(answered(status=418)))
        log_event(FanoutEnded("x", "a = b", [answered(), TimedOut(1)], 0.01))
        logger.removeHandler(handler)
    logger.setLevel(logging.NOTSET)
    proxy, fanout, *json_lines = stream.getvalue().splitlines()
    assert proxy.endswith(
        " INFO smg_rl: rl.proxy worker_id=w-1 url=http://engine:1 method=POST path=flush_cache status=418 latency_ms=7"
    )
    assert fanout.endswith(" INFO smg_rl: rl.fanout path=x selector=a = b total=2 succeeded=1 failed=1 latency_ms=10")
    first, second = map(json.loads, json_lines)
    assert (first["level"], first["target"], first["message"], first["status"]) == ("INFO", "smg_rl", "rl.proxy", 418)
    assert (second["message"], second["selector"], second["failed"]) == ("rl.fanout", "a = b", 1)


@pytest.mark.parametrize("outcome", [TimedOut(1), Unreachable("x")])
def test_a_call_without_an_answer_is_no_proxy_line(written: io.StringIO, outcome: Outcome) -> None:
    log_event(call_ended(outcome))
    log_event(FanoutEnded("x", "a=b", [], 0.1))
    assert written.getvalue() == ""


def test_a_level_above_info_hides_the_events(capsys: pytest.CaptureFixture[str]) -> None:
    for level, lines in (("warn", 0), ("info", 1), ("debug", 1)):
        handler = write_to_stderr(level, as_json=False)
        log_event(call_ended(answered()))
        stop_writing(handler)
        assert len(capsys.readouterr().err.splitlines()) == lines


@given(st.text())
def test_printable_text_is_one_line_of_printable_characters(text: str) -> None:
    assert printable(text).isprintable()
    assert len(printable(text).splitlines()) <= 1
    assert not text.isprintable() or printable(text) == text
