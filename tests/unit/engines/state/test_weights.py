"""Weights, and what they make of a prompt: words, tokens, answers, the prefix cache."""

from reference_server.engines.state.machine import EngineState
from reference_server.engines.state.weights import decode, encode

from ....support.state_by_hand import answer_of, begin, now


class TestWords:
    def test_words_and_tokens(self) -> None:
        assert encode("w0 w1\n w252") == (3, 4, 255)
        assert decode([3, 4, 255]) == " w0 w1 w252"
        assert decode([2]) == ""

    def test_other_words_have_tokens_too(self) -> None:
        tokens = encode("Hello world w253 w01 \ud800 ñ")
        assert len(tokens) == 6 and all(3 <= token <= 255 for token in tokens)
        assert tokens == encode("Hello world w253 w01 \ud800 ñ")


class TestAnswers:
    def test_path_version_and_prompt_decide_the_answer(self) -> None:
        assert answer_of("step-1", "1") == answer_of("step-1", "1")
        answers = {
            answer_of("step-1", "1"),
            answer_of("step-2", "1"),
            answer_of("step-1", "2"),
            answer_of("step-1", "1", "w1 w2 w4"),
        }
        assert len(answers) == 4

    def test_a_cached_prefix_counts_but_never_the_whole_prompt(self, state: EngineState) -> None:
        prompts = ["w1 w2 w3", "w1 w2 w3", "w1 w2 w9 w9", "w2 w3", ""]
        cached = [now(begin(state, str(number), prompt)).cached_tokens for number, prompt in enumerate(prompts)]
        assert cached == [0, 2, 2, 0, 0]
