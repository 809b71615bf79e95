"""The one promise: whoever was paused, or may yet be, runs again or is named, with what frees it."""

import asyncio
import contextlib
import gc
import json
import os
import shlex
import signal
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import anyio
import pytest
import trio

from reference_server import Fleet, MockEngine, faults
from smg.rl import RL, VLLM, FanoutError, Pause, PauseRoutes, RlError, Target, aio, paused
from smg.rl.engines import ENGINES
from smg.rl.messages import Began, Failure, Request, Response
from smg.rl.remedy import remedy

ALL = "engine=sglang"
REFIT = "update_weights_from_disk"
STEP = {"model_path": "/ckpt/2", "weight_version": "2"}
KINDS = [("sglang", ENGINES["sglang"].pause), ("vllm", VLLM)]
EVERY_KIND = pytest.mark.parametrize(("kind", "routes"), KINDS, ids=["sglang", "vllm"])


def states(fleet: Fleet) -> list[str]:
    return [engine.state for engine in fleet.engines]


def error_of(work: Callable[[], object]) -> BaseException:
    with pytest.raises(BaseException) as caught:
        work()
    return caught.value


def enter(rl: RL, selector: str, **options: Any) -> None:
    with paused(rl, selector, **options):
        pytest.fail("the block ran")


class TestStatus:
    def test_each_kind_is_asked_in_its_dialect(self) -> None:
        with Fleet(sglang=2, vllm=3, tokenspeed=1) as fleet:
            rl = fleet.rl
            everybody = "engine in (sglang,vllm,tokenspeed)"
            running, stopped, busy, frozen, sleeping, silent = (fleet.worker_id(engine) for engine in fleet.engines)
            rl.call(stopped, "pause_generation", {})
            rl.call(frozen, "pause")
            rl.call(sleeping, "sleep", params={"level": 1})
            assert rl.status(everybody) == {
                running: "running",
                stopped: "paused",
                busy: "running",
                frozen: "paused",
                sleeping: "paused" if not _has_metrics(fleet) else "asleep",
                silent: "unknown",
            }
            fleet.engines[0].crash()
            assert rl.status(f"id={running}") == {running: "unreachable"}
            for worker_id in (stopped, frozen, sleeping):
                path = "continue_generation" if worker_id == stopped else "wake_up"
                rl.call(worker_id, "resume" if worker_id == frozen else path, {} if worker_id == stopped else None)

    def test_one_that_hangs_does_not_hide_the_others(self) -> None:
        with Fleet(sglang=3) as fleet:
            fleet.engines[1].fail("ready", faults.Hang())
            found = fleet.rl.status(ALL, timeout=0.5)
            hung = fleet.worker_id(fleet.engines[1])
            assert {key: value for key, value in found.items() if key != hung} == dict.fromkeys(
                (fleet.worker_id(fleet.engines[0]), fleet.worker_id(fleet.engines[2])), "running"
            )
            assert found[hung] == "unreachable"
            fleet.engines[1].clear_faults()


def _has_metrics(fleet: Fleet) -> bool:
    return fleet.rl.call(fleet.worker_id(fleet.engines[2]), "metrics", method="GET").status == 200


