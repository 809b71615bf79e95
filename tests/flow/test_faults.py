"""Every fault against the real client: what it sees, and whether the engine changed."""

import contextlib
import socket
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Any

import pytest

from reference_server import Fleet, MockEngine, faults
from reference_server.engines.faults.fault import Fault
from smg.rl import RL, FanoutError, RlError, RlTimeoutError, paused

from ..support.aside import Aside
from ..support.asking import ask
from ..support.bare_connection import raw
from ..support.generating import PROMPT, generate
from ..support.sglang_calls import post
from ..support.sglang_calls import refit as refit_directly
from ..support.threads import assert_no_thread_is_left

UPDATE = "update_weights_from_disk"
REFIT = {"model_path": "step-2", "weight_version": "42"}
ALL = "engine in (sglang, vllm, tokenspeed)"

UNREACHABLE = "upstream_unreachable"
TIMEOUT = "upstream_timeout"


@pytest.fixture
def fleet() -> Iterator[Fleet]:
    with Fleet(sglang=2) as fleet:
        yield fleet
        for engine in fleet.engines:
            engine.check()
        assert fleet.gateway.failures == []


@pytest.fixture
def impatient() -> Iterator[Fleet]:
    """A gateway that waits half a second for an engine."""
    with Fleet(sglang=1, gateway={"rl_control_timeout_secs": 0.5}) as fleet:
        yield fleet


def call(fleet: Fleet, engine: MockEngine, path: str = UPDATE, body: object = REFIT, method: str = "POST") -> Any:
    """What a call comes to: status and body of the answer, or the code of the error."""
    try:
        result = fleet.rl.call(fleet.worker_id(engine), path, body, method=method)
    except RlError as error:
        return error.code
    return result.status, result.body


SUCCESS = {
    "success": True,
    "message": "Succeeded to update model weights. Weight version updated to 42.",
    "num_paused_requests": 0,
}

SEEN: list[tuple[Fault, Any, str]] = [
    (faults.Status(500), (500, "a fault"), "default"),
    (faults.Status(503, {"detail": "later"}), (503, {"detail": "later"}), "default"),
    (faults.Status(500, effect=True), (500, "a fault"), "42"),
    (faults.Unsuccessful("no"), (200, {"success": False, "message": "no"}), "default"),
    (faults.Redirect("http://127.0.0.1:1/elsewhere"), (307, ""), "default"),
    (faults.CloseBefore(), UNREACHABLE, "default"),
    (faults.CloseBefore(effect=True), UNREACHABLE, "42"),
    (faults.Reset(), UNREACHABLE, "default"),
    (faults.Reset(effect=True), UNREACHABLE, "42"),
    (faults.Garbage(), UNREACHABLE, "default"),
    (faults.Lie(), (200, SUCCESS), "default"),
    (faults.Delay(before=0.01), (200, SUCCESS), "42"),
    (faults.Delay(in_body=0.01), (200, SUCCESS), "42"),
    (faults.Trickle(0.0), (200, SUCCESS), "42"),
    (faults.Truncate(), UNREACHABLE, "42"),
    (faults.CloseAfterHead(), UNREACHABLE, "42"),
    (faults.CloseAfterHead(reset=True), UNREACHABLE, "42"),
    (faults.WrongLength(1), UNREACHABLE, "42"),
]


@pytest.mark.parametrize(("fault", "seen", "version"), SEEN, ids=[repr(fault) for fault, _, _ in SEEN])
def test_what_the_client_sees_and_whether_the_engine_changed(
    fleet: Fleet, fault: Fault, seen: object, version: str
) -> None:
    engine, other = fleet.engines
    engine.fail(UPDATE, fault, times=1)
    assert call(fleet, engine) == seen
    assert engine.weight_version == version
    assert len(engine.calls(UPDATE)) == 1, "nothing is sent twice"
    # Neither another engine nor the next call meets it.
    assert call(fleet, other) == call(fleet, engine) == (200, SUCCESS)
    assert engine.weight_version == other.weight_version == "42"


