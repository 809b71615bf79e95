"""The OpenAI routes of a mock vLLM engine, whole and streamed."""

from collections.abc import Callable, Mapping
from typing import Any

import pytest

from reference_server import ManualTicks, MockEngine

from ..support.aside import Aside
from ..support.asking import ask, post
from ..support.generating import spans
from ..support.vllm_calls import ASKED, begun, message, ok, start_vllm, text

CHAT = {"model": "m", "messages": [{"role": "user", "content": "w1 w2 w3"}]}
FINGERPRINT = "vllm-0.33.0-mock"
NO_DETAILS = {"prompt_tokens_details": None, "completion_tokens_details": None}
NO_TRANSFER = {"kv_transfer_params": None, "ec_transfer_params": None, "metrics": None}


@pytest.fixture
def start() -> Callable[..., MockEngine]:
    return start_vllm


class TestCompletions:
    def test_one(self, engine: MockEngine) -> None:
        answer = ok(engine, "/v1/completions", {**ASKED, "max_tokens": 4})
        assert answer.pop("id").startswith("cmpl-") and answer.pop("created") > 0
        (made,) = answer.pop("choices")
        assert len(made.pop("text").split()) == 4
        assert made == {
            "index": 0,
            "logprobs": None,
            "finish_reason": "length",
            "stop_reason": None,
            "token_ids": None,
            "prompt_logprobs": None,
            "prompt_token_ids": None,
            "routed_experts": None,
        }
        assert answer == {
            "object": "text_completion",
            "model": "m",
            "service_tier": None,
            "system_fingerprint": FINGERPRINT,
            "usage": {"prompt_tokens": 3, "total_tokens": 7, "completion_tokens": 4, **NO_DETAILS},
            **NO_TRANSFER,
        }

    @pytest.mark.parametrize(
        ("prompt", "count", "tokens"),
        [("w1 w2", 1, 2), (["w1", "w2 w3"], 2, 3), ([4, 5, 6], 1, 3), ([[4], [5, 6]], 2, 3)],
    )
    def test_prompts(self, engine: MockEngine, prompt: object, count: int, tokens: int) -> None:
        answer = ok(engine, "/v1/completions", {"prompt": prompt, "n": 2, "temperature": 1})
        assert [made["index"] for made in answer["choices"]] == list(range(2 * count))
        assert answer["usage"]["prompt_tokens"] == 2 * tokens

    def test_the_same_tokens_by_another_name(self, engine: MockEngine) -> None:
        assert text(engine, prompt=[4, 5, 6]) == text(engine)

    def test_token_ids(self, engine: MockEngine) -> None:
        made = ok(engine, "/v1/completions", {**ASKED, "return_token_ids": True})["choices"][0]
        assert made["prompt_token_ids"] == [4, 5, 6]
        assert [f"w{token - 3}" for token in made["token_ids"]] == made["text"].split()

    @pytest.mark.parametrize(("limit", "length", "reason"), [(None, 8, "stop"), (3, 3, "length"), (100, 8, "stop")])
    def test_the_limit(self, engine: MockEngine, limit: int | None, length: int, reason: str) -> None:
        (made,) = ok(engine, "/v1/completions", {**ASKED, "max_tokens": limit})["choices"]
        assert (len(made["text"].split()), made["finish_reason"]) == (length, reason)

    def test_unless_told_otherwise_it_is_16(self) -> None:
        with MockEngine("vllm", generation_ticks=100) as engine:
            assert len(text(engine, model=None).split()) == 16

    @pytest.mark.parametrize("asked", [True, False])
    @pytest.mark.parametrize(("version", "told"), [("0.33.0", True), ("0.32.0", False)])
    def test_which_weights_made_it(self, asked: bool, version: str, told: bool) -> None:
        with MockEngine("vllm", model="m", version=version, weight_version="5") as engine:
            for path, body in (("/v1/completions", ASKED), ("/v1/chat/completions", CHAT)):
                made = ok(engine, path, {**body, "return_weight_versions": asked})["choices"][0]
                assert made.get("weight_versions") == (spans(("5", 0, 8)) if asked and told else None)

    def test_ids(self, engine: MockEngine) -> None:
        assert ok(engine, "/v1/completions", {**ASKED, "request_id": "a"})["id"] == "cmpl-a"
        assert ok(engine, "/v1/chat/completions", {**CHAT, "request_id": "a"})["id"] == "chatcmpl-a"
        answer = ask(engine, "POST", "/v1/completions", ASKED, {"X-Request-Id": "b"})
        assert answer.json["id"] == "cmpl-b"

    def test_two_of_one_id(self, slow: MockEngine, ticks: ManualTicks, aside: Aside) -> None:
        asked = [begun(slow, aside, request_id="same"), begun(slow, aside, request_id="same")]
        ticks.step(8)
        assert [one.result(10)["id"] for one in asked] == ["cmpl-same", "cmpl-same"]

    @pytest.mark.parametrize(
        ("fields", "param", "sentence"),
        [
            ({"prompt": None}, "prompt", "Either prompt or prompt_embeds must be provided and non-empty."),
            ({"prompt": ""}, "prompt", "Either prompt or prompt_embeds must be provided and non-empty."),
            ({"prompt": []}, None, "You must pass at least one prompt"),
            ({"max_tokens": 0}, "max_tokens", "max_tokens must be at least 1, got 0. (parameter=max_tokens, value=0)"),
            ({"max_tokens": 10**6}, "max_tokens", "cannot be greater than max_model_len=32768."),
            ({"n": 0}, None, "n must be at least 1, got 0."),
            ({"n": 2, "temperature": 0}, None, "n must be 1 when using greedy sampling, got 2."),
        ],
    )
    def test_refused(self, engine: MockEngine, fields: dict[str, object], param: str | None, sentence: str) -> None:
        answer = post(engine, "/v1/completions", {**ASKED, **fields})
        assert sentence in message(answer, 400, "BadRequestError", param)

    @pytest.mark.parametrize("path", ["/v1/completions", "/v1/chat/completions"])
    @pytest.mark.parametrize("stream", [True, False])
    def test_another_model(self, engine: MockEngine, path: str, stream: bool) -> None:
        answer = post(engine, path, {**ASKED, **CHAT, "model": "x", "stream": stream})
        said = message(answer, 404, "NotFoundError", "model")
        assert said == "The model `x` does not exist. Valid aliases: m."

    @pytest.mark.parametrize(
        ("fields", "param"),
        [
            ({"prompt": {}}, "body.prompt"),
            ({"max_tokens": "x"}, "body.max_tokens"),
            ({"temperature": "hot"}, "body.temperature"),
            ({"stream": "maybe"}, "body.stream"),
        ],
    )
    def test_what_does_not_validate(self, engine: MockEngine, fields: dict[str, object], param: str) -> None:
        message(post(engine, "/v1/completions", {**ASKED, **fields}), 400, "Bad Request", param)

    @pytest.mark.parametrize("path", ["/v1/completions", "/v1/chat/completions"])
    def test_bodies_that_are_none(self, engine: MockEngine, path: str) -> None:
        not_declared = "Unsupported Media Type: Only 'application/json' is allowed"
        for body, headers in ((None, {}), (b"{}", {}), (b"{}", {"content-type": "text/plain"})):
            assert not_declared in message(ask(engine, "POST", path, body, headers), 400, "Bad Request")
        said = message(post(engine, path, [1]), 400, "Bad Request", "body")
        assert "Input should be a valid dictionary" in said and "'input': '<list of 1 items>'" in said