class TestAPauseThatLies:
    @EVERY_KIND
    @pytest.mark.parametrize("verify", [None, True])
    def test_is_noticed_before_the_block(self, kind: str, routes: PauseRoutes, verify: bool | None) -> None:
        with Fleet(**{kind: 2}) as fleet:  # type: ignore[arg-type]  # a name that is a variable
            fleet.engines[1].fail(routes.pause, faults.Lie(), times=1)
            error = error_of(lambda: enter(fleet.rl, f"engine={kind}", routes=routes, verify=verify, settle=0.2))
            assert isinstance(error, FanoutError) and fleet.worker_id(fleet.engines[1]) in str(error)
            assert states(fleet) == ["running"] * 2 and error.still_paused == []

    @pytest.mark.parametrize("said", [{"success": False}, {"status": "error", "message": "no"}])
    def test_a_200_that_says_it_failed_is_a_failure_without_asking(self, said: dict[str, object]) -> None:
        with Fleet(sglang=2) as fleet:
            fleet.engines[1].fail("pause_generation", faults.Status(200, said), times=1)
            error = error_of(lambda: enter(fleet.rl, ALL, verify=False, settle=0.2))
            assert isinstance(error, FanoutError) and states(fleet) == ["running"] * 2

    @EVERY_KIND
    def test_a_resume_that_lies_is_sent_again(self, kind: str, routes: PauseRoutes) -> None:
        with Fleet(**{kind: 2}) as fleet:  # type: ignore[arg-type]  # a name that is a variable
            fleet.engines[1].fail(routes.resume, faults.Lie(), times=1)
            with paused(fleet.rl, f"engine={kind}", routes=routes):
                pass
            assert states(fleet) == ["running"] * 2

    def test_a_resume_that_always_lies_ends_in_a_name(self) -> None:
        with Fleet(sglang=2) as fleet:
            liar = fleet.engines[1]
            liar.fail("continue_generation", faults.Lie())
            with pytest.raises(RlError) as caught, paused(fleet.rl, ALL, settle=0.5):
                pass
            assert [t.worker_id for t in caught.value.still_paused] == [fleet.worker_id(liar)]
            liar.clear_faults()
            fleet.rl.fanout("continue_generation", {}, selector=ALL)


class TestALatePause:
    @EVERY_KIND
    @pytest.mark.parametrize("retries", [0, 3])
    def test_that_lands_after_the_resume_is_ended(self, kind: str, routes: PauseRoutes, retries: int) -> None:
        with Fleet(gateway={"rl_control_timeout_secs": 0.5}, **{kind: 2}) as fleet:  # type: ignore[arg-type]  # a name that is a variable
            late = fleet.engines[1]
            late.fail(routes.pause, faults.Delay(before=1.0), times=1)
            error = error_of(
                lambda: enter(fleet.rl, f"engine={kind}", routes=routes, resume_retries=retries, settle=2.5)
            )
            assert isinstance(error, FanoutError) and error.still_paused == []
            assert len(late.calls(routes.pause)) == 1 and states(fleet) == ["running"] * 2

    def test_behind_a_client_that_gave_up_concerns_everybody(self) -> None:
        with Fleet(sglang=3) as fleet:
            for engine in fleet.engines:
                engine.fail("pause_generation", faults.Delay(before=1.0), times=1)
            error = error_of(lambda: enter(RL(fleet.url, timeout=0.4), ALL, settle=2.5))
            assert isinstance(error, TimeoutError) and not getattr(error, "still_paused", [])
            assert states(fleet) == ["running"] * 3

    def test_that_nobody_can_see_is_named(self) -> None:
        with Fleet(gateway={"rl_control_timeout_secs": 0.5}, tokenspeed=1) as fleet:
            engine = fleet.engines[0]
            with engine.hold("pause_generation"):
                error = error_of(lambda: enter(fleet.rl, "engine=tokenspeed", settle=0.4))
            assert isinstance(error, RlError)
            assert [t.worker_id for t in error.still_paused] == [fleet.worker_id(engine)]
            assert error.remedy and fleet.worker_id(engine) in error.remedy
            engine.wait_until(lambda: engine.state == "paused")
            fleet.rl.fanout("continue_generation", {}, selector="engine=tokenspeed")

    def test_a_resume_that_comes_too_early_for_vllm_is_sent_again(self) -> None:
        with Fleet(vllm=2) as fleet:
            fleet.engines[0].fail("resume", faults.Status(500, {"error": "Failed to resume generation"}), times=2)
            with paused(RL(fleet.url), "engine=vllm", routes=VLLM) as pause:
                pass
            assert states(fleet) == ["running"] * 2 and len(pause.resumed) == 2