def test_a_page_of_a_proxy_is_text(fleet: Fleet) -> None:
    engine = fleet.engines[0]
    engine.fail(UPDATE, faults.Html502())
    status, body = call(fleet, engine)
    assert (status, body[:6], engine.weight_version) == (502, "<html>", "default")


@pytest.mark.parametrize("fault", [faults.WrongLength(-1), faults.NotANumber()], ids=repr)
def test_json_that_is_none_comes_as_text(fleet: Fleet, fault: Fault) -> None:
    engine = fleet.engines[0]
    engine.fail(UPDATE, fault)
    status, body = call(fleet, engine)
    assert status == 200 and isinstance(body, str) and body.startswith('{"success":true')
    assert engine.weight_version == "42"


def test_a_huge_answer_is_cut_by_the_gateway_and_says_so(fleet: Fleet) -> None:
    engine = fleet.engines[0]
    engine.fail(UPDATE, faults.Huge(2 << 20), times=1)
    result = fleet.rl.call(fleet.worker_id(engine), UPDATE, REFIT)
    assert result.truncated and isinstance(result.body, str) and len(result.body) == 1 << 20
    engine.fail(UPDATE, faults.Huge(1000), times=1)
    result = fleet.rl.call(fleet.worker_id(engine), UPDATE, REFIT)
    assert not result.truncated and isinstance(result.body, dict)


@pytest.mark.parametrize(
    ("fault", "sent", "reset"),
    [
        (faults.CloseBefore(), b"", False),
        (faults.Reset(), b"", True),
        (faults.CloseAfterHead(), b"HTTP/1.1 200 ", False),
        (faults.CloseAfterHead(reset=True), b"HTTP/1.1 200 ", True),
        (faults.Garbage("blah"), b"blah", False),
    ],
    ids=repr,
)
def test_how_the_connection_ends(fault: Fault, sent: bytes, reset: bool) -> None:
    with MockEngine("sglang") as engine, raw(engine.url) as caller:
        engine.fail("flush_cache", fault)
        received = b""
        caller.sendall(b"POST /flush_cache HTTP/1.1\r\nhost: x\r\n\r\n")
        with pytest.raises(ConnectionResetError) if reset else contextlib.nullcontext():
            while piece := caller.recv(65536):
                received += piece
        # What was received but not yet read may be lost to a reset.
        assert received.startswith(sent) or reset


class TestTime:
    """Faults that take longer than the gateway waits."""

    @pytest.mark.parametrize(("effect", "version"), [(False, "default"), (True, "42")])
    def test_a_hang_is_a_timeout_and_the_engine_sees_the_gateway_leave(
        self, impatient: Fleet, effect: bool, version: str
    ) -> None:
        (engine,) = impatient.engines
        engine.fail(UPDATE, faults.Hang(effect=effect), times=1)
        assert call(impatient, engine) == TIMEOUT
        engine.wait_until(lambda: engine.calls(UPDATE)[0].hung_up)
        assert engine.weight_version == version
        assert [entry.status for entry in engine.calls(UPDATE)] == [0]
        assert call(impatient, engine) == (200, SUCCESS)

    def test_a_delay_outlives_the_gateways_patience_and_then_has_its_effect(self, impatient: Fleet) -> None:
        (engine,) = impatient.engines
        engine.fail(UPDATE, faults.Delay(before=3600), times=1)
        assert call(impatient, engine) == TIMEOUT
        assert engine.weight_version == "default" and engine.calls(UPDATE)[0].status is None
        engine.clear_faults()
        engine.wait_until(lambda: engine.weight_version == "42")
        assert len(engine.calls(UPDATE)) == 1

    @pytest.mark.parametrize("fault", [faults.Trickle(0.1), faults.Delay(in_body=3600)], ids=repr)
    def test_a_slow_body_meets_the_deadline_of_the_whole_call(self, impatient: Fleet, fault: Fault) -> None:
        (engine,) = impatient.engines
        engine.fail(UPDATE, fault, times=1)
        assert call(impatient, engine) == TIMEOUT
        engine.wait_until(lambda: engine.calls(UPDATE)[0].hung_up)
        assert (engine.weight_version, engine.calls(UPDATE)[0].status) == ("42", 200)

    def test_the_clients_own_timeout_names_the_call(self, fleet: Fleet) -> None:
        engine = fleet.engines[0]
        engine.fail(UPDATE, faults.Hang())
        with pytest.raises(RlTimeoutError, match=UPDATE):
            RL(fleet.url, timeout=1).fanout(UPDATE, REFIT, selector=ALL)
        engine.wait_until(lambda: [entry.hung_up for entry in engine.calls(UPDATE)] == [True])