class TestChat:
    def test_one(self, engine: MockEngine) -> None:
        answer = ok(engine, "/v1/chat/completions", {**CHAT, "max_tokens": 100, "max_completion_tokens": 4})
        assert answer.pop("id").startswith("chatcmpl-") and answer.pop("created") > 0
        (made,) = answer.pop("choices")
        assert made["message"].pop("content") == text(engine, max_tokens=4)
        nothing = dict.fromkeys(("refusal", "annotations", "audio", "function_call", "reasoning"))
        assert made == {
            "index": 0,
            "message": {"role": "assistant", **nothing},
            "logprobs": None,
            "finish_reason": "length",
            "stop_reason": None,
            "token_ids": None,
            "routed_experts": None,
        }
        assert answer == {
            "object": "chat.completion",
            "model": "m",
            "service_tier": None,
            "system_fingerprint": FINGERPRINT,
            "usage": {"prompt_tokens": 3, "total_tokens": 7, "completion_tokens": 4, **NO_DETAILS},
            "prompt_logprobs": None,
            "prompt_token_ids": None,
            "prompt_text": None,
            **NO_TRANSFER,
        }

    def test_several(self, engine: MockEngine) -> None:
        parts = [{"type": "text", "text": "w2"}, {"type": "image_url"}]
        messages = [{"role": "system", "content": "w1"}, {"role": "user", "content": parts}, {"role": "assistant"}]
        answer = ok(engine, "/v1/chat/completions", {"messages": messages, "n": 2, "return_token_ids": True})
        assert [made["index"] for made in answer["choices"]] == [0, 1]
        assert answer["prompt_token_ids"] == [4, 5]

    def test_without_messages(self, engine: MockEngine) -> None:
        message(post(engine, "/v1/chat/completions", {"model": "m"}), 400, "Bad Request", "body.messages")
        said = message(post(engine, "/v1/chat/completions", {"messages": []}), 400, "BadRequestError")
        assert said.startswith("Cannot apply chat template to an empty conversation.")


