"""Faults, log and state over HTTP, as a shell uses them; and the commands that serve them."""

import json
import re
import shutil
import signal
import socket
import subprocess
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from reference_server import Gateway, MockEngine, faults
from reference_server.engines.remote import FAULTS, Remotes

from ..support.aside import Aside
from ..support.asking import Answer, ask
from ..support.bare_connection import refuses
from ..support.commands import assert_one_clear_line, launched, run
from ..support.waiting import wait_until

PAGE = Path(__file__).parents[2] / "docs" / "faults.md"
ENGINE = ("-m", "smg", "engine")
REFIT = {"model_path": "step-2", "weight_version": "42"}


@pytest.fixture
def start() -> Callable[..., MockEngine]:
    return partial(MockEngine, "sglang", remote_control=True)


def control(engine: MockEngine, method: str, route: str, body: object = None) -> Answer:
    return ask(engine.url, method, f"/_mock/{route}", body)


class TestRoutes:
    def test_the_state(self, engine: MockEngine) -> None:
        assert control(engine, "GET", "state").json == {
            "kind": "sglang",
            "url": engine.url,
            "state": "running",
            "pause_mode": None,
            "weight_version": "default",
            "model_path": "mock-model",
            "flushes": 0,
            "in_flight": 0,
            "parked": 0,
            "adapters": {},
            "asleep": [],
            "holds": [],
        }
        ask(engine.url, "POST", "/pause_generation", {"mode": "retract"})
        ask(engine.url, "POST", "/update_weights_from_disk", REFIT)
        state = control(engine, "GET", "state").json
        assert (state["state"], state["pause_mode"], state["weight_version"]) == ("paused", "retract", "42")

    def test_the_log_whole_or_of_one_path_and_without_the_control(self, engine: MockEngine) -> None:
        ask(engine.url, "POST", "/flush_cache?timeout=1", {"a": 1}, {"authorization": "Bearer s3cret"})
        ask(engine.url, "GET", "/health")
        control(engine, "GET", "state")
        flush, health = control(engine, "GET", "log").json
        assert (health["number"], health["path"], health["body"], health["status"]) == (1, "/health", "", 200)
        assert (flush["method"], flush["query"], json.loads(flush["body"])) == ("POST", "timeout=1", {"a": 1})
        assert (flush["authorized"], flush["hung_up"]) == (True, False)
        assert control(engine, "GET", "log?path=flush_cache").json == [flush]
        assert "s3cret" not in control(engine, "GET", "log").body.decode()

    def test_faults_are_planned_listed_met_and_cleared(self, engine: MockEngine) -> None:
        plan = {"path": "flush_cache", "fault": {"kind": "Status", "status": 503, "body": {"a": 1}}, "times": 2}
        rule = {
            "path": "flush_cache",
            "times": 2,
            "method": None,
            "probability": 1.0,
            "seed": 0,
            "fault": {"kind": "Status", "effect": False, "status": 503, "body": {"a": 1}},
        }
        assert control(engine, "POST", "faults", plan).json == [rule]
        answer = ask(engine.url, "POST", "/flush_cache")
        assert (answer.status, answer.json) == (503, {"a": 1})
        assert control(engine, "GET", "faults").json == [{**rule, "times": 1}]
        assert control(engine, "DELETE", "faults").json == control(engine, "GET", "faults").json == []
        assert ask(engine.url, "POST", "/flush_cache").status == 200

    def test_a_fault_by_its_name_alone(self, engine: MockEngine) -> None:
        plan = {"path": "*", "fault": "Html502", "method": "POST", "probability": 0.5, "seed": 7}
        (rule,) = control(engine, "POST", "faults", plan).json
        assert {name: rule[name] for name in ("method", "probability", "seed")} == {
            "method": "POST",
            "probability": 0.5,
            "seed": 7,
        }
        assert {ask(engine.url, "POST", "/flush_cache").status for _ in range(20)} == {200, 502}

    def test_every_fault_has_its_name(self) -> None:
        def below(kind: type) -> set[type]:
            return {kind}.union(*map(below, kind.__subclasses__()))

        assert {*FAULTS.values()} == below(faults.Fault) - {faults.Fault, faults.Instead}

    def test_hold_and_release(self, engine: MockEngine, aside: Aside) -> None:
        assert control(engine, "POST", "hold", {"path": "update_weights_from_disk"}).json == {"hold": 1}
        assert control(engine, "POST", "hold", {"path": "flush_cache", "method": "GET", "times": None}).json == {
            "hold": 2
        }
        asked = aside(ask, engine.url, "POST", "/update_weights_from_disk", REFIT)
        wait_until(lambda: control(engine, "GET", "state").json["holds"][0]["entered"] == 1, "it is held")
        assert engine.weight_version == "default" and not asked.done()
        released = control(engine, "POST", "release", {"hold": 1}).json
        assert released["holds"] == [{"hold": 2, "path": "flush_cache", "entered": 0}]
        assert asked.result(10).status == 200 and engine.weight_version == "42"
        assert control(engine, "POST", "release").json["holds"] == []
        assert ask(engine.url, "GET", "/flush_cache").status == 200

    def test_a_restart_is_answered_and_then_the_engine_is_new(self, engine: MockEngine) -> None:
        for _ in range(20):
            ask(engine.url, "POST", "/update_weights_from_disk", REFIT)
            assert engine.weight_version == "42"
            answer = control(engine, "POST", "restart")
            assert (answer.status, answer.json) == (202, {"message": "it crashes after this answer"})
            engine.wait_until(lambda: engine.weight_version == "default" and engine.state == "running")
        assert control(engine, "GET", "state").json["weight_version"] == "default"

    def test_a_crash_is_answered_and_then_the_port_refuses(self, engine: MockEngine) -> None:
        assert control(engine, "POST", "crash").status == 202
        engine.wait_until(lambda: engine.state == "dead")
        wait_until(lambda: refuses(engine), "the port refuses")
        engine.restart()
        assert control(engine, "GET", "state").json["state"] == "running"

    def test_without_it_there_is_nothing_there(self) -> None:
        with MockEngine("sglang") as engine:
            assert control(engine, "GET", "state").status == 404
            assert control(engine, "GET", "state").json == {"detail": "Not Found"}
            assert len(engine.log) == 2