class TestScript:
    def test_a_fault_stays_until_it_is_cleared(self, fleet: Fleet) -> None:
        engine = fleet.engines[0]
        engine.fail(UPDATE, faults.Status(500))
        assert [call(fleet, engine)[0] for _ in range(3)] == [500] * 3
        engine.clear_faults()
        assert call(fleet, engine) == (200, SUCCESS)

    def test_faults_for_one_route_take_turns(self, fleet: Fleet) -> None:
        engine = fleet.engines[0]
        for status in (500, 503):
            engine.fail(UPDATE, faults.Status(status), times=1)
        assert [call(fleet, engine)[0] for _ in range(3)] == [500, 503, 200]

    def test_only_its_route_and_method_are_meant(self, fleet: Fleet) -> None:
        engine = fleet.engines[0]
        engine.fail("flush_cache", faults.Status(500), method="GET")
        assert call(fleet, engine, "flush_cache", None, "POST")[0] == 200
        assert call(fleet, engine) == (200, SUCCESS)
        assert call(fleet, engine, "flush_cache", None, "GET")[0] == 500

    def test_chance_is_the_same_each_time(self, fleet: Fleet) -> None:
        runs = []
        for engine in fleet.engines:
            engine.fail("*", faults.Status(500), probability=0.5, seed=7)
            runs.append([ask(engine, "GET", "/health").status for _ in range(20)])
        assert runs[0] == runs[1]
        assert set(runs[0]) == {200, 500}

    def test_clearing_lets_go_of_what_hangs(self, fleet: Fleet, aside: Aside) -> None:
        engine = fleet.engines[0]
        engine.fail(UPDATE, faults.Hang())
        asked = aside(call, fleet, engine)
        engine.wait_until(lambda: len(engine.calls(UPDATE)) == 1)
        engine.clear_faults()
        assert asked.result(10) == UNREACHABLE
        assert call(fleet, engine) == (200, SUCCESS)

    def test_a_stop_wakes_everyone_whom_a_fault_lets_wait(self) -> None:
        waiting = {
            "model_info": faults.Hang(),
            "server_info": faults.Delay(before=3600),
            "v1/models": faults.Delay(in_body=3600),
            "v1/loads": faults.Trickle(3600),
        }
        with ThreadPoolExecutor(10) as pool, MockEngine("sglang") as engine:
            for path, fault in waiting.items():
                engine.fail(path, fault)
            asked = [pool.submit(ask, engine, "GET", f"/{path}") for path in waiting]
            with engine.hold("health"):
                asked.append(pool.submit(ask, engine, "GET", "/health"))
                engine.wait_until(lambda: len(engine.log) == len(asked))
                engine.stop()
            for one in asked:
                assert isinstance(one.exception(10), Exception)
        assert_no_thread_is_left()
        engine.check()

    def test_the_gateways_own_questions_meet_faults_too(self) -> None:
        with MockEngine("sglang") as engine, Fleet() as fleet:
            engine.fail("*", faults.Status(500))
            _, tried = fleet.gateway.register(engine.url)
            assert tried.wait(10)
            assert engine.log and all(entry.status == 500 for entry in engine.log)
            assert fleet.gateway.registry.all() == []

    def test_what_cannot_be_is_refused_at_once(self, fleet: Fleet) -> None:
        engine = fleet.engines[0]
        with pytest.raises(ValueError, match="times must be 1 or more"):
            engine.fail(UPDATE, faults.Hang(), times=0)
        with pytest.raises(ValueError, match="path must be a text"), engine.hold(""):
            pass
        assert call(fleet, engine) == (200, SUCCESS)