class TestTheRemedy:
    @EVERY_KIND
    @pytest.mark.parametrize("lost", [False, True], ids=["gateway there", "gateway gone"])
    def test_works_when_pasted(self, kind: str, routes: PauseRoutes, lost: bool) -> None:
        with Fleet(**{kind: 3}) as fleet:  # type: ignore[arg-type]  # a name that is a variable
            rl = RL(fleet.url, timeout=5)
            for engine in fleet.engines[1:]:
                engine.fail(routes.resume, faults.Status(503))

            def step() -> None:
                with paused(rl, f"engine={kind}", routes=routes, settle=0.2):
                    if lost:
                        fleet.gateway.stop()

            error = error_of(step)
            assert isinstance(error, RlError) and error.remedy
            for engine in fleet.engines:
                engine.clear_faults()
            stuck = fleet.engines if lost else fleet.engines[1:]
            assert {t.url for t in error.still_paused} == {engine.url for engine in stuck}
            for command in commands(error.remedy):
                subprocess.run(command, shell=True, check=lost is False, timeout=60, capture_output=True)
            assert states(fleet) == ["running"] * 3

    def test_has_no_rank_behind_an_address(self) -> None:
        with Fleet(sglang=1, engine={"dp_size": 2}, gateway={"dp_aware": True}) as fleet:
            rl = RL(fleet.url, timeout=5)

            def step() -> None:
                with paused(rl, ALL, settle=0.2):
                    fleet.gateway.stop()

            error = error_of(step)
            assert isinstance(error, RlError) and error.remedy
            direct = [command for command in commands(error.remedy) if "--engine-url" in command]
            assert direct and all("@" not in command for command in direct)
            subprocess.run(direct[0], shell=True, check=True, timeout=60, capture_output=True)
            assert states(fleet) == ["running"]

    def test_leaves_out_the_dead_and_the_quarantined(self) -> None:
        with Fleet(sglang=3) as fleet:
            dead, bad, stuck = fleet.engines
            ids = [fleet.worker_id(engine) for engine in fleet.engines]
            bad.fail(REFIT, faults.Status(400), times=1)
            stuck.fail("continue_generation", faults.Status(503))

            def step() -> None:
                with paused(fleet.rl, ALL, quarantine=True, settle=0.2):
                    fleet.rl.fanout(REFIT, STEP, selector=ALL, allow_partial=True)
                    dead.crash()

            error = error_of(step)
            assert isinstance(error, RlError) and error.remedy
            assert {t.worker_id for t in error.still_paused} == set(ids)
            (command,) = commands(error.remedy)
            assert ids[2] in command and ids[0] not in command and ids[1] not in command
            stuck.clear_faults()
            fleet.rl.fanout("continue_generation", {}, selector=f"id in ({ids[1]},{ids[2]})")
            dead.restart()

    def test_frees_two_thousand_in_commands_of_bearable_length(self) -> None:
        stuck = [Target(f"01a2{n:04x}-0000-7000-8000-000000000000", f"http://e{n}:1") for n in range(2000)]
        pause = Pause(paused=stuck, still_paused=list(stuck))
        text = remedy(pause, VLLM, "http://smg:30000", "engine=vllm", gateway_lost=False)
        told = [line.strip() for line in text.splitlines() if line.startswith("  smg rl resume")]
        assert all(len(command) < 4096 and "--engine vllm" in command for command in told)
        ids = [word for command in told for word in command.partition("(")[2].partition(")")[0].split(",")]
        assert ids == [target.worker_id for target in stuck]

    def test_is_in_the_message_where_there_are_no_notes(self) -> None:
        with Fleet(sglang=1) as fleet:
            fleet.engines[0].fail("continue_generation", faults.Status(503))
            with pytest.raises(RlError) as caught, paused(fleet.rl, ALL, settle=0.2):
                pass
            told = "\n".join([str(caught.value), *getattr(caught.value, "__notes__", [])])
            assert "smg rl resume" in told
            fleet.engines[0].clear_faults()
            fleet.rl.fanout("continue_generation", {}, selector=ALL)


def commands(remedy: str) -> list[str]:
    """What is to be pasted, run by this very Python."""
    lines = [line.strip() for line in remedy.splitlines() if line.startswith("  smg rl")]
    return [line.replace("smg", f"{shlex.quote(sys.executable)} -m smg", 1) for line in lines]


