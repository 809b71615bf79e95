"""A trainer that is killed while it holds a fleet paused: its guard resumes the engines, or names them.

Each trainer is a process of its own; the fleet is here.
"""

import contextlib
import os
import signal
import statistics
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

import smg
from reference_server import Fleet, faults
from smg.rl import RL, paused
from smg.rl.aio import AsyncRL
from smg.rl.aio import paused as aio_paused

from ..support.fleets import states
from ..support.waiting import wait_until

pytestmark = pytest.mark.skipif(not Path("/proc/self/stat").exists(), reason="looks for processes in /proc")

ROOT = Path(smg.__file__).parents[1]
ALL = "engine=sglang"
PAUSE, RESUME, REFIT = "pause_generation", "continue_generation", "update_weights_from_disk"
KEY = "k-3f9a-secret"
PATIENCE = 60.0

TRAINER = """
import os, sys, threading, time
from smg.rl import RL, paused
URL, KEY = sys.argv[1:3]
ALL, REFIT, STEP = "engine=sglang", "update_weights_from_disk", {{"model_path": "/ckpt/42", "weight_version": "42"}}
rl = RL(URL, KEY or None, timeout=60)

def say(*words):
    print(*words, flush=True)

def wait():
    say("in")
    sys.stdin.read()

def refit(worker_id):
    rl.call(worker_id, REFIT, STEP)

{setup}
with paused(rl, ALL{keywords}) as pause:
{block}
say("out")
"""

ASYNCIO = """
import asyncio, sys
from smg.rl.aio import AsyncRL, paused

async def job():
    async with paused(AsyncRL(sys.argv[1]), "engine=sglang", guard=True):
        print("in", flush=True)
        await asyncio.to_thread(sys.stdin.read)

asyncio.run(job())
"""


class Trainer:
    """A trainer in a process and a session of its own; its files go to `folder`."""

    def __init__(self, script: str, fleet: Fleet, folder: Path, key: str = "") -> None:
        environment = {**os.environ, "PYTHONPATH": str(ROOT), "SMG_GUARD_DIR": str(folder)}
        command = [sys.executable, "-W", "error", "-c", script, fleet.url, key]
        self.folder = folder
        self.process = subprocess.Popen(
            command,
            env=environment,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            start_new_session=True,
        )
        self._watchdog = threading.Timer(PATIENCE, self.process.kill)
        self._watchdog.start()

    @property
    def pid(self) -> int:
        return self.process.pid

    def wait_for(self, word: str) -> None:
        """Wait until it has said this word."""
        assert self.process.stdout is not None
        for line in self.process.stdout:
            if line.split()[:1] == [word]:
                return
        raise AssertionError(f"{word!r} was never said: {self.end()}")

    def guards(self) -> list[int]:
        return guards_of(self.pid)

    def kill(self, number: int = signal.SIGKILL) -> str:
        """Kill it, and wait for the end of its guard too, which shares its standard error."""
        os.kill(self.pid, number)
        return self.end()

    def end(self) -> str:
        """Wait for its end and that of its guard; what they have said on standard error."""
        said = self.process.communicate()[1]
        self.close()
        wait_until(lambda: self.guards() == [], "the guard has ended")
        return said

    def close(self) -> None:
        self._watchdog.cancel()
        self._watchdog.join()
        self.process.kill()
        for pid in self.guards():
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        for pipe in (self.process.stdin, self.process.stdout, self.process.stderr):
            if pipe is not None:
                pipe.close()
        self.process.wait()

    def files(self) -> list[Path]:
        return sorted(self.folder.iterdir())

    def __enter__(self) -> "Trainer":
        return self

    def __exit__(self, *error: object) -> None:
        self.close()


def guards_of(pid: int) -> list[int]:
    """The guards of a process that have not ended, zombies among them."""
    found = []
    for entry in Path("/proc").iterdir():
        with contextlib.suppress(OSError):
            if entry.name.isdigit() and is_guard_of(entry, pid):
                found.append(int(entry.name))
    return found


def is_guard_of(process: Path, pid: int) -> bool:
    line = (process / "cmdline").read_bytes().split(b"\0")
    return any(b"smg.rl.guardian" in word for word in line) and str(pid).encode() in line