class TestHold:
    def test_a_held_request_has_had_no_effect_and_goes_on_when_released(self, fleet: Fleet, aside: Aside) -> None:
        engine, other = fleet.engines
        with engine.hold(UPDATE) as held:
            asked = aside(fleet.rl.fanout, UPDATE, REFIT, selector=ALL)
            held.wait_entered()
            other.wait_until(lambda: other.weight_version == "42")
            assert (engine.weight_version, held.entered, held.released) == ("default", 1, False)
            assert not asked.done()
            held.release()
            assert asked.result(10).succeeded == 2
        assert engine.weight_version == "42"

    def test_leaving_the_block_releases(self, fleet: Fleet, aside: Aside) -> None:
        engine = fleet.engines[0]
        with engine.hold(UPDATE) as held:
            asked = aside(call, fleet, engine)
            held.wait_entered()
        assert asked.result(10) == (200, SUCCESS)
        assert held.released

    def test_only_as_many_as_said_are_held(self, fleet: Fleet, aside: Aside) -> None:
        engine = fleet.engines[0]
        with engine.hold(UPDATE, times=2, method="POST") as held:
            asked = [aside(call, fleet, engine) for _ in range(2)]
            held.wait_entered(count=2)
            assert call(fleet, engine) == (200, SUCCESS)
        assert [one.result(10) for one in asked] == [(200, SUCCESS)] * 2

    def test_who_comes_after_the_release_is_not_held(self, fleet: Fleet) -> None:
        engine = fleet.engines[0]
        with engine.hold(UPDATE, times=None) as held:
            held.release()
            assert call(fleet, engine) == (200, SUCCESS)
        with engine.hold(UPDATE):
            pass
        assert call(fleet, engine) == (200, SUCCESS)

    def test_a_held_request_meets_its_fault_when_released(self, fleet: Fleet, aside: Aside) -> None:
        engine = fleet.engines[0]
        with engine.hold(UPDATE) as held:
            asked = aside(call, fleet, engine)
            held.wait_entered()
            engine.fail(UPDATE, faults.Status(500))
        assert asked.result(10) == (500, "a fault")

    def test_it_goes_on_even_if_its_caller_has_gone(self, impatient: Fleet) -> None:
        (engine,) = impatient.engines
        with engine.hold(UPDATE) as held:
            assert call(impatient, engine) == TIMEOUT
            held.wait_hung_up()
            assert engine.weight_version == "default"
        engine.wait_until(lambda: engine.calls(UPDATE)[0].hung_up)
        assert engine.weight_version == "42" and len(engine.calls(UPDATE)) == 1

    def test_waiting_in_vain(self, fleet: Fleet) -> None:
        with fleet.engines[0].hold(UPDATE) as held:
            with pytest.raises(TimeoutError, match=f"nobody called {UPDATE} within 0.01 s"):
                held.wait_entered(0.01)
            with pytest.raises(TimeoutError, match="nobody hung up"):
                held.wait_hung_up(0.01)