REFUSED: list[tuple[str, str, object, int, str]] = [
    ("GET", "nope", None, 404, "no /nope; there is /_mock/state, /_mock/log"),
    ("GET", "state/x", None, 404, "no /_mock/state/x; there is"),
    ("POST", "state", {}, 405, "/state knows GET, not POST"),
    ("POST", "faults", b"{", 400, "the body must be JSON"),
    ("POST", "faults", [], 400, "the body must be a JSON object, not list"),
    ("POST", "faults", {"path": "x"}, 400, "the field 'fault' is missing"),
    ("POST", "faults", {"fault": "Lie"}, 400, "the field 'path' is missing"),
    (
        "POST",
        "faults",
        {"path": "x", "fault": "Lie", "time": 1},
        400,
        "the body has no field 'time'; it has path, fault, times",
    ),
    ("POST", "faults", {"path": "x", "fault": "Lies"}, 400, "fault must be one of CloseAfterHead, CloseBefore"),
    ("POST", "faults", {"path": "x", "fault": {"status": 500}}, 400, "fault must be one of"),
    ("POST", "faults", {"path": "x", "fault": 7}, 400, "fault must be one of"),
    ("POST", "faults", {"path": "x", "fault": {"kind": ["Lie"]}}, 400, "fault must be one of"),
    (
        "POST",
        "faults",
        {"path": "x", "fault": {"kind": "Lie", "effect": True}},
        400,
        "Lie has no field 'effect'; it has none",
    ),
    (
        "POST",
        "faults",
        {"path": "x", "fault": {"kind": "Status", "code": 5}},
        400,
        "Status has no field 'code'; it has effect, status",
    ),
    ("POST", "faults", {"path": "x", "fault": "Status"}, 400, "the field 'status' is missing"),
    (
        "POST",
        "faults",
        {"path": "x", "fault": {"kind": "Status", "status": 5}},
        400,
        "status must be 200 to 599, not 5",
    ),
    ("POST", "faults", {"path": "x", "fault": "Lie", "times": 0}, 400, "times must be 1 or more, not 0"),
    ("POST", "faults", {"path": "x", "fault": "Lie", "probability": "often"}, 400, "probability must be"),
    ("POST", "hold", {}, 400, "the field 'path' is missing"),
    ("POST", "hold", {"path": ""}, 400, "path must be a text"),
    ("POST", "release", {"hold": 9}, 400, "there is no hold 9"),
    ("POST", "release", {"hold": []}, 400, "there is no hold"),
    ("POST", "crash", {"restart": True}, 400, "the body has no field 'restart'; it has none"),
]


@pytest.mark.parametrize(("method", "route", "body", "status", "sentence"), REFUSED)
def test_what_is_wrong_is_said(
    engine: MockEngine, method: str, route: str, body: object, status: int, sentence: str
) -> None:
    answer = control(engine, method, route, body)
    assert answer.status == status, answer
    assert answer.json["error"].startswith(sentence)
    assert control(engine, "GET", "faults").json == control(engine, "GET", "state").json["holds"] == []


