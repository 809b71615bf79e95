"""Fault values: what they refuse to be, and what each makes of an answer."""

import json
import math
from dataclasses import FrozenInstanceError, dataclass, field
from typing import Any

import pytest

from reference_server import faults
from reference_server.engines.faults.fault import Fault
from reference_server.engines.kinds import KINDS
from reference_server.httpd.messages import Reply

DONE = {"success": True, "message": "done"}
ANSWER = b'{"success":true,"message":"done"}'


@dataclass
class Stage:
    """A stage that writes down what a fault does on it."""

    reply: Reply = field(default_factory=lambda: Reply.of_json(200, DONE))
    kind: str = "sglang"
    path: str = "/update_weights_from_disk"
    done: list[Any] = field(default_factory=list)

    def answer(self) -> Reply:
        self.done.append("answer")
        return self.reply

    def rehearse(self) -> Reply:
        self.done.append("rehearse")
        return Reply.of_json(200, DONE)

    def failure(self, message: str) -> object:
        return KINDS[self.kind].failure(self.path, message)

    def wait(self, seconds: float, *, alone: bool = False) -> None:
        self.done.append(("wait", seconds, alone))

    def crash(self, restart: bool) -> None:
        self.done.append(("crash", restart))


def sent(reply: Reply) -> bytes:
    """What a raw answer puts on the connection."""
    assert reply.raw and reply.stream is not None
    return b"".join(reply.stream)


def head_and_body(data: bytes) -> tuple[list[str], bytes]:
    head, _, body = data.partition(b"\r\n\r\n")
    return head.decode().split("\r\n"), body


INSTEAD: list[Fault] = [
    faults.Status(500),
    faults.Html502(),
    faults.Redirect("/elsewhere"),
    faults.Unsuccessful(),
    faults.CloseBefore(),
    faults.Reset(),
    faults.Garbage(),
    faults.Hang(),
]
INSTEAD_WITH_EFFECT: list[Fault] = [
    faults.Status(500, effect=True),
    faults.Html502(effect=True),
    faults.Redirect("/elsewhere", effect=True),
    faults.Unsuccessful(effect=True),
    faults.CloseBefore(effect=True),
    faults.Reset(effect=True),
    faults.Garbage(effect=True),
    faults.Hang(effect=True),
]
BREAKING: list[Fault] = [
    faults.Delay(before=1),
    faults.Delay(in_body=1),
    faults.Trickle(),
    faults.Truncate(),
    faults.CloseAfterHead(),
    faults.WrongLength(1),
    faults.NotANumber(),
    faults.Huge(),
]


class TestEffect:
    @pytest.mark.parametrize("fault", INSTEAD, ids=repr)
    def test_what_comes_instead_does_not_ask_the_engine(self, fault: Fault) -> None:
        stage = Stage()
        fault.play(stage)
        assert "answer" not in stage.done

    @pytest.mark.parametrize("fault", INSTEAD_WITH_EFFECT, ids=repr)
    def test_with_effect_it_asks_the_engine_first_and_to_the_end(self, fault: Fault) -> None:
        pieces = []

        def stream() -> Any:
            yield b"a"
            pieces.append("all")

        stage = Stage(Reply(200, stream=stream()))
        fault.play(stage)
        assert stage.done[0] == "answer" and pieces == ["all"]

    @pytest.mark.parametrize("fault", BREAKING, ids=repr)
    def test_what_breaks_the_answer_asks_the_engine_once(self, fault: Fault) -> None:
        stage = Stage()
        fault.play(stage)
        assert stage.done.count("answer") == 1

    def test_a_lie_and_a_crash_ask_nothing_of_the_engine(self) -> None:
        lie, crash, again = Stage(), Stage(), Stage()
        assert faults.Lie().play(lie).body == ANSWER
        assert faults.Crash().play(crash).status == faults.Crash(restart=True).play(again).status == 0
        assert (lie.done, crash.done, again.done) == (["rehearse"], [("crash", False)], [("crash", True)])


