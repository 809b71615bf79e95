"""The commands as a user types them, each in a process of its own."""

import re
import signal
import socket
import subprocess
from collections.abc import Sequence

import pytest

from reference_server import MockEngine

from ..support.asking import ask
from ..support.bare_connection import raw, refuses
from ..support.commands import ROOT, assert_one_clear_line, launched, run
from ..support.scripted_engine import ScriptedEngine
from ..support.waiting import wait_until

EXAMPLE = ROOT / "examples" / "rl" / "refit_from_disk.py"


@pytest.mark.parametrize(
    "command", [("-m", "smg", "launch"), ("-m", "reference_server"), ("-m", "reference_server", "launch")]
)
def test_the_first_line_is_where_the_gateway_answers(command: Sequence[str]) -> None:
    with launched("--port", "0", "--enable-rl", "--mock", "sglang=2", command=command) as (_process, url):
        wait_until(lambda: ask(url, "GET", "/v1/rl/workers").json["total"] == 2, "both mock engines are registered")


def test_the_flags_of_a_training_framework_are_taken_as_typed() -> None:
    flags = (
        "--policy cache_aware --enable-rl --disable-health-check --disable-circuit-breaker --request-timeout-secs 14400"
    )
    with launched("--port", "0", *flags.split()) as (_, url):
        assert ask(url, "GET", "/v1/rl/workers").json == {"protocol_version": 1, "workers": [], "total": 0}


def test_sigterm_finishes_what_is_running_and_exits_with_0() -> None:
    with (
        ScriptedEngine() as engine,
        launched("--port", "0", "--enable-rl", "--worker-urls", engine.url) as (process, url),
    ):
        wait_until(lambda: ask(url, "GET", "/v1/rl/workers").json["total"] == 1, "the engine is registered")
        with raw(url) as caller:
            caller.sendall(b"POST /v1/rl/engine/x?selector=engine%3Dsglang HTTP/1.1\r\nHost: x\r\n\r\n")
            wait_until(lambda: engine.held == ["/x"], "the call runs")
            process.send_signal(signal.SIGTERM)
            wait_until(lambda: refuses(url), "it no longer listens")
            assert process.poll() is None
            engine.release()
            assert caller.recv(65536).startswith(b"HTTP/1.1 200 ")
        assert process.wait(30) == 0


def test_ctrl_c_ends_a_gateway_quietly() -> None:
    with launched("--port", "0") as (process, _):
        process.send_signal(signal.SIGINT)
        assert process.wait(30) == 0
        assert process.stderr is not None
        assert process.stderr.read() == ""


def test_a_taken_port_is_one_line_and_exit_1() -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = str(taken.getsockname()[1])
        assert_one_clear_line(run("-m", "smg", "launch", "--port", port), 1, f"127.0.0.1:{port}", "in use")
        assert_one_clear_line(
            run("-m", "smg", "launch", "--port", "0", "--prometheus-port", port), 1, f"127.0.0.1:{port}", "in use"
        )


REFUSED = [
    (["--bogus"], 2, ["--bogus"]),
    (["--port", "x"], 2, ["--port", "x"]),
    (["--port", "99999"], 1, ["port=99999", "65535"]),
    (["--worker-urls", "nonsense"], 1, ["'nonsense'", "http://"]),
    (["--worker-urls", "http://h:99999"], 1, ["http://h:99999", "port"]),
    (["--enable-rl", "--rl-control-timeout-secs", "0"], 1, ["rl_control_timeout_secs=0", ">= 1"]),
    (["--enable-rl", "--rl-fanout-concurrency", "0"], 1, ["rl_fanout_concurrency=0", ">= 1"]),
    (["--control-plane-api-keys", "a:b:hush"], 1, ["control_plane_api_keys", "id:name:role:key"]),
    (["--mock", "tensor=2"], 2, ["tensor", "sglang"]),
    (["--host", "203.0.113.7", "--port", "0"], 1, ["203.0.113.7"]),
]


