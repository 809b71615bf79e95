"""`smg rl`: what an operator types, what a script reads, and the exit codes."""

import json
import os
import pty
import signal
import subprocess
import sys
from collections.abc import Iterator

import pytest

from reference_server import Fleet, MockEngine

from ..support.commands import ENVIRONMENT
from ..support.scripted_engine import ScriptedEngine
from ..support.waiting import wait_until

ALL = ["--selector", "engine=sglang"]


@pytest.fixture
def fleet() -> Iterator[Fleet]:
    with Fleet(sglang=3, labels={"role": "policy"}, gateway={"api_key": "s3cret"}) as running:
        yield running


def environment(url: str) -> dict[str, str]:
    return {
        **ENVIRONMENT,
        "SMG_URL": url,
        "SMG_ADMIN_TOKEN": "s3cret",
    }


def smg_rl(fleet: Fleet, *words: str, url: str | None = None) -> "subprocess.CompletedProcess[str]":
    command = [sys.executable, "-m", "smg", "rl", *words]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60, env=environment(url or fleet.url))
    assert "Traceback" not in done.stderr
    assert "s3cret" not in done.stdout + done.stderr
    return done


def test_workers_are_a_table_for_people_and_json_for_scripts(fleet: Fleet) -> None:
    table = smg_rl(fleet, "workers").stdout.splitlines()
    rows = json.loads(smg_rl(fleet, "workers", "--json").stdout)
    assert table[0].split() == ["ID", "URL", "ENGINE", "VERSION", "MODEL", "HEALTH", "ROLE"]
    assert [line.split()[0] for line in table[1:]] == [row["id"] for row in rows]
    assert len({line.index("sglang") for line in table[1:]}) == 1
    one = smg_rl(fleet, "worker", rows[0]["id"])
    assert (one.returncode, rows[0]["url"] in one.stdout) == (0, True)


def test_match_names_who_would_be_hit(fleet: Fleet) -> None:
    assert smg_rl(fleet, "match", "--selector", "role=critic").stdout == "no workers\n"
    assert smg_rl(fleet, "match", "--selector", "role=policy").stdout.count("sglang") == 3
    wrong = smg_rl(fleet, "match", "--selector", "role==x")
    assert (wrong.returncode, wrong.stderr.splitlines()[-2:]) == (2, ["role==x", "     ^"])


def test_pause_and_resume_do_what_they_say(fleet: Fleet) -> None:
    paused = smg_rl(fleet, "pause", *ALL, "--mode", "retract")
    assert (paused.returncode, paused.stdout.splitlines()[-1]) == (0, "3 of 3 succeeded")
    assert [engine.pause_mode for engine in fleet.engines] == ["retract"] * 3
    assert smg_rl(fleet, "resume", *ALL).returncode == 0
    fleet.check()


def test_a_straggler_is_seen_by_its_bar(fleet: Fleet) -> None:
    lines = smg_rl(fleet, "fanout", "flush_cache", *ALL).stdout.splitlines()
    assert max(line.count("█") for line in lines) == 24
    assert all("ms" in line for line in lines[1:4])


def test_refit_pauses_loads_resumes_and_checks(fleet: Fleet) -> None:
    done = smg_rl(fleet, "refit", *ALL, "--model-path", "/ckpt/42", "--weight-version", "42")
    assert done.returncode == 0, done.stderr
    assert [(e.weight_version, e.state) for e in fleet.engines] == [("42", "running")] * 3
    versions = json.loads(smg_rl(fleet, "versions", *ALL, "--json").stdout)
    assert set(versions.values()) == {"42"}
    differs = smg_rl(fleet, "versions", *ALL, "--expect", "43")
    assert (differs.returncode, "weight_version_differs" in differs.stderr) == (1, True)
    assert differs.stdout.count("differs") == 3
    assert smg_rl(fleet, "versions", *ALL, "--expect", "42").returncode == 0


def test_a_call_shows_the_engine_s_answer_and_fails_with_it(fleet: Fleet) -> None:
    worker = ["--worker", fleet.worker_id(fleet.engines[0])]
    good = smg_rl(fleet, "call", "model_info", *worker, "--method", "GET")
    assert (good.returncode, good.stdout.startswith("HTTP 200 from")) == (0, True)
    bad = smg_rl(fleet, "call", "pause_generation", *worker)
    assert (bad.returncode, bad.stdout.startswith("HTTP 400 from")) == (1, True)
    body = smg_rl(fleet, "call", "update_weight_version", '{"new_version": "7"}', *worker)
    assert (body.returncode, fleet.engines[0].weight_version) == (0, "7")
    query = smg_rl(fleet, "call", "flush_cache", *worker, "--param", "timeout=1")
    assert query.returncode == 0
    assert fleet.engines[0].calls("flush_cache")[-1].query == "timeout=1"