class TestReportsThatCannotBeTrue:
    @pytest.mark.parametrize(
        ("status", "report"),
        [
            (200, {"results": {}, "failed": [], "total": 2, "succeeded": 2}),
            (200, {"results": None, "failed": [], "total": 0, "succeeded": 0}),
            (207, {"results": {}, "failed": [], "total": 0, "succeeded": 0}),
            (200, {"results": {"w": {"worker_id": "w"}}, "failed": [], "total": 1, "succeeded": 1}),
            (200, {"results": {}, "failed": [{"error": "upstream_timeout"}], "total": 1, "succeeded": 0}),
        ],
    )
    def test_is_a_bad_response_and_the_resume_follows(self, status: int, report: object) -> None:
        asked: list[str] = []

        class Liar:
            def send(self, request: Request, timeout: float, began: Began | None = None) -> Response | Failure:
                asked.append(request.url.partition("?")[0].rpartition("/")[2])
                if asked[-1] == "workers":
                    return Response(200, b'{"workers": []}')
                said = report if asked[-1] == "pause_generation" else {"results": {}, "failed": [], "total": 0}
                return Response(status if asked[-1] == "pause_generation" else 200, json.dumps(said).encode())

        with pytest.raises(RlError, match="bad_response"):
            enter(RL("http://gateway:1", sender=Liar()), ALL)
        assert asked[:2] == ["pause_generation", "continue_generation"]


class TestReportsThatLeaveThingsOut:
    def test_engines_without_urls_are_not_taken_for_one_another(self) -> None:
        answer = {"status": 200}
        rl = RL("http://gateway:1", sender=Says({"a": answer, "b": answer}, [], then=({"a": answer}, [])))
        with pytest.raises(RlError) as caught, paused(rl, ALL):
            pass
        assert [target.worker_id for target in caught.value.still_paused] == ["b"]

    @pytest.mark.parametrize("kind", [None, "a kind of tomorrow"])
    def test_a_failure_of_a_kind_that_nobody_knows_may_have_paused(self, kind: str | None) -> None:
        failed = [{"worker_id": "b", "error": kind}]
        rl = RL("http://gateway:1", sender=Says({}, failed, then=({"a": {"status": 200}}, [])))
        with pytest.raises(RlError) as caught:
            enter(rl, ALL)
        assert [target.worker_id for target in caught.value.still_paused] == ["b"]


class TestWhomNobodyKnows:
    def test_one_that_was_away_for_a_moment_is_found_when_it_comes_back(self) -> None:
        """The answer to the pause is lost, and an engine is not registered when names are learnt."""
        with Fleet(sglang=2) as fleet:
            away = fleet.engines[1]
            gateway = LosesThePause(fleet.rl)
            gateway.at_resume.append(lambda: fleet.drop(away))
            gateway.at_look += [lambda: None, lambda: None, lambda: fleet.register_anew(away)]
            with pytest.raises(RlError, match="broken"):
                enter(RL(fleet.url, sender=gateway), ALL)
            assert states(fleet) == ["running"] * 2

    def test_pieces_of_a_pause_that_got_no_answer_are_looked_after_too(self) -> None:
        with Fleet(sglang=2) as fleet:
            slow = fleet.engines[1]
            ids = [fleet.worker_id(engine) for engine in fleet.engines]
            gateway = LosesThePause(fleet.rl, only=ids[1])
            slow.fail("continue_generation", faults.Status(503), times=1)
            selector = f"id in ({','.join([ids[0], *(f'{n:036d}' for n in range(150)), ids[1]])})"
            with pytest.raises(RlError, match="broken"):
                enter(RL(fleet.url, sender=gateway), selector)
            assert states(fleet) == ["running"] * 2


class LosesThePause:
    """Sends to a real gateway, and loses the answer to the pause, or to that piece of it which names `only`."""

    def __init__(self, rl: RL, only: str = "") -> None:
        self._rl, self._only = rl, only
        self.at_resume: list[Callable[[], object]] = []
        """What happens before each of them, from the first on."""
        self.at_look: list[Callable[[], object]] = []

    def send(self, request: Request, timeout: float, began: Began | None = None) -> Response | Failure:
        path = request.url.partition("?")[0].rpartition("/")[2]
        due = {"continue_generation": self.at_resume, "workers": self.at_look}.get(path)
        if due:
            due.pop(0)()
        answer = self._rl.sender.send(request, timeout)
        if path == "pause_generation" and self._only in request.url:
            return Failure("bad_response", "broken")
        return answer


