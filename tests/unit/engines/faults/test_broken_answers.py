"""Answers that are broken on their way."""

import json

import pytest

from reference_server.engines.faults import broken_answers
from reference_server.httpd.messages import Reply


@pytest.mark.parametrize(
    ("reply", "answer"),
    [
        (Reply(200), ""),
        (Reply(200, (), b"text"), "text"),
        (Reply.of_json(200, None), None),
        (Reply.of_json(200, [1]), [1]),
    ],
)
def test_what_is_no_object_becomes_one(reply: Reply, answer: object) -> None:
    assert json.loads(broken_answers.with_fields(reply, {"a": 1}).body) == {"answer": answer, "a": 1}