def children() -> list[int]:
    """The children of this process, zombies among them."""
    found = []
    for entry in Path("/proc").iterdir():
        with contextlib.suppress(OSError):
            if entry.name.isdigit():
                parent = int((entry / "stat").read_text().rpartition(")")[2].split()[1])
                found += [int(entry.name)] if parent == os.getpid() else []
    return found


def script(block: str = "wait()", keywords: str = ", guard=True", setup: str = "") -> str:
    indented = "\n".join(f"    {line}" for line in block.splitlines())
    return TRAINER.format(block=indented, keywords=keywords, setup=setup)


def pauses(fleet: Fleet) -> list[int]:
    return [len(engine.calls(PAUSE)) for engine in fleet.engines]


@pytest.fixture
def fleet() -> Iterator[Fleet]:
    with Fleet(sglang=2) as fleet:
        yield fleet
        for engine in fleet.engines:
            engine.check()


def test_a_trainer_killed_in_the_block_leaves_engines_that_run(fleet: Fleet, tmp_path: Path) -> None:
    with Trainer(script(), fleet, tmp_path) as trainer:
        trainer.wait_for("in")
        assert states(fleet) == ["paused", "paused"]
        assert trainer.files() == []
        said = trainer.kill()
    assert states(fleet) == ["running", "running"]
    assert (pauses(fleet), [len(engine.calls(RESUME)) for engine in fleet.engines]) == ([1, 1], [1, 1])
    assert said.startswith(f"smg.rl guard: the trainer, process {trainer.pid}, died in a `paused` of {ALL}; resumed ")
    assert all(engine.url in said for engine in fleet.engines)
    (file,) = trainer.files()
    assert str(file) in said
    assert file.stat().st_mode & 0o777 == 0o600
    assert said.removeprefix("smg.rl guard: ").partition(" [also")[0] in file.read_text()


@pytest.mark.parametrize("end", ["os.abort()", "os._exit(3)", "os.kill(os.getpid(), 15)"])
def test_so_does_one_that_ends_without_a_resume_by_itself(fleet: Fleet, tmp_path: Path, end: str) -> None:
    with Trainer(script(f'say("in")\n{end}'), fleet, tmp_path) as trainer:
        assert f"process {trainer.pid}, died in" in trainer.end()
    assert states(fleet) == ["running", "running"]


def test_one_killed_while_the_pause_is_under_way_too(fleet: Fleet, tmp_path: Path) -> None:
    with fleet.engines[1].hold(PAUSE) as held, Trainer(script(), fleet, tmp_path) as trainer:
        held.wait_entered()
        os.kill(trainer.pid, signal.SIGKILL)
        held.wait_hung_up()
        held.release()  # the pause arrives late
        said = trainer.end()
    assert f"process {trainer.pid}, died while entering a `paused`" in said
    assert states(fleet) == ["running", "running"]
    assert pauses(fleet) == [1, 1]


def test_an_engine_whose_refit_was_under_way_is_left_paused_and_named(fleet: Fleet, tmp_path: Path) -> None:
    held_engine, free_engine = fleet.engines
    with held_engine.hold(REFIT) as held:
        one = f"refit({fleet.worker_id(held_engine)!r})"
        with Trainer(script(one), fleet, tmp_path) as trainer:
            held.wait_entered()
            said = trainer.kill()
    assert states(fleet) == ["paused", "running"]
    resumed, _, left = said.partition("left paused, as their refit was under way or had failed: ")
    assert free_engine.url in resumed and held_engine.url not in resumed
    assert held_engine.url in left and free_engine.url not in left


def test_a_fan_out_under_way_may_have_reached_everybody(fleet: Fleet, tmp_path: Path) -> None:
    with fleet.engines[1].hold(REFIT) as held:
        with Trainer(script("rl.fanout(REFIT, STEP, selector=ALL)"), fleet, tmp_path) as trainer:
            held.wait_entered()
            said = trainer.kill()
    assert states(fleet) == ["paused", "paused"]
    assert "there was nobody to resume; left paused" in said