class Says:
    """A gateway that answers a pause with these, everything else with `then`, and knows no worker."""

    def __init__(self, results: object, failed: list[Any], *, then: tuple[object, list[Any]]) -> None:
        self._pause, self._then = (results, failed), then

    def send(self, request: Request, timeout: float, began: Began | None = None) -> Response | Failure:
        if "/workers" in request.url:
            return Response(200, b'{"workers": []}')
        results, failed = self._pause if "pause_generation" in request.url else self._then
        return Response(207 if failed else 200, json.dumps({"results": results, "failed": failed}).encode())


class TestQuarantine:
    @pytest.mark.parametrize("path", ["load_lora_adapter", "load_weights", f"engine/{REFIT}", "update_weights_lora"])
    def test_every_route_that_changes_weights_counts(self, path: str) -> None:
        from smg.rl.quarantine import changes_weights

        assert changes_weights(path) and not changes_weights("flush_cache") and not changes_weights("generate")

    def test_hears_every_client_of_the_process_and_a_later_good_refit_lifts_it(self) -> None:
        with Fleet(sglang=2) as fleet:
            good, bad = fleet.engines
            bad.fail(REFIT, faults.Status(400), times=2)
            error = error_of(lambda: refit_in_pause(fleet, swallow=True))
            assert isinstance(error, RlError) and error.code == "quarantined"
            assert [t.url for t in error.still_paused] == [bad.url] and states(fleet) == ["running", "paused"]
            with paused(fleet.rl, ALL, quarantine=True):
                fleet.rl.fanout(REFIT, STEP, selector=ALL, allow_partial=True)
                fleet.rl.call(fleet.worker_id(bad), REFIT, STEP)
            assert states(fleet) == ["running"] * 2 and {e.weight_version for e in (good, bad)} == {"2"}

    def test_another_process_tells_by_hand(self) -> None:
        with Fleet(sglang=2) as fleet:
            bad = fleet.worker_id(fleet.engines[0])
            with pytest.raises(RlError) as caught, paused(fleet.rl, ALL) as pause:
                pause.quarantine([bad])
            assert [t.worker_id for t in caught.value.still_paused] == [bad]
            assert states(fleet) == ["paused", "running"]
            fleet.rl.fanout("continue_generation", {}, selector=ALL)

    def test_calls_of_a_decorator_share_nothing(self) -> None:
        with Fleet(sglang=2) as fleet:
            fleet.engines[1].fail(REFIT, faults.Status(400), times=1)

            @paused(fleet.rl, ALL, quarantine=True)
            def step() -> None:
                fleet.rl.fanout(REFIT, STEP, selector=ALL, allow_partial=True)

            assert isinstance(error_of(step), RlError)
            step()
            assert states(fleet) == ["running"] * 2

    def test_no_refit_is_said_once(self, caplog: pytest.LogCaptureFixture) -> None:
        with Fleet(sglang=2) as fleet, paused(fleet.rl, ALL, quarantine=True):
            pass
        assert [record.message for record in caplog.records if "no refit was seen" in record.message] != []
        assert len([record for record in caplog.records if "no refit was seen" in record.message]) == 1


def refit_in_pause(fleet: Fleet, *, swallow: bool) -> None:
    with paused(fleet.rl, ALL, quarantine=True):
        fleet.rl.fanout(REFIT, STEP, selector=ALL, allow_partial=swallow)


class Alarm(Exception):
    """What a handler raises; `arrived` has those that were raised."""

    arrived: list[int] = []


@pytest.fixture
def raising() -> Iterator[None]:
    """SIGINT, SIGALRM and SIGUSR1 raise."""

    def handler(number: int, frame: object) -> None:
        Alarm.arrived.append(number)
        raise Alarm(number)

    Alarm.arrived.clear()
    numbers = (signal.SIGINT, signal.SIGALRM, signal.SIGUSR1)
    before = [signal.signal(number, handler) for number in numbers]
    yield
    assert all(signal.getsignal(number) is handler for number in numbers), "a handler was left"
    for number, old in zip(numbers, before, strict=True):
        signal.signal(number, old)