@pytest.mark.parametrize(("flags", "code", "words"), REFUSED, ids=[" ".join(flags) for flags, _, _ in REFUSED])
def test_a_wrong_flag_is_one_clear_line(flags: list[str], code: int, words: list[str]) -> None:
    done = run("-m", "smg", "launch", *flags)
    assert_one_clear_line(done, code, *words)
    assert "hush" not in done.stderr


def test_a_public_bind_without_a_key_is_warned_of() -> None:
    for flags, warned in ((["--host", "0.0.0.0"], True), (["--host", "0.0.0.0", "--api-key", "k"], False), ([], False)):
        with launched("--port", "0", *flags) as (process, _):
            process.send_signal(signal.SIGTERM)
            assert process.stderr is not None
            assert ("anyone who can reach" in process.stderr.read()) is warned


def test_an_unknown_word_is_a_usage_error() -> None:
    assert_one_clear_line(run("-m", "smg", "dance"), 2, "smg demo")
    assert run("-m", "smg").returncode == 0
    assert re.fullmatch(r"smg \d+\.\d+\.\d+\n", run("-m", "smg", "--version").stdout)


def test_the_demo_shows_that_every_engine_holds_the_new_weights() -> None:
    done = run("-m", "smg", "demo", "--engines", "2", "--weight-version", "7")
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout.count("weight version 7") == 3
    assert "paused, paused" in done.stdout
    assert "running, running" in done.stdout
    assert_one_clear_line(run("-m", "smg", "demo", "--engines", "0"), 2, "--engines", "0")


def refit(url: str, *flags: str, **environment: str) -> "subprocess.CompletedProcess[str]":
    step = ["--model-path", "/ckpt/step-42", "--weight-version", "42", "--timeout", "30"]
    return run(str(EXAMPLE), "--smg", url, *step, *flags, **environment)


def test_the_example_refits_and_checks_a_fleet() -> None:
    with MockEngine("sglang") as one, MockEngine("sglang") as two:
        flags = ["--port", "0", "--enable-rl", "--control-plane-api-keys", "k:ops:admin:s3cret"]
        with launched(*flags, "--worker-urls", one.url, two.url) as (_, url):
            key = {"authorization": "Bearer s3cret"}
            wait_until(lambda: ask(url, "GET", "/v1/rl/workers", headers=key).json["total"] == 2, "both are registered")
            assert_one_clear_line(refit(url, SMG_ADMIN_TOKEN=""), 1, "HTTP 401", "api_key")
            done = refit(url, SMG_ADMIN_TOKEN="s3cret")
        assert done.returncode == 0, done.stderr
        assert "every engine serves weight version 42" in done.stdout
        assert [(e.weight_version, e.state) for e in (one, two)] == [("42", "running")] * 2


def test_the_example_names_the_worker_that_failed() -> None:
    with MockEngine("sglang") as good, MockEngine("sglang", checkpoints=["/ckpt/other"]) as bad:
        with launched("--port", "0", "--enable-rl", "--worker-urls", good.url, bad.url) as (_, url):
            wait_until(lambda: ask(url, "GET", "/v1/rl/workers").json["total"] == 2, "both are registered")
            done = refit(url)
            assert_one_clear_line(done, 1, bad.url, "HTTP 400")
            assert good.url not in done.stderr
            assert_one_clear_line(refit(url, "--selector", "engine=none"), 1, "no_workers_match")
        assert [(e.weight_version, e.state) for e in (good, bad)] == [("42", "running"), ("default", "running")]
    assert_one_clear_line(refit("http://127.0.0.1:1"), 1, "connection_failed", "is the gateway running there?")
    assert_one_clear_line(refit("127.0.0.1:1"), 1, "http://")


def test_the_example_is_not_fooled_by_an_engine_that_keeps_its_weights() -> None:
    with MockEngine("sglang") as good, ScriptedEngine() as liar:
        liar.release()
        with launched("--port", "0", "--enable-rl", "--worker-urls", good.url, liar.url) as (_, url):
            wait_until(lambda: ask(url, "GET", "/v1/rl/workers").json["total"] == 2, "both are registered")
            assert_one_clear_line(refit(url), 1, liar.url, "serves None, not '42'")