@pytest.mark.parametrize(
    "block",
    [
        "try:\n    refit({id!r})\nexcept Exception:\n    wait()",
        "refit({id!r})\nwait()",
        "pause.quarantine([{id!r}])\nwait()",
    ],
)
def test_an_engine_whose_refit_had_failed_is_left_paused(fleet: Fleet, tmp_path: Path, block: str) -> None:
    bad = fleet.engines[0]
    fault = faults.CloseBefore() if "try" in block else faults.Status(500)
    bad.fail(REFIT, fault, times=1)
    with Trainer(script(block.format(id=fleet.worker_id(bad))), fleet, tmp_path) as trainer:
        trainer.wait_for("in")
        said = trainer.kill()
    assert states(fleet) == ["paused", "running"]
    assert f"had failed: {fleet.worker_id(bad)}" in said


def test_a_refit_that_succeeded_at_last_is_no_reason_to_be_left_paused(fleet: Fleet, tmp_path: Path) -> None:
    bad = fleet.engines[0]
    bad.fail(REFIT, faults.Status(500), times=1)
    one = f"refit({fleet.worker_id(bad)!r})"
    with Trainer(script(f"{one}\n{one}\nwait()"), fleet, tmp_path) as trainer:
        trainer.wait_for("in")
        trainer.kill()
    assert states(fleet) == ["running", "running"]


def test_who_had_no_refit_is_left_out_where_the_trainer_wanted_that(fleet: Fleet, tmp_path: Path) -> None:
    block = f"refit({fleet.worker_id(fleet.engines[0])!r})\nwait()"
    with Trainer(script(block, ", guard=True, quarantine=True"), fleet, tmp_path) as trainer:
        trainer.wait_for("in")
        trainer.kill()
    assert states(fleet) == ["running", "paused"]


def test_a_guard_that_is_to_resume_resumes_all(fleet: Fleet, tmp_path: Path) -> None:
    with fleet.engines[0].hold(REFIT) as held:
        block = "rl.fanout(REFIT, STEP, selector=ALL)"
        with Trainer(script(block, ', guard="resume"'), fleet, tmp_path) as trainer:
            held.wait_entered()
            said = trainer.kill()
    assert states(fleet) == ["running", "running"]
    assert "left paused" not in said


@pytest.mark.parametrize(
    ("block", "status"), [("pass", 0), ("sys.exit(3)", 3), ("raise KeyError", 1), ("pause.quarantine(['x'])", 0)]
)
def test_a_trainer_that_ends_by_itself_is_followed_in_silence(
    fleet: Fleet, tmp_path: Path, block: str, status: int
) -> None:
    with Trainer(script(block), fleet, tmp_path) as trainer:
        said = trainer.end()
    assert trainer.process.returncode == status
    assert "guard" not in said.replace("guard=True", "")
    assert trainer.files() == []
    assert [len(engine.calls(RESUME)) for engine in fleet.engines] == [1, 1]


def test_a_block_that_is_entered_and_never_left_ends_with_the_interpreter(fleet: Fleet, tmp_path: Path) -> None:
    setup = "one = paused(rl, ALL, guard=True)\none.__enter__()\nsys.exit()"
    with Trainer(script(setup=setup), fleet, tmp_path) as trainer:
        said = trainer.end()
    assert "smg.rl guard:" not in said
    assert states(fleet) == ["running", "running"]


def test_a_guard_outlives_the_process_group_and_whatever_a_batch_system_sends(fleet: Fleet, tmp_path: Path) -> None:
    with Trainer(script(), fleet, tmp_path) as trainer:
        trainer.wait_for("in")
        wait_until(lambda: len(trainer.guards()) == 1, "there is one guard")
        for number in (signal.SIGTERM, signal.SIGHUP, signal.SIGINT, signal.SIGUSR1):
            os.kill(trainer.guards()[0], number)
        os.killpg(trainer.pid, signal.SIGKILL)
        said = trainer.end()
    assert "smg.rl guard:" in said
    assert states(fleet) == ["running", "running"]


def test_it_is_no_child_of_the_trainer_which_somebody_might_end_with_it(fleet: Fleet, tmp_path: Path) -> None:
    def parent(pid: int) -> int:
        return int(Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[1])

    with Trainer(script(), fleet, tmp_path) as trainer:
        trainer.wait_for("in")
        wait_until(lambda: [parent(pid) for pid in trainer.guards()].count(trainer.pid) < len(trainer.guards()), "it")
        trainer.kill()
    assert states(fleet) == ["running", "running"]


