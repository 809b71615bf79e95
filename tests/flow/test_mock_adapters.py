"""LoRA adapters of mock engines over HTTP, as each kind has them."""

from collections.abc import Callable

import pytest

from reference_server import ManualTicks, MockEngine, faults

from ..support.aside import Aside
from ..support.asking import ask
from ..support.generating import begun, generate
from ..support.sglang_calls import post

PATHS = ("step-1", "/lora/1", "/lora/2")
PROMPT = {"prompt": "w1 w2", "max_tokens": 8}


class TestVLLM:
    @pytest.fixture
    def engine(self) -> MockEngine:
        return MockEngine("vllm", model="m", model_path="step-1", checkpoints=PATHS)

    def load(self, engine: MockEngine, path: str, **more: object) -> tuple[int, str]:
        answer = post(engine, "/v1/load_lora_adapter", {"lora_name": "a", "lora_path": path, **more})
        return answer.status, answer.body.decode()

    def test_loaded_listed_used_and_unloaded(self, engine: MockEngine) -> None:
        with engine:
            answer = post(engine, "/v1/load_lora_adapter", {"lora_name": "a", "lora_path": "/lora/1"})
            assert (answer.status, answer.body) == (200, b"Success: LoRA adapter 'a' added successfully.")
            assert (answer.type or "").startswith("text/plain")
            assert engine.adapters == {"a": "/lora/1"}
            base, adapter = ask(engine, "GET", "/v1/models").json["data"]
            assert (base["id"], base["parent"]) == ("m", None)
            assert (adapter["id"], adapter["root"], adapter["parent"]) == ("a", "/lora/1", "m")
            with_it = post(engine, "/v1/completions", {**PROMPT, "model": "a"}).json
            without = post(engine, "/v1/completions", {**PROMPT, "model": "m"}).json
            assert (with_it["model"], without["model"]) == ("a", "m")
            assert with_it["choices"][0]["text"] != without["choices"][0]["text"]
            gone = post(engine, "/v1/unload_lora_adapter", {"lora_name": "a"})
            assert (gone.status, gone.body) == (200, b"Success: LoRA adapter 'a' removed successfully.")
            assert engine.adapters == {}
            assert post(engine, "/v1/completions", {**PROMPT, "model": "a"}).status == 404

    def test_in_place(self, engine: MockEngine) -> None:
        with engine:
            self.load(engine, "/lora/1")
            status, error = self.load(engine, "/lora/2")
            assert status == 400 and '"type":"InvalidUserInput"' in error
            assert engine.adapters == {"a": "/lora/1"}
            assert self.load(engine, "/lora/2", load_inplace=True)[0] == 200
            assert engine.adapters == {"a": "/lora/2"}

    @pytest.mark.parametrize(
        ("route", "body", "status", "kind"),
        [
            ("load", {"lora_name": "", "lora_path": "/lora/1"}, 400, "InvalidUserInput"),
            ("load", {"lora_name": "a", "lora_path": ""}, 400, "InvalidUserInput"),
            ("load", {"lora_name": "m", "lora_path": "/lora/1"}, 400, "InvalidUserInput"),
            ("load", {"lora_name": "a", "lora_path": "/lora/9"}, 404, "NotFoundError"),
            ("load", {"lora_name": "a"}, 400, "Bad Request"),
            ("unload", {"lora_name": ""}, 400, "InvalidUserInput"),
            ("unload", {"lora_name": "a"}, 404, "NotFoundError"),
            ("unload", {}, 400, "Bad Request"),
        ],
    )
    def test_what_is_refused(self, engine: MockEngine, route: str, body: object, status: int, kind: str) -> None:
        with engine:
            answer = post(engine, f"/v1/{route}_lora_adapter", body)
            error = answer.json["error"]
            assert (answer.status, error["code"], error["type"]) == (status, status, kind)
            assert engine.adapters == {}

    def test_a_body_of_no_type_is_refused(self, engine: MockEngine) -> None:
        with engine:
            assert ask(engine, "POST", "/v1/load_lora_adapter", b"{}").status == 400

    def test_a_key_guards_them_and_dev_mode_does_not_matter(self) -> None:
        with MockEngine("vllm", api_key="k", dev_mode=False) as engine:
            body = {"lora_name": "a", "lora_path": "/lora/1"}
            assert post(engine, "/v1/load_lora_adapter", body).status == 401
            key = {"authorization": "Bearer k"}
            assert ask(engine, "POST", "/v1/load_lora_adapter", body, key).status == 200

    def test_an_unload_does_not_wait(self, ticks: ManualTicks, aside: Aside) -> None:
        with MockEngine("vllm", ticks=ticks) as engine:
            self.load(engine, "/lora/1")
            asked = aside(post, engine, "/v1/completions", {**PROMPT, "model": "a"})
            engine.wait_until(lambda: engine.in_flight == 1)
            assert post(engine, "/v1/unload_lora_adapter", {"lora_name": "a"}).status == 200
            ticks.step(8)
            assert asked.result(10).status == 200


