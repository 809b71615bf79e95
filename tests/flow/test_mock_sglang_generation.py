"""`/generate` and the OpenAI routes of a mock SGLang engine, whole and streamed."""

import pytest

from reference_server import ManualTicks, MockEngine

from ..support.aside import Aside
from ..support.asking import ask
from ..support.generating import PROMPT, begun, generate, spans
from ..support.sglang_calls import post, refit


class TestGenerate:
    def test_one(self, engine: MockEngine) -> None:
        answer = generate(engine, rid="mine")
        meta = answer["meta_info"]
        assert answer["text"].split() == [f"w{token - 3}" for token in answer["output_ids"]]
        assert meta.pop("e2e_latency") >= 0 and meta.pop("response_sent_to_client_ts") > 0
        assert meta == {
            "id": "mine",
            "finish_reason": {"type": "stop", "matched": 2},
            "prompt_tokens": 3,
            "weight_version": "1",
            "num_retractions": 0,
            "reasoning_tokens": 0,
            "completion_tokens": 8,
            "cached_tokens": 0,
            "weight_versions": spans(("1", 0, 8)),
            "cached_tokens_details": None,
            "dp_rank": None,
        }
        again = generate(engine)["meta_info"]
        assert (again["cached_tokens"], again["cached_tokens_details"]) == (2, {"device": 2, "host": 0})
        assert again["id"] != "mine"

    def test_put_tokens_and_a_limit(self, engine: MockEngine) -> None:
        body = {"input_ids": [4, 5, 6], "sampling_params": {"max_new_tokens": 3, "temperature": 0}}
        answer = ask(engine, "PUT", "/generate", body).json
        assert answer["output_ids"] == generate(engine)["output_ids"][:3]
        assert answer["meta_info"]["finish_reason"] == {"type": "length", "length": 3}

    def test_logprobs(self, engine: MockEngine) -> None:
        answer = generate(engine, return_logprob=True, sampling_params={"max_new_tokens": 2})
        made = answer["meta_info"]["output_token_logprobs"]
        assert [token for _, token, _ in made] == answer["output_ids"]
        assert answer["meta_info"]["output_token_logprobs_length"] == 2

    @pytest.mark.parametrize(
        ("fields", "ids", "lengths"),
        [
            ({"text": ["w1", "w2"], "rid": ["a", "b"]}, ["a", "b"], [8, 8]),
            ({"text": ["w1", "w2"], "rid": "a"}, ["a_0", "a_1"], [8, 8]),
            ({"text": ["w1"], "rid": "a"}, ["a"], [8]),
            ({"text": "w1", "rid": "a", "sampling_params": {"n": 2}}, ["a_0", "a_1"], [8, 8]),
            (
                {"text": ["w1", "w2"], "rid": ["a", "b"], "sampling_params": [{"max_new_tokens": 1}, {}]},
                ["a", "b"],
                [1, 8],
            ),
            ({"input_ids": [[4], [5]], "text": None, "rid": ["a", "b"]}, ["a", "b"], [8, 8]),
            ({"text": []}, [], []),
        ],
    )
    def test_several(self, engine: MockEngine, fields: dict[str, object], ids: object, lengths: object) -> None:
        answers = generate(engine, **fields)
        assert [answer["meta_info"]["id"] for answer in answers] == ids
        assert [answer["meta_info"]["completion_tokens"] for answer in answers] == lengths

    @pytest.mark.parametrize(
        ("body", "error"),
        [
            ({}, {"message": "Either text, input_ids or input_embeds should be provided."}),
            (
                {**PROMPT, "sampling_params": {"max_new_tokens": -3}},
                {"message": "max_new_tokens must be at least 0, got -3."},
            ),
            ({**PROMPT, "sampling_params": {"max_new_tokens": "x"}}, "invalid type: 'x', expected i64"),
            (
                {"text": ["w1", "w2"], "rid": ["a"]},
                {"message": "sampling_params and rid must be as many as the prompts."},
            ),
            ({"text": ["w1", "w2"], "rid": ["a", "a"]}, {"message": "Duplicate request ID detected: a"}),
        ],
    )
    def test_refused(self, engine: MockEngine, body: object, error: object) -> None:
        answer = post(engine, "/generate", body)
        assert (answer.status, answer.json) == (400, {"error": error})

    def test_an_unknown_sampling_parameter(self, engine: MockEngine) -> None:
        answer = post(engine, "/generate", {**PROMPT, "sampling_params": {"max_tokens": 3}})
        assert answer.status == 400
        assert answer.json["error"].startswith("unknown field `max_tokens`, expected one of `max_new_tokens`, `stop`")

    @pytest.mark.parametrize("body", [{"text": 5}, {"input_ids": ["w1"]}, {**PROMPT, "sampling_params": 3}])
    def test_what_does_not_validate(self, engine: MockEngine, body: object) -> None:
        assert post(engine, "/generate", body).json["type"] == "Bad Request"

    def test_a_stream(self, engine: MockEngine) -> None:
        answer = post(engine, "/generate", {**PROMPT, "stream": True, "sampling_params": {"max_new_tokens": 3}})
        assert (answer.status, answer.type) == (200, "text/event-stream; charset=utf-8")
        whole = generate(engine)["output_ids"]
        assert [event["output_ids"] for event in answer.events] == [whole[:1], whole[:2], whole[:3]]
        assert [event["meta_info"]["finish_reason"] is None for event in answer.events] == [True, True, False]
        assert ["response_sent_to_client_ts" in event["meta_info"] for event in answer.events] == [True, False, False]
        assert ["e2e_latency" in event["meta_info"] for event in answer.events] == [False, False, True]

    def test_a_stream_of_several(self, engine: MockEngine) -> None:
        body = {"text": ["w1", "w2"], "stream": True, "sampling_params": {"max_new_tokens": 2}}
        events = post(engine, "/generate", body).events
        seen = sorted((event["index"], len(event["output_ids"])) for event in events)
        assert seen == [(0, 1), (0, 2), (1, 1), (1, 2)]

    def test_a_stream_stops_in_a_pause_and_goes_on_after(
        self, slow: MockEngine, ticks: ManualTicks, aside: Aside
    ) -> None:
        stream = aside(post, slow, "/generate", {**PROMPT, "stream": True})
        slow.wait_until(lambda: slow.in_flight == 1)
        ticks.step(2)
        post(slow, "/pause_generation", {"mode": "retract"})
        refit(slow, "step-2", "42")
        assert not stream.done()
        post(slow, "/continue_generation")
        ticks.step(6)
        events = stream.result(10).events
        assert [event["meta_info"]["weight_version"] for event in events] == ["1"] * 2 + ["42"] * 6
        assert events[-1]["meta_info"]["weight_versions"] == spans(("1", 0, 2), ("42", 2, 8))

    def test_a_stream_ends_with_an_abort(self, slow: MockEngine, ticks: ManualTicks, aside: Aside) -> None:
        stream = aside(post, slow, "/generate", {**PROMPT, "stream": True})
        slow.wait_until(lambda: slow.in_flight == 1)
        ticks.step(2)
        post(slow, "/pause_generation")
        last = stream.result(10).events[-1]
        assert (last["meta_info"]["finish_reason"]["type"], len(last["output_ids"])) == ("abort", 2)

    def test_many_at_once(self, engine: MockEngine, aside: Aside) -> None:
        asked = [aside(generate, engine, text=f"w{number}") for number in range(64)]
        assert all(len(one.result(30)["output_ids"]) == 8 for one in asked)
        assert engine.in_flight == 0 and len(engine.calls("generate")) == 64

    def test_real_ticks_take_time(self, aside: Aside) -> None:
        with MockEngine("sglang", tick_seconds=1000.0) as engine:
            begun(engine, aside)
            post(engine, "/pause_generation")
            assert engine.in_flight == 0