class TestCrash:
    def test_a_crash_drops_every_connection_and_refuses_new_ones(self, aside: Aside) -> None:
        with Fleet(sglang=2, engine={"tick_seconds": 3600}) as fleet:
            engine, other = fleet.engines
            running = aside(post, engine, "/generate", PROMPT)
            engine.wait_until(lambda: engine.in_flight == 1)
            engine.crash()
            assert isinstance(running.exception(10), ConnectionError)
            assert (engine.state, other.state) == ("dead", "running")
            assert call(fleet, engine) == UNREACHABLE
            assert call(fleet, other) == (200, SUCCESS)
            with pytest.raises(ConnectionRefusedError):
                socket.create_connection(("127.0.0.1", int(engine.url.rpartition(":")[2])))

    def test_it_restarts_as_new_on_its_port_with_its_log_and_its_faults(self, fleet: Fleet) -> None:
        engine = fleet.engines[0]
        url = engine.url
        post(engine, "/pause_generation")
        refit_directly(engine, "step-2", "42")
        engine.fail("flush_cache", faults.Status(500))
        engine.crash()
        engine.crash()
        assert (engine.state, engine.weight_version) == ("dead", "42")
        engine.restart()
        assert (engine.url, engine.state, engine.weight_version) == (url, "running", "default")
        assert len(engine.calls(UPDATE)) == len(engine.calls("pause_generation")) == 1
        assert post(engine, "/flush_cache").status == 500
        assert call(fleet, engine) == (200, SUCCESS)

    def test_a_restart_of_a_running_engine_is_a_crash_before(self, fleet: Fleet, aside: Aside) -> None:
        engine = fleet.engines[0]
        with engine.hold(UPDATE) as held:
            asked = aside(call, fleet, engine)
            held.wait_entered()
            engine.restart()
            assert asked.result(10) == UNREACHABLE
        assert (engine.state, engine.weight_version) == ("running", "default")

    def test_an_engine_that_was_not_started_may_be_restarted(self) -> None:
        engine = MockEngine("sglang")
        engine.crash()
        engine.restart()
        assert generate(engine)["output_ids"]
        engine.stop()

    @pytest.mark.parametrize("restart", [False, True])
    def test_a_crash_in_the_middle_of_a_refit(self, fleet: Fleet, restart: bool) -> None:
        engine, other = fleet.engines
        engine.fail(UPDATE, faults.Crash(restart=restart), times=1)
        with pytest.raises(FanoutError) as caught:
            fleet.rl.fanout(UPDATE, REFIT, selector=ALL)
        result = caught.value.result
        assert list(result.results) == [fleet.worker_id(other)]
        assert [(one.worker_id, one.error) for one in result.failed] == [(fleet.worker_id(engine), UNREACHABLE)]
        engine.wait_until(lambda: engine.state == ("running" if restart else "dead"))
        assert (engine.weight_version, other.weight_version) == ("default", "42")
        assert len(engine.calls(UPDATE)) == 1
        if not restart:
            engine.restart()
        assert call(fleet, engine) == (200, SUCCESS)

    @pytest.mark.parametrize("restart", [False, True])
    def test_a_stop_during_a_crash_leaves_nothing(self, restart: bool) -> None:
        with ThreadPoolExecutor(8) as pool:
            engine = MockEngine("sglang").start()
            engine.fail("*", faults.Crash(restart=restart))
            asked = [pool.submit(ask, engine, "GET", "/health") for _ in range(8)]
            engine.wait_until(lambda: len(engine.log) > 0)
            engine.stop()
            assert "engine-crash" not in [one.name for one in threading.enumerate()]
            for one in asked:
                assert isinstance(one.exception(10), OSError)
        assert_no_thread_is_left()
        engine.check()

    def test_a_port_that_was_taken_meanwhile_is_told_by_check(self, monkeypatch: pytest.MonkeyPatch) -> None:
        with MockEngine("sglang") as engine:
            engine.fail("flush_cache", faults.Crash(restart=True))

            def taken() -> MockEngine:
                raise OSError("in use")

            monkeypatch.setattr(engine, "start", taken)
            with pytest.raises(ConnectionError):
                post(engine, "/flush_cache")
        with pytest.raises(OSError, match="in use"):
            engine.check()