EVERY_SIGNAL = pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGALRM, signal.SIGUSR1])


@pytest.mark.usefixtures("raising")
class TestSignals:
    @EVERY_SIGNAL
    def test_during_the_resume_waits_for_its_end_without_a_false_alarm(self, number: signal.Signals) -> None:
        with Fleet(sglang=2) as fleet, fleet.engines[0].hold("continue_generation") as held:

            def interrupt() -> None:
                held.wait_entered()
                os.kill(os.getpid(), number)
                held.release()

            thread = threading.Thread(target=interrupt)
            with pytest.raises(Alarm) as caught, paused(fleet.rl, ALL) as pause:
                thread.start()
            thread.join()
            assert states(fleet) == ["running"] * 2 and len(pause.resumed) == 2
            assert not getattr(caught.value, "__notes__", [])

    @EVERY_SIGNAL
    def test_during_the_pause_cuts_it_short_and_resumes(self, number: signal.Signals) -> None:
        with Fleet(sglang=2) as fleet, fleet.engines[0].hold("pause_generation") as held:

            def interrupt() -> None:
                held.wait_entered()
                for _ in range(10):  # CPython may sleep over one that arrives just before it waits
                    os.kill(os.getpid(), number)
                    with contextlib.suppress(TimeoutError):
                        held.wait_hung_up(1)
                        break
                held.release()

            thread = threading.Thread(target=interrupt)
            thread.start()
            with pytest.raises(Alarm), paused(fleet.rl, ALL):
                pytest.fail("the block ran")
            thread.join()
            assert states(fleet) == ["running"] * 2

    def test_in_the_block_is_not_held(self) -> None:
        with Fleet(sglang=1) as fleet:
            with pytest.raises(Alarm), paused(fleet.rl, ALL):
                signal.raise_signal(signal.SIGALRM)
                pytest.fail("it was held")
            assert states(fleet) == ["running"]

    def test_a_second_one_gets_through_and_names_them(self) -> None:
        with Fleet(sglang=2) as fleet, fleet.engines[0].hold("continue_generation") as held:

            def interrupt() -> None:
                held.wait_entered()
                os.kill(os.getpid(), signal.SIGALRM)
                while not Alarm.arrived:
                    threading.Event().wait(0.01)
                # Python forgets a signal that comes between its look at signals and the next blocking call.
                threading.Event().wait(0.3)
                os.kill(os.getpid(), signal.SIGUSR1)

            thread = threading.Thread(target=interrupt)
            with pytest.raises(Alarm) as caught, paused(fleet.rl, ALL):
                thread.start()
            thread.join()
            named = getattr(caught.value, "still_paused", [])
            assert named and "smg rl resume" in getattr(caught.value, "remedy", "")
            held.release()
            fleet.rl.fanout("continue_generation", {}, selector=ALL)

    def test_a_handler_of_the_block_s_own_making_is_held_too(self) -> None:
        def own(number: int, frame: object) -> None:
            raise Alarm("own")

        with Fleet(sglang=1) as fleet, fleet.engines[0].hold("continue_generation") as held:

            def interrupt() -> None:
                held.wait_entered()
                os.kill(os.getpid(), signal.SIGUSR2)
                held.release()

            before = signal.getsignal(signal.SIGUSR2)
            thread = threading.Thread(target=interrupt)
            with pytest.raises(Alarm, match="own"), paused(fleet.rl, ALL):
                signal.signal(signal.SIGUSR2, own)
                thread.start()
            thread.join()
            assert states(fleet) == ["running"] and signal.getsignal(signal.SIGUSR2) is own
            signal.signal(signal.SIGUSR2, before)