def test_some_failed_is_exit_1_and_the_failed_are_named(fleet: Fleet) -> None:
    fleet.engines[1].stop()
    done = smg_rl(fleet, "resume", *ALL)
    assert (done.returncode, fleet.engines[1].url in done.stderr) == (1, True)
    assert "2 of 3 succeeded" in done.stdout
    report = json.loads(smg_rl(fleet, "resume", *ALL, "--json").stdout)
    assert [failure["error"] for failure in report["failed"]] == ["upstream_unreachable"]


@pytest.mark.parametrize(
    ("words", "code", "says"),
    [
        (["dance"], 2, "dance"),
        ([], 2, "COMMAND"),
        (["fanout", "x"], 2, "--selector"),
        (["fanout", "x", "{bad", *ALL], 2, "not JSON"),
        (["fanout", "x", *ALL, "--param", "y"], 2, "KEY=VALUE"),
        (["workers", "--timeout", "0"], 2, "timeout"),
        (["workers", "--smg", "nonsense"], 2, "http://"),
        (["workers", "--smg", "http://127.0.0.1:1"], 3, "is the gateway running there?"),
        (["worker", "nope"], 1, "worker_not_found"),
        (["fanout", "a/../b", *ALL], 1, "invalid_engine_path"),
        (["resume", "--selector", "engine=none"], 1, "no_workers_match"),
    ],
)
def test_what_goes_wrong_has_its_exit_code_and_its_line(fleet: Fleet, words: list[str], code: int, says: str) -> None:
    done = smg_rl(fleet, *words)
    assert (done.returncode, says in done.stderr) == (code, True), done.stderr


def test_the_key_is_never_an_argument(fleet: Fleet) -> None:
    assert "api-key" not in smg_rl(fleet, "workers", "--help").stdout
    assert smg_rl(fleet, "workers", "--api-key", "x").returncode == 2


def test_a_trainer_that_was_killed_leaves_a_fleet_that_one_command_frees(fleet: Fleet) -> None:
    script = (
        "import sys, time\nfrom smg.rl import RL, paused\n"
        "with paused(RL(sys.argv[1], api_key='s3cret'), 'engine=sglang'):\n    print('in', flush=True); time.sleep(600)"
    )
    command = [sys.executable, "-c", script, fleet.url]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True, env=environment(fleet.url)) as trainer:
        assert trainer.stdout is not None
        assert trainer.stdout.readline() == "in\n"
        trainer.send_signal(signal.SIGKILL)
    assert [engine.state for engine in fleet.engines] == ["paused"] * 3
    assert smg_rl(fleet, "resume", *ALL).returncode == 0
    fleet.check()


def test_a_terminal_sees_a_clock_on_a_long_call_and_a_script_does_not() -> None:
    with ScriptedEngine() as engine, Fleet(sglang=0) as fleet:
        _, tried = fleet.gateway.register(engine.url, runtime="sglang")
        assert tried.wait(30)
        ours, theirs = pty.openpty()
        command = [sys.executable, "-m", "smg", "rl", "fanout", "slow", *ALL]
        with subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=theirs, env=environment(fleet.url)) as process:
            os.close(theirs)
            seen = b""
            while b"fanout: 1 s" not in seen:
                seen += os.read(ours, 1000)
            engine.release()
            assert process.wait(30) == 0
        os.close(ours)
        assert smg_rl(fleet, "fanout", "slow", *ALL).stderr == ""


def test_vllm_s_routes_are_a_flag_away() -> None:
    with ScriptedEngine() as engine, Fleet(sglang=0) as fleet:
        engine.release()
        _, tried = fleet.gateway.register(engine.url, runtime="vllm")
        assert tried.wait(30)
        selector = ["--selector", "engine=vllm", "--engine", "vllm"]
        assert smg_rl(fleet, "pause", *selector, "--mode", "keep").returncode == 0
        assert smg_rl(fleet, "resume", *selector).returncode == 0
        wait_until(lambda: engine.held[-2:] == ["/pause", "/resume"], "both routes were called")


def test_an_engine_that_cannot_be_resumed_is_named_with_the_command(fleet: Fleet) -> None:
    with MockEngine("sglang", checkpoints=["/other"]) as bad:
        _, tried = fleet.gateway.register(bad.url, api_key=None)
        assert tried.wait(30)
        done = smg_rl(fleet, "refit", *ALL, "--model-path", "/ckpt/42", "--weight-version", "42")
        assert done.returncode == 1
        assert bad.url in done.stderr
        assert bad.state == "running"
