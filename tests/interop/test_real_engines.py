"""A refit of real engines behind our gateway, with our client.

Runs when SMG_REAL_SGLANG or SMG_REAL_VLLM name running engines (URL[,URL…]) and
SMG_REAL_SGLANG_MODEL or SMG_REAL_VLLM_MODEL the folder with step-1 and step-2.
"""

from reference_server import Gateway
from smg.rl import RL, CallResult, FanoutResult, paused

from .real import PROMPT, TOKENS, checkpoint, engine_urls


def one_of(value: object, *path: str | int) -> object:
    """A value inside decoded JSON."""
    for step in path:
        assert isinstance(value, (dict, list)), value
        value = value[step]  # type: ignore[index]  # a dict by name, a list by number
    return value


def answers(result: FanoutResult) -> list[CallResult]:
    assert result.failed == []
    return list(result.results.values())


def test_sglang_is_refitted_through_paused() -> None:
    urls = engine_urls("SMG_REAL_SGLANG")
    selector = "engine=sglang"
    ask = {"text": PROMPT, "sampling_params": {"max_new_tokens": TOKENS, "temperature": 0}}

    def tokens(rl: RL) -> set[str]:
        return {str(one_of(a.body, "output_ids")) for a in answers(rl.fanout("generate", ask, selector=selector))}

    def load(rl: RL, step: int) -> None:
        body = {"model_path": checkpoint("SMG_REAL_SGLANG", step), "weight_version": f"v{step}"}
        with paused(rl, selector):
            rl.fanout("update_weights_from_disk", body, selector=selector)

    with Gateway(worker_urls=urls, enable_rl=True, health_check=False) as gateway:
        rl = RL(gateway.url, timeout=120)
        assert [worker.engine for worker in rl.workers()] == ["sglang"] * len(urls)
        load(rl, 1)
        before = tokens(rl)
        load(rl, 2)
        after = tokens(rl)
        versions = answers(rl.fanout("model_info", selector=selector, method="GET"))
        load(rl, 1)
        assert tokens(rl) == before
    assert len(before) == len(after) == 1
    assert before != after
    assert [one_of(info.body, "weight_version") for info in versions] == ["v2"] * len(urls)


def test_vllm_is_refitted_by_its_own_routes() -> None:
    urls = engine_urls("SMG_REAL_VLLM")
    selector = "engine=vllm"
    ask = {"model": "tiny", "prompt": PROMPT, "max_tokens": TOKENS, "temperature": 0}

    def texts(rl: RL) -> set[str]:
        results = answers(rl.fanout("v1/completions", ask, selector=selector))
        return {str(one_of(a.body, "choices", 0, "text")) for a in results}

    def load(rl: RL, step: int) -> None:
        kwargs = {"weights_path": checkpoint("SMG_REAL_VLLM", step)}
        answers(rl.fanout("pause", selector=selector, params={"mode": "keep"}))
        try:
            answers(rl.fanout("collective_rpc", {"method": "reload_weights", "kwargs": kwargs}, selector=selector))
            answers(rl.fanout("reset_prefix_cache", selector=selector))
            answers(rl.fanout("update_weight_version", {"new_version": f"v{step}"}, selector=selector))
        finally:
            answers(rl.fanout("resume", selector=selector))

    with Gateway(worker_urls=urls, enable_rl=True, health_check=False) as gateway:
        rl = RL(gateway.url, timeout=120)
        assert [worker.engine for worker in rl.workers()] == ["vllm"] * len(urls)
        load(rl, 1)
        before = texts(rl)
        load(rl, 2)
        after = texts(rl)
        versions = answers(rl.fanout("weight_info", selector=selector, method="GET"))
        states = answers(rl.fanout("is_paused", selector=selector, method="GET"))
        load(rl, 1)
        assert texts(rl) == before
    assert len(before) == len(after) == 1
    assert before != after
    assert [one_of(info.body, "weight_version") for info in versions] == ["v2"] * len(urls)
    assert [one_of(state.body, "is_paused") for state in states] == [False] * len(urls)