class TestThroughTheGateway:
    def test_each_engine_by_its_number_even_one_that_is_down(self) -> None:
        with MockEngine("sglang") as one, MockEngine("vllm") as two:
            with Gateway(interceptor=Remotes([one.remote(), two.remote()]), enable_rl=True) as gateway:
                for number, engine in enumerate((one, two)):
                    state = ask(gateway.url, "GET", f"/_mock/engines/{number}/state").json
                    assert (state["kind"], state["url"]) == (engine.kind, engine.url)
                crashed = ask(gateway.url, "POST", "/_mock/engines/1/crash")
                assert (crashed.status, crashed.json["state"], two.state) == (200, "dead", "dead")
                assert ask(gateway.url, "GET", "/_mock/engines/1/log").json == []
                restarted = ask(gateway.url, "POST", "/_mock/engines/1/restart")
                assert (restarted.json["state"], two.state, one.state) == ("running", "running", "running")
                for path in ("/_mock/engines/2/state", "/_mock/state", "/_mock/engines/x/state", "/_mock/"):
                    answer = ask(gateway.url, "GET", path)
                    assert answer.status == 404 and "N from 0 to 1" in answer.json["error"]
                assert ask(gateway.url, "GET", "/_mocks/engines/0/state").status == 404
                assert ask(gateway.url, "GET", "/v1/rl/workers").status == 200

    def test_it_needs_no_key(self) -> None:
        with MockEngine("sglang") as engine, Gateway(interceptor=Remotes([engine.remote()]), api_key="k") as gateway:
            assert ask(gateway.url, "GET", "/workers").status == 401
            assert ask(gateway.url, "GET", "/_mock/engines/0/state").status == 200