@pytest.mark.parametrize(
    "fork",
    [
        "child = os.fork()\nif not child:\n    os.read(0, 1)\n    os._exit(0)",
        "import ctypes\nchild = ctypes.CDLL(None).fork()\nif not child:\n    os.read(0, 1)\n    os._exit(0)",
    ],
)
def test_a_forked_worker_that_lives_on_does_not_hide_the_death(fleet: Fleet, tmp_path: Path, fork: str) -> None:
    with Trainer(script(f"{fork}\nwait()"), fleet, tmp_path) as trainer:
        trainer.wait_for("in")
        os.kill(trainer.pid, signal.SIGKILL)
        for engine in fleet.engines:
            engine.wait_until(lambda engine=engine: engine.state == "running", PATIENCE)  # type: ignore[misc]  # bound
        trainer.end()


def test_a_worker_forked_in_the_block_says_nothing_in_the_name_of_the_trainer(fleet: Fleet, tmp_path: Path) -> None:
    # It leaves the block as well, and what it does there is its own affair, but it releases nobody.
    block = "if not os.fork():\n    os._exit(pause.quarantine(['x']) or 0)\nos.wait()\nwait()"
    with Trainer(script(block), fleet, tmp_path) as trainer:
        trainer.wait_for("in")
        assert len(trainer.guards()) >= 1
        assert "resumed" in trainer.kill()
    assert states(fleet) == ["running", "running"]


def test_a_trainer_that_closes_the_pipe_is_not_dead(fleet: Fleet, tmp_path: Path) -> None:
    with Trainer(script("os.closerange(3, 256)\nwait()\nos._exit(0)"), fleet, tmp_path) as trainer:
        trainer.wait_for("in")
        wait_until(lambda: len(trainer.guards()) == 1, "there is one guard")
        time.sleep(1.5)  # it looks every second
        assert states(fleet) == ["paused", "paused"]
        assert "resumed" in trainer.end()
    assert states(fleet) == ["running", "running"]


def test_the_key_is_in_no_command_line_no_environment_and_no_file(tmp_path: Path) -> None:
    with Fleet(sglang=1, gateway={"api_key": KEY}) as fleet:
        with Trainer(script(), fleet, tmp_path, KEY) as trainer:
            trainer.wait_for("in")
            wait_until(lambda: len(trainer.guards()) == 1, "there is one guard")
            process = Path(f"/proc/{trainer.guards()[0]}")
            for file in ("cmdline", "environ"):
                assert KEY.encode() not in (process / file).read_bytes()
            fleet.engines[0].fail(RESUME, faults.Status(500), times=1)
            said = trainer.kill()
        assert states(fleet) == ["running"]
        assert KEY not in said + trainer.files()[0].read_text()


def test_a_gateway_that_is_down_is_tried_again(fleet: Fleet, tmp_path: Path) -> None:
    with Trainer(script(), fleet, tmp_path) as trainer:
        trainer.wait_for("in")
        fleet.gateway.stop()
        os.kill(trainer.pid, signal.SIGKILL)
        wait_until(lambda: any("in vain" in file.read_text() for file in trainer.files()), "it has failed once")
        fleet.restart_gateway()
        said = trainer.end()
    assert states(fleet) == ["running", "running"]
    assert said.count("smg.rl guard:") == 2
    assert "trying for 600 s, so far in vain: " in said and "free them with:" in said


def test_it_gives_up_in_the_end_and_names_them(fleet: Fleet, tmp_path: Path) -> None:
    setup = "import smg.rl.guard\nsmg.rl.guard.PATIENCE_SECONDS = 1.0"
    with Trainer(script(setup=setup), fleet, tmp_path) as trainer:
        trainer.wait_for("in")
        fleet.gateway.stop()
        said = trainer.kill()
    assert "gave up after 1 s: " in said
    for engine in fleet.engines:
        assert f"smg rl resume --engine-url {engine.url}" in said
    fleet.restart_gateway()
    fleet.rl.fanout(RESUME, {}, selector=ALL)


def test_an_asyncio_trainer_has_one_too(fleet: Fleet, tmp_path: Path) -> None:
    with Trainer(ASYNCIO, fleet, tmp_path) as trainer:
        trainer.wait_for("in")
        assert "died in" in trainer.kill()
    assert states(fleet) == ["running", "running"]


