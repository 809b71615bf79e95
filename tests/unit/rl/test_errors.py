"""Errors: one family, what their fields and texts are, and that they leave a worker process whole."""

import concurrent.futures
import multiprocessing
import pickle
import urllib.error
from collections.abc import Callable
from email.message import Message
from typing import Any

import pytest

from smg.rl import FanoutError, RlConnectionError, RlError, RlTimeoutError, SelectorError
from smg.rl.messages import Failure, Response

from ...support.scripted_sender import reply, scripted
from ...support.travelling import EVERY_WAY, RESULT


class Caused(RlError):
    """A user's own kind, with other arguments than its base has."""

    def __init__(self, step: int, *, url: str) -> None:
        super().__init__(f"step {step}", 500, "caused", {"error": "caused", "nested": [{"deep": url}]})
        self.step = step


def caused() -> RlError:
    """An error that came of one that cannot be pickled itself."""
    try:
        raise urllib.error.HTTPError("http://h", 500, "msg", Message(), None)
    except urllib.error.HTTPError as cause:
        with cause:
            error = RlError("the text", 502, "upstream_unreachable", {"error": "upstream_unreachable", "url": "u"})
            error.__cause__ = cause
            return error


ERRORS: dict[str, Callable[[], Exception]] = {
    "RlError": lambda: RlError("the text", 404, "worker_not_found", {"error": "worker_not_found", "id": "w0"}),
    "RlError of a message": lambda: RlError("é" * 5_000),
    "RlError with a cause": caused,
    "a subclass": lambda: Caused(42, url="http://e0:1"),
    "RlConnectionError": lambda: RlConnectionError("the text", 0, "connection_failed"),
    "RlTimeoutError": lambda: RlTimeoutError("the text", 0, "client_timeout"),
    "FanoutError": lambda: FanoutError("the text", 207, RESULT),
    "SelectorError": lambda: SelectorError("é=", 3, "expected value"),
}


def shown(error: BaseException) -> tuple[object, ...]:
    return type(error), error.args, str(error), repr(error), vars(error)


def fail(name: str) -> None:
    """What a worker process does."""
    raise ERRORS[name]()


@EVERY_WAY
@pytest.mark.parametrize("name", ERRORS)
def test_an_error_travels_whole(name: str, way: Callable[[Any], Any]) -> None:
    error = ERRORS[name]()
    assert shown(way(error)) == shown(error)


@EVERY_WAY
def test_its_notes_travel_with_it(way: Callable[[Any], Any]) -> None:
    error = RlError("the text")
    vars(error)["__notes__"] = ["a note"]  # what add_note of Python 3.11 does
    assert vars(way(error))["__notes__"] == ["a note"]


def test_an_error_leaves_a_worker_of_a_process_pool_and_the_pool_goes_on() -> None:
    context = multiprocessing.get_context("spawn")
    with concurrent.futures.ProcessPoolExecutor(1, mp_context=context) as pool:
        for name, expected in ERRORS.items():
            with pytest.raises(type(expected())) as caught:
                pool.submit(fail, name).result(timeout=60)
            assert shown(caught.value)[:3] == shown(expected())[:3]
        assert pool.submit(int, "42").result(timeout=60) == 42


def test_an_error_leaves_a_worker_of_multiprocessing_and_the_pool_goes_on() -> None:
    with multiprocessing.get_context("spawn").Pool(1) as pool:
        for name, expected in ERRORS.items():
            with pytest.raises(type(expected())) as caught:
                pool.apply_async(fail, (name,)).get(timeout=60)
            assert shown(caught.value)[:3] == shown(expected())[:3]
        assert pool.apply_async(int, ("42",)).get(timeout=60) == 42
        pool.close()
        pool.join()


@pytest.mark.parametrize(
    ("kind", "bases"),
    [
        (RlError, {RlError}),
        (FanoutError, {RlError}),
        (RlConnectionError, {RlError, ConnectionError, OSError}),
        (RlTimeoutError, {RlError, TimeoutError, OSError}),
    ],
)
def test_errors_are_one_family_whose_branches_python_knows(kind: type[Exception], bases: set[type[Exception]]) -> None:
    asked = {RlError, ConnectionError, TimeoutError, OSError, ValueError, KeyError}
    assert {base for base in asked if issubclass(kind, base)} == bases


def test_an_error_of_a_message_alone_has_the_fields_of_every_error() -> None:
    error = RlError("the text")
    assert (error.status, error.code) == (0, "http_error")
    assert error.payload == {"error": "http_error", "message": "the text"}
    fanout = FanoutError("the text", 207, RESULT)
    assert (fanout.status, fanout.code, fanout.result is RESULT) == (207, "fanout_partial", True)
    assert fanout.payload == {"error": "fanout_partial", "message": "the text"}


def test_an_error_is_not_changed_by_what_happens_to_its_payload() -> None:
    payload: dict[str, Any] = {"error": "x"}
    error = RlError("the text", 500, "x", payload)
    payload["error"] = "y"
    assert error.payload == {"error": "x"}


@pytest.mark.parametrize("length", [1_899, 1_900, 1_901, 5_000, 1_000_000])
@pytest.mark.parametrize("char", ["a", "é", "☃", "😀", "\ud800"], ids=ascii)
def test_a_long_text_is_cut_between_two_characters(char: str, length: int) -> None:
    text = str(RlError(char * length))
    assert len(text.encode("utf-8", "replace")) <= 2_000
    assert text == char * length if len(char.encode("utf-8", "replace")) * length <= 1_900 else text.endswith("...")
    assert "\ufffd" not in text


MIB = "x" * (1 << 20)
BIG: dict[str, Response | Failure] = {
    "no answer": Failure("client_timeout", "no complete answer within 5 s"),
    "refusal": reply(502, {"error": "upstream_unreachable", "message": "m"}),
    "too large": reply(413, b""),
    "unexpected": reply(200, {}),
    "partial": reply(
        207,
        {
            "results": {},
            "failed": [{"worker_id": "w0", "url": "u", "error": "upstream_error", "message": "m", "status": 500}],
            "total": 1,
            "succeeded": 0,
        },
    ),
}


@pytest.mark.parametrize("answer", BIG.values(), ids=BIG)
def test_no_error_holds_the_body_that_was_sent(answer: Response | Failure) -> None:
    rl, script = scripted(answer)
    with pytest.raises(RlError) as caught:
        rl.fanout("update_weights_from_tensor", {"serialized_named_tensors": [MIB] * 10}, selector="a=b")
    assert len(script.asked[0].body or b"") > 10 * len(MIB)
    assert len(str(caught.value)) < 1_000
    assert len(pickle.dumps(caught.value)) < 10_000