class TestLie:
    """A lie is word for word what the engine says that does as it is told."""

    SGLANG: list[tuple[str, str, object]] = [
        ("POST", "pause_generation", {"mode": "retract"}),
        ("POST", UPDATE, REFIT),
        ("POST", "update_weight_version", {"new_version": "7"}),
        ("POST", "release_memory_occupation", {}),
        ("POST", "resume_memory_occupation", {}),
        ("POST", "flush_cache", {}),
        ("POST", "abort_request", {"abort_all": True}),
        ("POST", "continue_generation", {}),
        ("POST", "generate", {**PROMPT, "rid": "r"}),
    ]
    VLLM: list[tuple[str, str, object]] = [
        ("POST", "pause", {}),
        ("POST", "init_weight_transfer_engine", {"init_info": {}}),
        ("POST", "start_weight_update", {}),
        ("POST", "update_weights", {"update_info": {"names": []}}),
        ("POST", "finish_weight_update", {"weight_version": "7"}),
        ("POST", "update_weight_version", {"new_version": "8"}),
        ("POST", "collective_rpc", {"method": "reload_weights", "kwargs": {"weights_path": "step-2"}}),
        ("POST", "release_kv_cache_memory", {}),
        ("POST", "sleep?level=1", {}),
        ("POST", "wake_up", {}),
        ("POST", "reset_prefix_cache", {}),
        ("POST", "resume", {}),
    ]
    TOKENSPEED: list[tuple[str, str, object]] = [
        ("POST", "pause_generation", {}),
        ("POST", UPDATE, REFIT),
        (
            "POST",
            "init_weights_update_group",
            {"master_address": "a", "master_port": 1, "rank_offset": 0, "world_size": 2},
        ),
        ("POST", "update_weight_version", {"new_version": "7"}),
        ("POST", "release_memory_occupation", {"tags": ["weights"]}),
        ("POST", "resume_memory_occupation", {"tags": ["weights"]}),
        ("POST", "continue_generation", {}),
    ]

    @pytest.mark.parametrize(("kind", "steps"), [("sglang", SGLANG), ("vllm", VLLM), ("tokenspeed", TOKENSPEED)])
    def test_it_is_word_for_word_the_truth_and_changes_nothing(
        self, kind: str, steps: list[tuple[str, str, object]], aside: Aside
    ) -> None:
        with MockEngine(kind) as engine:
            for method, path, body in steps:
                engine.fail(path.partition("?")[0], faults.Lie(), times=1)
                before = shown(engine)
                lie = ask(engine, method, f"/{path}", body)
                assert shown(engine) == before, path
                truth = aside(ask, engine, method, f"/{path}", body)
                if path.startswith("init_"):
                    engine.join()
                assert timeless(lie) == timeless(truth.result(10)), path
                assert lie.status == 200
            engine.check()

    def test_every_checkpoint_loads_in_a_lie(self) -> None:
        with Fleet(sglang=1, engine={"checkpoints": ["step-1"]}) as fleet:
            (engine,) = fleet.engines
            assert call(fleet, engine)[0] == 400
            engine.fail(UPDATE, faults.Lie())
            assert call(fleet, engine) == (200, SUCCESS)
            assert engine.weight_version == "default"

    def test_who_asks_for_the_version_finds_out(self, fleet: Fleet) -> None:
        liar = fleet.engines[0]
        liar.fail(UPDATE, faults.Lie())
        assert fleet.rl.fanout(UPDATE, REFIT, selector=ALL).succeeded == 2
        told = fleet.rl.fanout("model_info", selector=ALL, method="GET").results
        versions = {id: answer.body["weight_version"] for id, answer in told.items() if isinstance(answer.body, dict)}
        assert versions[fleet.worker_id(liar)] == "default"
        assert sorted(versions.values(), key=str) == ["42", "default"]

    def test_a_lie_about_a_generation_ends_with_its_caller(self, aside: Aside) -> None:
        with MockEngine("sglang") as engine:
            post(engine, "/pause_generation")
            engine.fail("generate", faults.Lie())
            parked = aside(post, engine, "/generate", PROMPT)
            engine.wait_until(lambda: len(engine.calls("generate")) == 1)
            engine.stop()
            assert isinstance(parked.exception(10), ConnectionError)