class TestCommands:
    def test_a_fleet_is_controlled_from_a_shell(self) -> None:
        with launched("--port", "0", "--enable-rl", "--mock", "sglang=2,vllm=1", "--control") as (process, url):
            assert ask(url, "GET", "/v1/rl/workers").json["total"] == 3
            kinds = [ask(url, "GET", f"/_mock/engines/{n}/state").json["kind"] for n in range(3)]
            assert kinds == ["sglang", "sglang", "vllm"]
            plan = {"path": "update_weights_from_disk", "fault": "Unsuccessful", "times": 1}
            assert ask(url, "POST", "/_mock/engines/1/faults", plan).status == 200
            refit = "/v1/rl/engine/update_weights_from_disk?selector=engine%3Dsglang"
            results = ask(url, "POST", refit, REFIT).json["results"].values()
            assert sorted(result["body"]["success"] for result in results) == [False, True]
            versions = [ask(url, "GET", f"/_mock/engines/{n}/state").json["weight_version"] for n in range(2)]
            assert versions == ["42", "default"]
            process.send_signal(signal.SIGTERM)
            assert process.wait(30) == 0

    @pytest.mark.skipif(shutil.which("curl") is None, reason="the commands are written with curl")
    def test_the_commands_of_the_documentation(self) -> None:
        commands = re.findall(r"^    (curl .*)$", PAGE.read_text(encoding="utf-8"), re.MULTILINE)
        assert len(commands) > 10
        with launched("--port", "0", "--mock", "sglang=1", "--control") as (_, url):
            for command in commands:
                script = f"at={url}/_mock/engines/0; {command.replace('curl', 'curl --silent --show-error', 1)}"
                done = subprocess.run(["sh", "-c", script], capture_output=True, text=True, timeout=60)
                assert (done.returncode, done.stderr) == (0, ""), command
                assert "error" not in json.loads(done.stdout), command

    def test_the_documentation_has_every_fault(self) -> None:
        rows = re.findall(r"^\| `([A-Z][A-Za-z0-9]+)\(", PAGE.read_text(encoding="utf-8"), re.MULTILINE)
        assert {*rows} == {*FAULTS}

    def test_without_control_there_is_none(self) -> None:
        with launched("--port", "0", "--mock", "sglang=1") as (_, url):
            assert ask(url, "GET", "/_mock/engines/0/state").status == 404

    def test_the_ready_file_is_the_first_line_as_long_as_the_fleet_is_ready(self, tmp_path: Path) -> None:
        file = tmp_path / "ready.json"
        flags = ["--port", "0", "--enable-rl", "--mock", "sglang=2", "--ready-file", str(file)]
        with launched(*flags) as (process, url):
            ready = json.loads(file.read_text())
            assert (ready["event"], ready["url"], ready["pid"]) == ("ready", url, process.pid)
            assert [engine["kind"] for engine in ready["engines"]] == ["sglang"] * 2
            workers = ask(url, "GET", "/v1/rl/workers").json["workers"]
            assert sorted(worker["url"] for worker in workers) == sorted(engine["url"] for engine in ready["engines"])
            assert list(tmp_path.iterdir()) == [file]
            process.send_signal(signal.SIGTERM)
            assert process.wait(30) == 0
        assert list(tmp_path.iterdir()) == []

    def test_a_ready_file_that_cannot_be_written_is_one_line(self, tmp_path: Path) -> None:
        nowhere = str(tmp_path / "nowhere" / "ready.json")
        for command in (("launch", "--mock", "sglang=1"), ("engine", "sglang")):
            done = run("-m", "smg", *command, "--port", "0", "--ready-file", nowhere)
            assert_one_clear_line(done, 1, f"cannot write {nowhere}", "No such file")
        done = run("-m", "smg", "engine", "sglang", "--ready-file", str(tmp_path))
        assert_one_clear_line(done, 1, f"cannot write {tmp_path}")
        assert list(tmp_path.parent.glob(f"{tmp_path.name}.*")) == []

    def test_one_engine_in_a_process_of_its_own(self, tmp_path: Path) -> None:
        file = tmp_path / "ready.json"
        options = ["--weight-version", "7", "--model-path", "step-1", "--generation-ticks", "2", "--control"]
        flags = ["vllm", "--port", "0", "--version", "0.30.0", "--ready-file", str(file), *options]
        with launched(*flags, command=ENGINE) as (process, url):
            ready = json.loads(file.read_text())
            assert ready == {"event": "ready", "url": url, "pid": process.pid, "kind": "vllm"}
            state = ask(url, "GET", "/_mock/state").json
            assert (state["weight_version"], state["model_path"]) == ("7", "step-1")
            assert ask(url, "GET", "/version").json == {"version": "0.30.0"}
            assert ask(url, "POST", "/_mock/restart").status == 202
            wait_until(lambda: answers(url), "it is there again")
            process.send_signal(signal.SIGTERM)
            assert process.wait(30) == 0
            assert process.stderr is not None and process.stderr.read() == ""
        assert not file.exists()

    def test_what_an_engine_has_not(self) -> None:
        with launched("vllm", "--no-dev-mode", command=ENGINE) as (_, url):
            assert ask(url, "POST", "/pause", {}).status == 404
            assert ask(url, "GET", "/_mock/state").status == 404
        with launched("tokenspeed", "--no-control-port", command=ENGINE) as (_, url):
            assert ask(url, "POST", "/pause_generation", {}).status == 503
        with launched("sglang", "--checkpoints", "a", "b", command=ENGINE) as (_, url):
            statuses = [ask(url, "POST", "/update_weights_from_disk", {"model_path": path}).status for path in "abc"]
            assert statuses == [200, 200, 400]

    @pytest.mark.parametrize(
        ("flags", "code", "words"),
        [
            (["slang"], 2, ["slang", "sglang"]),
            (["sglang", "--host", "0.0.0.0"], 2, ["127.0.0.1"]),
            (["sglang", "--tp-size", "two"], 2, ["--tp-size", "two"]),
            (["sglang", "--tp-size", "0"], 1, ["tp_size must be 1 or more, not 0"]),
            (["sglang", "--port", "99999"], 1, ["port must be between 0 and 65535"]),
        ],
    )
    def test_a_wrong_flag_is_one_clear_line(self, flags: list[str], code: int, words: list[str]) -> None:
        assert_one_clear_line(run("-m", "smg", "engine", *flags), code, *words)

    def test_a_taken_port_is_one_line(self) -> None:
        with socket.create_server(("127.0.0.1", 0)) as taken:
            port = str(taken.getsockname()[1])
            assert_one_clear_line(
                run("-m", "smg", "engine", "sglang", "--port", port), 1, f"127.0.0.1:{port}", "in use"
            )

    def test_every_option_of_an_engine_is_a_flag(self) -> None:
        import inspect

        shown = run("-m", "smg", "engine", "--help").stdout
        named = {"control": "no-control-port", "dev_mode": "no-dev-mode", "remote_control": "control"}
        for name in inspect.signature(MockEngine).parameters.keys() - {"kind", "ticks"}:
            assert (
                f"--{named.get(name, name.replace('_', '-'))} " in shown or f"--{named.get(name, name)}\n" in shown
            ), name


def answers(url: str) -> Any:
    try:
        return ask(url, "GET", "/_mock/state").status == 200
    except OSError:
        return False