class TestInstead:
    def test_a_status_with_text_or_json(self) -> None:
        text, value = faults.Status(503, "later").play(Stage()), faults.Status(400, {"why": "no"}).play(Stage())
        assert (text.status, text.body, dict(text.headers)["content-type"]) == (
            503,
            b"later",
            "text/plain; charset=utf-8",
        )
        assert (value.status, value.body, dict(value.headers)["content-type"]) == (
            400,
            b'{"why":"no"}',
            "application/json",
        )

    def test_a_page_of_a_proxy(self) -> None:
        reply = faults.Html502().play(Stage())
        assert (reply.status, dict(reply.headers)) == (502, {"content-type": "text/html"})
        assert reply.body.startswith(b"<html>")

    def test_a_redirect(self) -> None:
        reply = faults.Redirect("http://other/x", 303).play(Stage())
        assert (reply.status, dict(reply.headers), reply.body) == (303, {"location": "http://other/x"}, b"")

    @pytest.mark.parametrize(
        ("kind", "path", "answer"),
        [
            ("sglang", "/update_weights_from_disk", {"success": False, "message": "why"}),
            ("tokenspeed", "/pause_generation", {"success": False, "message": "why"}),
            ("vllm", "/reset_prefix_cache", {"success": False}),
            ("vllm", "/pause", {"status": "error", "message": "why"}),
        ],
    )
    def test_a_failure_with_200_is_in_the_shape_of_its_kind(self, kind: str, path: str, answer: object) -> None:
        reply = faults.Unsuccessful("why").play(Stage(kind=kind, path=path))
        assert (reply.status, json.loads(reply.body)) == (200, answer)

    def test_the_ways_of_no_answer(self) -> None:
        hang = Stage()
        assert faults.CloseBefore().play(Stage()) == faults.Hang().play(hang) == Reply(0)
        assert hang.done == [("wait", math.inf, False)]
        reset = faults.Reset().play(Stage())
        assert (reset.status, reset.reset, sent(reset)) == (0, True, b"")
        garbage = faults.Garbage("blah").play(Stage())
        assert (garbage.status, garbage.reset, sent(garbage)) == (0, False, b"blah")