def shown(engine: MockEngine) -> object:
    return engine.state, engine.weight_version, engine.model_path, engine.asleep, engine.flushes, engine.in_flight


def timeless(answer: Any) -> object:
    """Status and body, without what differs from one answer to the next."""
    body = answer.json if answer.type == "application/json" else answer.body
    if isinstance(body, dict) and "meta_info" in body:
        body["meta_info"] = {k: v for k, v in body["meta_info"].items() if not k.endswith(("latency", "_ts", "time"))}
    return answer.status, answer.type, body


class TestStories:
    """What was reported of real fleets."""

    @pytest.mark.parametrize(
        "fault",
        [faults.Status(500), faults.CloseBefore(), faults.CloseBefore(effect=True), faults.Truncate()],
        ids=repr,
    )
    def test_a_pause_that_fails_on_one_engine_leaves_none_paused(self, fleet: Fleet, fault: Fault) -> None:
        bad, good = fleet.engines
        bad.fail("pause_generation", fault, times=1)
        with pytest.raises(FanoutError, match=fleet.worker_id(bad)), paused(fleet.rl, ALL):
            raise AssertionError("the block must not run")
        assert [engine.state for engine in fleet.engines] == ["running"] * 2
        assert len(good.calls("continue_generation")) == 1

    def test_a_pause_that_hangs_ends_with_the_gateways_patience(self) -> None:
        with Fleet(sglang=2, gateway={"rl_control_timeout_secs": 0.5}) as fleet:
            bad = fleet.engines[0]
            bad.fail("pause_generation", faults.Hang(effect=True), times=1)
            with pytest.raises(FanoutError) as caught, paused(fleet.rl, ALL):
                raise AssertionError("the block must not run")
            assert [one.error for one in caught.value.result.failed] == [TIMEOUT]
            assert [engine.state for engine in fleet.engines] == ["running"] * 2
            fleet.check()

    def test_an_engine_that_was_restarted_in_the_block_has_the_old_weights(self, fleet: Fleet) -> None:
        lost, kept = fleet.engines
        with paused(fleet.rl, ALL):
            fleet.rl.fanout(UPDATE, REFIT, selector=ALL)
            lost.restart()
        assert [(e.state, e.weight_version) for e in (lost, kept)] == [("running", "default"), ("running", "42")]

    def test_an_engine_that_dies_of_a_refit_while_asleep(self) -> None:
        with Fleet(vllm=1) as fleet:
            (engine,) = fleet.engines
            call(fleet, engine, "sleep", {})
            body = {"method": "reload_weights", "kwargs": {"weights_path": "step-2"}}
            assert call(fleet, engine, "collective_rpc", body) == UNREACHABLE
            assert engine.state == "dead"


def in_threads(count: int, work: Callable[[], object]) -> list["Future[object]"]:
    with ThreadPoolExecutor(count) as pool:
        return [pool.submit(work) for _ in range(count)]


def test_many_callers_meet_a_counted_fault_as_often_as_said(fleet: Fleet) -> None:
    engine = fleet.engines[0]
    engine.fail("health", faults.Status(500), times=5)
    asked = in_threads(20, lambda: ask(engine, "GET", "/health").status)
    assert sorted(one.result() for one in asked) == [200] * 15 + [500] * 5  # type: ignore[type-var]  # all are numbers