class TestOpenAI:
    def test_completions(self, engine: MockEngine) -> None:
        answer = post(engine, "/v1/completions", {"model": "m", "prompt": "w1 w2 w3", "max_tokens": 4}).json
        assert len(answer.pop("id")) == 32 and answer.pop("created") > 0
        text = "".join(f" {word}" for word in generate(engine)["text"].split()[:4])
        assert answer == {
            "object": "text_completion",
            "model": "m",
            "choices": [{"index": 0, "text": text, "logprobs": None, "finish_reason": "length", "matched_stop": None}],
            "usage": {
                "prompt_tokens": 3,
                "total_tokens": 7,
                "completion_tokens": 4,
                "prompt_tokens_details": None,
                "reasoning_tokens": 0,
                "completion_tokens_details": None,
            },
            "metadata": {"weight_version": "1", "weight_versions": spans(("1", 0, 4))},
        }

    @pytest.mark.parametrize(
        ("prompt", "count", "tokens"),
        [("w1 w2", 1, 2), (["w1", "w2 w3"], 2, 3), ([4, 5, 6], 1, 3), ([[4], [5]], 2, 2), ("", 1, 0)],
    )
    def test_prompts(self, engine: MockEngine, prompt: object, count: int, tokens: int) -> None:
        answer = post(engine, "/v1/completions", {"prompt": prompt, "n": 2}).json
        assert [choice["index"] for choice in answer["choices"]] == list(range(2 * count))
        assert answer["usage"]["prompt_tokens"] == 2 * tokens
        assert answer["model"] == "default"

    def test_chat(self, engine: MockEngine) -> None:
        parts = [{"type": "text", "text": "w2"}, {"type": "image_url"}]
        messages = [{"role": "system", "content": "w1"}, {"role": "user", "content": parts}, {"role": "assistant"}]
        answer = post(engine, "/v1/chat/completions", {"messages": messages, "max_completion_tokens": 4}).json
        assert answer["object"] == "chat.completion"
        assert answer["usage"]["prompt_tokens"] == 2 and answer["usage"]["completion_tokens"] == 4
        (choice,) = answer["choices"]
        assert (choice["finish_reason"], choice["matched_stop"]) == ("length", None)
        assert choice["message"]["role"] == "assistant" and choice["message"]["reasoning_content"] is None
        same = post(engine, "/v1/completions", {"prompt": "w1 w2", "max_tokens": 4}).json
        assert choice["message"]["content"] == same["choices"][0]["text"]

    def test_a_natural_end(self, engine: MockEngine) -> None:
        choice = post(engine, "/v1/completions", {"prompt": "w1", "max_tokens": 100}).json["choices"][0]
        assert (choice["finish_reason"], choice["matched_stop"]) == ("stop", 2)

    @pytest.mark.parametrize("usage", [True, False])
    def test_completions_stream(self, engine: MockEngine, usage: bool) -> None:
        body = {"prompt": "w1 w2", "max_tokens": 2, "stream": True, "stream_options": {"include_usage": usage}}
        answer = post(engine, "/v1/completions", body)
        assert answer.type == "text/event-stream; charset=utf-8"
        chunks = answer.events
        if usage:
            last = chunks.pop()
            assert last["choices"] == [] and last["usage"]["total_tokens"] == 4
        assert [chunk["choices"][0]["finish_reason"] for chunk in chunks] == [None, "length"]
        whole = post(engine, "/v1/completions", {"prompt": "w1 w2", "max_tokens": 2}).json["choices"][0]["text"]
        assert "".join(chunk["choices"][0]["text"] for chunk in chunks) == whole
        assert all(chunk["usage"] is None for chunk in chunks)

    @pytest.mark.parametrize("usage", [True, False])
    def test_chat_stream(self, engine: MockEngine, usage: bool) -> None:
        body = {"messages": [{"role": "user", "content": "w1"}], "max_tokens": 2, "stream": True}
        chunks = post(engine, "/v1/chat/completions", {**body, "stream_options": {"include_usage": usage}}).events
        if usage:
            last = chunks.pop()
            assert last["choices"] == [] and last["usage"]["completion_tokens"] == 2
        first, *middle, end = [chunk["choices"][0] for chunk in chunks]
        assert first["delta"] == {"reasoning_content": None, "role": "assistant", "content": ""}
        assert len(middle) == 2 and all(choice["finish_reason"] is None for choice in middle)
        assert (end["delta"], end["finish_reason"]) == ({"reasoning_content": None}, "length")
        assert {chunk["object"] for chunk in chunks} == {"chat.completion.chunk"}

    @pytest.mark.parametrize(
        ("path", "body", "message"),
        [
            ("/v1/completions", {}, "Field required"),
            ("/v1/completions", {"prompt": {}}, "Input should be a valid string"),
            ("/v1/completions", {"prompt": []}, "Prompt cannot be empty"),
            ("/v1/completions", {"prompt": "w1", "max_tokens": 0}, "greater than or equal to 1"),
            ("/v1/completions", {"prompt": "w1", "max_tokens": True}, "Input should be a valid integer"),
            ("/v1/chat/completions", {}, "Field required"),
            ("/v1/chat/completions", {"messages": []}, "Messages cannot be empty."),
            ("/v1/chat/completions", {"messages": ["w1"]}, "Input should be a valid dictionary"),
        ],
    )
    def test_what_does_not_validate(self, engine: MockEngine, path: str, body: object, message: str) -> None:
        answer = post(engine, path, body)
        assert answer.status == 400 and answer.json["object"] == "error" and message in answer.json["message"]

    def test_only_json(self, engine: MockEngine) -> None:
        answer = ask(engine, "POST", "/v1/completions", b'{"prompt": "w1"}', {"content-type": "text/plain"})
        assert answer.status == 400
        assert "Unsupported Media Type: Only 'application/json' is allowed" in answer.json["message"]