class TestSpoiled:
    def test_a_delay_before_is_waited_out_alone_and_then_the_engine_acts(self) -> None:
        stage = Stage()
        assert faults.Delay(before=2).play(stage) is stage.reply
        assert stage.done == [("wait", 2, True), "answer"]

    def test_a_delay_in_the_body_is_in_its_middle(self) -> None:
        stage = Stage()
        reply = faults.Delay(in_body=3).play(stage)
        assert reply.stream is not None
        first = next(reply.stream)
        assert head_and_body(first)[1] == ANSWER[: len(ANSWER) // 2]
        assert stage.done == ["answer"]
        assert next(reply.stream) == ANSWER[len(ANSWER) // 2 :]
        assert stage.done == ["answer", ("wait", 3, False)]

    def test_a_trickle_is_the_head_and_then_byte_by_byte(self) -> None:
        stage = Stage()
        reply = faults.Trickle(0.25).play(stage)
        assert reply.stream is not None
        head, *rest = reply.stream
        assert head.endswith(b"\r\n\r\n") and b"content-length: %d\r\n" % len(ANSWER) in head
        assert rest == [bytes([byte]) for byte in ANSWER]
        assert stage.done == ["answer", *[("wait", 0.25, False)] * len(ANSWER)]

    @pytest.mark.parametrize(
        ("fault", "announced", "body"),
        [
            (faults.Truncate(), len(ANSWER), ANSWER[: len(ANSWER) // 2]),
            (faults.CloseAfterHead(), len(ANSWER), b""),
            (faults.WrongLength(2), len(ANSWER) + 2, ANSWER),
            (faults.WrongLength(-2), len(ANSWER) - 2, ANSWER),
            (faults.WrongLength(-1000), 0, ANSWER),
        ],
        ids=repr,
    )
    def test_what_is_announced_is_not_what_comes(self, fault: Fault, announced: int, body: bytes) -> None:
        reply = fault.play(Stage())
        lines, came = head_and_body(sent(reply))
        assert lines[0].startswith("HTTP/1.1 200 ")
        assert {f"content-length: {announced}", "content-type: application/json", "connection: close"} <= set(lines)
        assert (reply.status, reply.reset, came) == (200, False, body)

    def test_a_reset_after_the_head(self) -> None:
        assert faults.CloseAfterHead(reset=True).play(Stage()).reset

    @pytest.mark.parametrize("fault", [faults.Truncate(), faults.CloseAfterHead()], ids=repr)
    def test_of_an_answer_without_a_body_the_end_of_the_head_is_missing(self, fault: Fault) -> None:
        data = sent(fault.play(Stage(Reply(200))))
        assert data.endswith(b"\r\n") and b"\r\n\r\n" not in data

    @pytest.mark.parametrize("fault", [faults.Delay(in_body=1), faults.Trickle()], ids=repr)
    def test_a_slow_answer_is_whole_with_and_without_a_body(self, fault: Fault) -> None:
        assert head_and_body(sent(fault.play(Stage(Reply(200)))))[1] == b""
        assert sent(fault.play(Stage(Reply(200)))).endswith(b"\r\n\r\n")
        assert head_and_body(sent(fault.play(Stage())))[1] == ANSWER

    def test_a_stream_is_put_together(self) -> None:
        reply = faults.WrongLength(1).play(Stage(Reply(200, stream=(piece for piece in (b"ab", b"c")))))
        assert head_and_body(sent(reply))[1] == b"abc"

    def test_numbers_json_does_not_know(self) -> None:
        body = faults.NotANumber().play(Stage()).body
        assert body == ANSWER[:-1] + b',"not_a_number":NaN,"infinite":Infinity}'

    def test_a_huge_answer_is_still_its_json(self) -> None:
        reply = faults.Huge(1000).play(Stage())
        assert len(reply.body) > 1000
        assert json.loads(reply.body) == {**DONE, "padding": "x" * 1000}


REFUSED: list[tuple[Any, tuple[Any, ...], dict[str, Any], str]] = [
    (faults.Status, (199,), {}, "status must be 200 to 599, not 199"),
    (faults.Status, (600,), {}, "status must be 200 to 599, not 600"),
    (faults.Status, ("500",), {}, "status must be 200 to 599, not '500'"),
    (faults.Status, (True,), {}, "status must be"),
    (faults.Status, (500,), {"effect": 1}, "effect must be true or false, not 1"),
    (faults.Html502, (), {"effect": None}, "effect must be"),
    (faults.Redirect, ("/x", 200), {}, "status must be one of"),
    (faults.Redirect, ("",), {}, "location must be a text"),
    (faults.Redirect, ("/x\r\nset-cookie: y",), {}, "location must be a URL or a path"),
    (faults.Unsuccessful, (3,), {}, "message must be a text"),
    (faults.Garbage, ("",), {}, "text must be a text that is not empty"),
    (faults.Delay, (), {}, "more than 0 seconds"),
    (faults.Delay, (), {"before": -1}, "before must be 0 or more seconds, not -1"),
    (faults.Delay, (), {"before": math.inf}, "before must be 0 or more seconds, not inf"),
    (faults.Delay, (), {"in_body": "1"}, "in_body must be 0 or more seconds, not '1'"),
    (faults.Trickle, (math.nan,), {}, "seconds must be 0 or more seconds"),
    (faults.CloseAfterHead, ("yes",), {}, "reset must be true or false"),
    (faults.WrongLength, (0,), {}, "by must not be 0"),
    (faults.WrongLength, (1.5,), {}, "by must be"),
    (faults.Huge, (0,), {}, "size must be 1 to"),
    (faults.Crash, (2,), {}, "restart must be true or false"),
]


@pytest.mark.parametrize(("kind", "positional", "named", "sentence"), REFUSED)
def test_a_fault_that_cannot_be(kind: Any, positional: Any, named: Any, sentence: str) -> None:
    with pytest.raises(ValueError, match=sentence):
        kind(*positional, **named)


@pytest.mark.parametrize("fault", [*INSTEAD, *BREAKING, faults.Lie(), faults.Crash()], ids=repr)
def test_a_fault_is_a_value(fault: Fault) -> None:
    assert fault == eval(repr(fault), vars(faults))
    with pytest.raises((FrozenInstanceError, TypeError)):
        fault.effect = True  # type: ignore[attr-defined]  # that is the point