def test_so_has_a_refit_from_a_shell(fleet: Fleet, tmp_path: Path) -> None:
    command = "import sys; from smg.rl.cli import main; sys.exit(main(['refit', '--guard', '--smg', sys.argv[1],"
    command += " '--selector', 'engine=sglang', '--model-path', '/ckpt/42', '--weight-version', '42']))"
    with fleet.engines[0].hold(REFIT) as held, Trainer(command, fleet, tmp_path) as trainer:
        held.wait_entered()
        assert "left paused" in trainer.kill()
    assert states(fleet) == ["paused", "paused"]


def test_pauses_within_each_other_have_a_guard_each(fleet: Fleet, tmp_path: Path) -> None:
    with Trainer(script("with paused(rl, ALL, guard=True):\n    wait()"), fleet, tmp_path) as trainer:
        trainer.wait_for("in")
        said = trainer.kill()
    assert said.count("smg.rl guard:") == 2
    assert states(fleet) == ["running", "running"]


def test_nothing_is_left_behind_when_the_block_ends(fleet: Fleet) -> None:
    before = children()

    @paused(fleet.rl, ALL, guard=True)
    def step() -> int:
        return len(children())

    assert [step() >= len(before), step() >= len(before)] == [True, True]
    with paused(fleet.rl, ALL, guard=True):
        wait_until(lambda: len(guards_of(os.getpid())) >= 1, "there is a guard")
    wait_until(lambda: guards_of(os.getpid()) == [] and children() == before, "nothing is left")
    fleet.check()


def test_nothing_is_left_behind_when_the_pause_fails(fleet: Fleet) -> None:
    fleet.engines[0].fail(PAUSE, faults.Status(500), times=1)
    with pytest.raises(Exception, match="fanout_partial"), paused(fleet.rl, ALL, guard=True):
        pytest.fail("the block ran")
    wait_until(lambda: guards_of(os.getpid()) == [], "the guard has ended")
    fleet.check()


def test_a_guard_that_was_killed_is_missed_only_in_the_log(fleet: Fleet, caplog: pytest.LogCaptureFixture) -> None:
    with paused(fleet.rl, ALL, guard=True):
        killed: list[int] = []

        def kill() -> bool:
            # While it starts it is two processes, one after the other.
            for pid in (now := guards_of(os.getpid())):
                with contextlib.suppress(ProcessLookupError):
                    os.kill(pid, signal.SIGKILL)
                killed.append(pid)
            return bool(killed) and not now

        wait_until(kill, "it has ended")
    assert [record.message for record in caplog.records] == [
        "guard: the process that would resume the engines after this one was killed has ended"
    ]
    fleet.check()


@pytest.mark.parametrize("guard", ["yes", 2, None])
def test_another_guard_is_refused(guard: bool) -> None:
    with pytest.raises(ValueError, match="guard must be"):
        paused(RL("http://h:1"), ALL, guard=guard)
    with pytest.raises(ValueError, match="guard must be"):
        aio_paused(AsyncRL("http://h:1"), ALL, guard=guard)


def test_a_client_that_cannot_go_to_another_process_is_refused() -> None:
    import ssl

    for rl, word in [
        (RL("https://h:1", ssl_context=ssl.create_default_context()), "SSL_CERT_FILE"),
        (RL("http://h:1", sender=RL("http://h:1").sender), "sender"),
    ]:
        with pytest.raises(ValueError, match=word), paused(rl, ALL, guard=True):
            pytest.fail("the block ran")


def test_entering_with_a_guard_takes_not_much_longer(fleet: Fleet) -> None:
    def entering(guard: bool) -> float:
        pause = paused(fleet.rl, ALL, guard=guard)
        started = time.perf_counter()
        with pause:
            return time.perf_counter() - started

    def starting() -> float:
        started = time.perf_counter()
        subprocess.run([sys.executable, "-c", "pass"], check=True)
        return time.perf_counter() - started

    rounds = [(entering(guard=False), entering(guard=True), starting()) for _ in range(9)]
    without, with_one, python = (statistics.median(times) for times in zip(*rounds, strict=True))
    assert with_one - without < 3 * python