class TestStreams:
    def events(self, engine: MockEngine, path: str, body: Mapping[str, object], **fields: object) -> list[Any]:
        answer = post(engine, path, {**body, "stream": True, **fields})
        assert (answer.status, answer.type) == (200, "text/event-stream; charset=utf-8")
        return answer.events

    def test_completions(self, engine: MockEngine) -> None:
        chunks = self.events(engine, "/v1/completions", ASKED, max_tokens=3, return_token_ids=True)
        made = [chunk["choices"][0] for chunk in chunks]
        assert "".join(one["text"] for one in made) == text(engine, max_tokens=3)
        assert [one["finish_reason"] for one in made] == [None, None, "length"]
        assert [one["prompt_token_ids"] for one in made] == [[4, 5, 6], None, None]
        assert [len(one["token_ids"]) for one in made] == [1, 1, 1]
        assert [chunk.get("system_fingerprint") for chunk in chunks] == [None, None, FINGERPRINT]
        assert all("weight_versions" not in one for one in made)

    def test_chat(self, engine: MockEngine) -> None:
        chunks = self.events(engine, "/v1/chat/completions", CHAT, max_tokens=2, return_weight_versions=True)
        assert {chunk["object"] for chunk in chunks} == {"chat.completion.chunk"}
        first, second, last = [chunk["choices"][0] for chunk in chunks]
        assert first == {
            "index": 0,
            "delta": {"role": "assistant", "content": ""},
            "logprobs": None,
            "finish_reason": None,
        }
        assert second["delta"]["content"] + last["delta"]["content"] == text(engine, max_tokens=2)
        assert "weight_versions" not in second
        assert "stop_reason" not in second and last["stop_reason"] is None
        assert (last["finish_reason"], last["weight_versions"]) == ("length", spans(("default", 0, 2)))

    @pytest.mark.parametrize(("path", "body"), [("/v1/completions", ASKED), ("/v1/chat/completions", CHAT)])
    def test_usage(self, engine: MockEngine, path: str, body: dict[str, object]) -> None:
        *chunks, last = self.events(engine, path, body, max_tokens=2, stream_options={"include_usage": True})
        assert last["choices"] == [] and last["system_fingerprint"] == FINGERPRINT
        assert last["usage"] == {"prompt_tokens": 3, "total_tokens": 5, "completion_tokens": 2}
        assert all("system_fingerprint" not in chunk for chunk in chunks)

    def test_several(self, engine: MockEngine) -> None:
        chunks = self.events(engine, "/v1/completions", {"prompt": ["w1", "w2"], "max_tokens": 2})
        seen = sorted((one["index"], one["finish_reason"] or "") for chunk in chunks for one in chunk["choices"])
        assert seen == [(0, ""), (0, "length"), (1, ""), (1, "length")]
        assert ["system_fingerprint" in chunk for chunk in chunks] == [False, False, False, True]

    @pytest.mark.parametrize(("path", "body"), [("/v1/completions", ASKED), ("/v1/chat/completions", CHAT)])
    def test_an_abort_ends_it(
        self, slow: MockEngine, ticks: ManualTicks, aside: Aside, path: str, body: dict[str, object]
    ) -> None:
        stream = aside(self.events, slow, path, body, return_token_ids=True)
        slow.wait_until(lambda: slow.in_flight == 1)
        ticks.step(2)
        ok(slow, "/pause")
        made = [chunk["choices"][0] for chunk in stream.result(10)]
        # The end may come with the last token or after it.
        assert sum(len(one.get("token_ids") or ()) for one in made) == 2
        assert [one["finish_reason"] for one in made[:-1]] == [None] * (len(made) - 1)
        assert made[-1]["finish_reason"] == "abort"

    def test_a_pause_that_keeps_stops_it_for_a_while(self, slow: MockEngine, ticks: ManualTicks, aside: Aside) -> None:
        stream = aside(self.events, slow, "/v1/completions", ASKED, return_weight_versions=True)
        slow.wait_until(lambda: slow.in_flight == 1)
        ticks.step(2)
        ok(slow, "/pause?mode=keep")
        ok(slow, "/update_weight_version", {"new_version": "2"})
        assert not stream.done()
        ok(slow, "/resume")
        ticks.step(6)
        last = stream.result(10)[-1]["choices"][0]
        assert last["weight_versions"] == spans(("default", 0, 2), ("2", 2, 8))


def test_many_at_once(engine: MockEngine, aside: Aside) -> None:
    asked = [aside(text, engine, prompt=f"w{number}") for number in range(64)]
    assert all(len(one.result(30).split()) == 8 for one in asked)
    assert engine.in_flight == 0 and len(engine.calls("/v1/completions")) == 64