class TestAsyncio:
    def test_a_cancellation_that_meets_a_pause_that_has_just_succeeded(self) -> None:
        with Fleet(sglang=2) as fleet:

            async def main() -> None:
                with fleet.engines[0].hold("pause_generation") as held:
                    task = asyncio.create_task(step())
                    await asyncio.to_thread(held.wait_entered)
                    held.release()
                    # In the same turn of the loop: the thread succeeds, nobody has heard of it.
                    fleet.engines[0].wait_until(lambda: fleet.engines[0].state == "paused")
                    task.cancel()
                    with pytest.raises(asyncio.CancelledError):
                        await task

            async def step() -> None:
                async with aio.paused(aio.AsyncRL(fleet.url, timeout=30), ALL):
                    await asyncio.sleep(60)

            asyncio.run(main())
            assert states(fleet) == ["running"] * 2

    def test_a_loop_that_goes_away_in_the_block(self) -> None:
        with Fleet(sglang=2) as fleet:

            async def step() -> None:
                async with aio.paused(aio.AsyncRL(fleet.url, timeout=30), ALL):
                    await asyncio.sleep(60)

            loop = asyncio.new_event_loop()
            task = loop.create_task(step())
            task._log_destroy_pending = False  # type: ignore[attr-defined]  # it is destroyed on purpose
            while states(fleet) != ["paused"] * 2:
                loop.run_until_complete(asyncio.sleep(0.01))
            loop.run_until_complete(asyncio.sleep(0.05))
            loop.close()
            del task
            gc.collect()
            for engine in fleet.engines:
                engine.wait_until(lambda engine=engine: engine.state == "running")  # type: ignore[misc]  # the engine of this turn

    def test_a_third_ctrl_c_under_asyncio_run(self) -> None:
        code = (
            "import asyncio, signal, sys\nfrom smg.rl.aio import AsyncRL, paused\n"
            # Who runs in the background inherits that it is ignored.
            "signal.signal(signal.SIGINT, signal.default_int_handler)\n"
            "async def main():\n"
            f"    async with paused(AsyncRL(sys.argv[1], timeout=20), '{ALL}'):\n"
            "        print('in', flush=True)\n        await asyncio.sleep(60)\n"
            "asyncio.run(main())\n"
        )
        with Fleet(sglang=2) as fleet, fleet.engines[0].hold("continue_generation") as held:
            words = [sys.executable, "-c", code, fleet.url]
            with subprocess.Popen(words, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True) as trainer:
                assert trainer.stdout and trainer.stdout.readline() == "in\n"
                trainer.send_signal(signal.SIGINT)
                held.wait_entered()
                for _ in range(2):
                    trainer.send_signal(signal.SIGINT)
                    threading.Event().wait(0.3)
                held.release()
                trainer.wait(30)
            for engine in fleet.engines:
                engine.wait_until(lambda engine=engine: engine.state == "running")  # type: ignore[misc]  # the engine of this turn

    def test_anyio_cancels_without_a_busy_loop(self) -> None:
        import time

        with Fleet(sglang=1) as fleet, fleet.engines[0].hold("continue_generation") as held:

            async def main() -> None:
                threading.Timer(1.5, held.release).start()
                with anyio.move_on_after(0.1):
                    async with aio.paused(aio.AsyncRL(fleet.url, timeout=30), ALL):
                        await anyio.sleep(60)

            before = time.process_time()
            anyio.run(main)
            assert time.process_time() - before < 1.0
            assert states(fleet) == ["running"]

    def test_trio_is_refused_at_construction(self) -> None:
        async def main() -> None:
            with pytest.raises(RuntimeError, match="not on trio"):
                aio.AsyncRL("http://gateway:1")

        trio.run(main)

    def test_what_cannot_be_decorated_is_a_type_error(self) -> None:
        async def coroutine() -> None: ...

        def generator() -> Iterator[int]:
            yield 1

        for function in (coroutine, generator):
            with pytest.raises(TypeError, match="cannot decorate"):
                paused(RL("http://gateway:1"), ALL)(function)
        with pytest.raises(TypeError, match="no decorator"):
            aio.paused(aio.AsyncRL("http://gateway:1"), ALL)(coroutine)