class TestSGLang:
    @pytest.fixture
    def make(self, aside: Aside) -> Callable[..., MockEngine]:
        return lambda **more: MockEngine("sglang", model="m", model_path="step-1", checkpoints=PATHS, **more)

    def load(self, engine: MockEngine, path: str, name: str = "a") -> tuple[int, object]:
        answer = post(engine, "/load_lora_adapter", {"lora_name": name, "lora_path": path, "pinned": True})
        return answer.status, answer.json

    def unload(self, engine: MockEngine, name: str = "a") -> tuple[int, object]:
        answer = post(engine, "/unload_lora_adapter", {"lora_name": name})
        return answer.status, answer.json

    def test_loaded_listed_used_and_unloaded(self, make: Callable[..., MockEngine]) -> None:
        with make() as engine:
            loaded = {"a": "/lora/1"}
            answer = {"success": True, "error_message": None, "loaded_adapters": loaded}
            assert self.load(engine, "/lora/1") == (200, answer)
            assert engine.adapters == loaded
            base, adapter = ask(engine, "GET", "/v1/models").json["data"]
            assert (base["id"], adapter["id"], adapter["root"], adapter["parent"]) == ("m", "a", "/lora/1", "m")
            assert generate(engine, lora_path="a")["text"] != generate(engine)["text"]
            assert self.unload(engine) == (200, {"success": True, "error_message": None, "loaded_adapters": {}})
            assert engine.adapters == {}

    def test_what_is_refused_says_so_under_another_name(self, make: Callable[..., MockEngine]) -> None:
        with make() as engine:
            self.load(engine, "/lora/1")
            for status, answer in (
                self.load(engine, "/lora/2"),
                self.load(engine, "/lora/9", "b"),
                self.unload(engine, "c"),
            ):
                assert isinstance(answer, dict) and set(answer) == {"success", "error_message", "loaded_adapters"}
                assert (status, answer["success"], answer["loaded_adapters"]) == (400, False, None)
                assert answer["error_message"]
            assert engine.adapters == {"a": "/lora/1"}

    @pytest.mark.parametrize("body", [{}, {"lora_name": "a"}, {"lora_path": "/lora/1"}])
    def test_what_does_not_validate(self, make: Callable[..., MockEngine], body: object) -> None:
        with make() as engine:
            assert post(engine, "/load_lora_adapter", body).json["object"] == "error"

    def test_with_data_parallel_ranks_it_is_a_bare_500(self, make: Callable[..., MockEngine]) -> None:
        with make(dp_size=2) as engine:
            answer = post(engine, "/load_lora_adapter", {"lora_name": "a", "lora_path": "/lora/1"})
            assert (answer.status, answer.body) == (500, b"Internal Server Error")
            assert post(engine, "/unload_lora_adapter", {"lora_name": "a"}).status == 500

    def test_a_request_for_one_that_is_not_there(self, make: Callable[..., MockEngine]) -> None:
        with make() as engine:
            answer = post(engine, "/generate", {"text": "w1", "lora_path": "a"})
            assert answer.status == 400 and "a" in answer.json["error"]["message"]

    def test_an_unload_waits_for_those_who_use_it_and_a_load_behind_it(
        self, make: Callable[..., MockEngine], ticks: ManualTicks, aside: Aside
    ) -> None:
        with make(ticks=ticks) as engine:
            self.load(engine, "/lora/1")
            (asked,) = begun(engine, aside, lora_path="a")
            unload = aside(self.unload, engine)
            engine.wait_until(lambda: not engine.adapters)
            load = aside(self.load, engine, "/lora/2", "b")
            engine.wait_until(lambda: len(engine.calls("load_lora_adapter")) == 2)
            ticks.step(7)
            assert not unload.done() and not load.done()
            ticks.step()
            assert unload.result(10)[0] == load.result(10)[0] == 200
            assert asked.result(10)["output_ids"] and engine.adapters == {"b": "/lora/2"}

    def test_a_scripted_refusal_has_their_shape(self, make: Callable[..., MockEngine]) -> None:
        with make() as engine:
            engine.fail("load_lora_adapter", faults.Unsuccessful("full"), times=1)
            refused = {"success": False, "error_message": "full", "loaded_adapters": None}
            assert self.load(engine, "/lora/1") == (200, refused)


def test_a_tokenspeed_has_none() -> None:
    with MockEngine("tokenspeed") as engine:
        assert post(engine, "/load_lora_adapter").status == 404
        assert engine.adapters == {}