def test_a_pause_that_is_lost_in_the_middle_is_resumed_by_its_finalizer() -> None:
    with Fleet(sglang=2) as fleet:
        lost = paused(fleet.rl, ALL)
        lost.__enter__()
        assert states(fleet) == ["paused"] * 2
        del lost
        gc.collect()
        assert states(fleet) == ["running"] * 2


def test_a_forked_child_that_leaves_the_block_resumes_nobody_while_its_parent_is_in_it() -> None:
    with Fleet(sglang=1) as fleet:
        child = -1
        try:
            with paused(fleet.rl, ALL):
                child = os.fork()
                if child == 0:
                    raise SystemExit(0)
                os.waitpid(child, 0)
                assert states(fleet) == ["paused"]
        finally:
            if child == 0:
                os._exit(0)
        assert states(fleet) == ["running"]


def test_a_child_that_carries_on_alone_resumes_in_its_stead() -> None:
    """What a daemon does that is started in the block: its parent has ended before it leaves it."""
    code = (
        "import os, sys, time\nfrom smg.rl import RL, paused\n"
        f"with paused(RL(sys.argv[1]), '{ALL}'):\n"
        "    trainer = os.getpid()\n"
        "    if os.fork():\n        os._exit(0)\n"
        "    while os.getppid() == trainer:\n        time.sleep(0.01)\n"
    )
    with Fleet(sglang=1) as fleet:
        subprocess.run([sys.executable, "-c", code, fleet.url], check=True, timeout=30)
        fleet.engines[0].wait_until(lambda: fleet.engines[0].state == "running")
        assert len(fleet.engines[0].calls("continue_generation")) == 1


def test_an_engine_without_a_gateway_is_freed_by_its_url(capsys: pytest.CaptureFixture[str]) -> None:
    from smg.rl import cli

    with MockEngine("vllm") as engine:
        RLless = [sys.executable, "-m", "smg", "rl", "resume", "--engine", "vllm", "--engine-url", engine.url]
        engine._state.pause("abort")
        assert subprocess.run(RLless, capture_output=True, timeout=60, check=False).returncode == 0
        assert engine.state == "running"
        engine._state.pause("abort")
        engine.fail("resume", faults.Lie())
        assert cli.main(["resume", "--engine", "vllm", "--engine-url", engine.url]) == 1
        assert "status: paused" in capsys.readouterr().out
        engine.clear_faults()


def test_a_paused_sglang_is_registered_by_a_gateway_that_starts_anew() -> None:
    with Fleet(sglang=1, engine={"health_generation": True, "health_timeout": 0.1}) as fleet:
        fleet.rl.fanout("pause_generation", {}, selector=ALL)
        fleet.restart_gateway()
        assert len(fleet.rl.workers()) == 1
        fleet.rl.fanout("continue_generation", {}, selector=ALL)


def test_two_thousand_engines_are_asked_in_lines_under_4_kib() -> None:
    from smg.rl.chunks import pieces

    ids = [f"01a2{number:04x}-0000-7000-8000-000000000000" for number in range(2000)]
    parts = pieces(f"engine=sglang,id in ({','.join(ids)})", 3800)
    assert all(len(part) < 3800 for part in parts)
    assert [key for part in parts for key in part.partition("(")[2].rstrip(")").split(",")] == ids


def test_threads_are_interrupted_from_outside_without_leaving_anybody() -> None:
    """`PyThreadState_SetAsyncExc` raises at any bytecode of a thread."""
    import ctypes

    with Fleet(sglang=2) as fleet, ThreadPoolExecutor() as pool, fleet.engines[0].hold("pause_generation") as held:

        def step() -> int:
            with paused(fleet.rl, ALL):
                threading.Event().wait(0.01)
            return 0

        running = pool.submit(step)
        held.wait_entered()
        (thread,) = pool._threads
        assert thread.ident
        ctypes.pythonapi.PyThreadState_SetAsyncExc(ctypes.c_ulong(thread.ident), ctypes.py_object(Alarm))
        held.release()
        assert isinstance(running.exception(30), Alarm)
        for engine in fleet.engines:
            engine.wait_until(lambda engine=engine: engine.state == "running")  # type: ignore[misc]  # the engine of this turn
