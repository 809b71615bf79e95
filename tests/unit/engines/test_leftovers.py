"""Which requests are the same refit again, and which faults nobody met."""

import pytest

from reference_server.engines.faults.schedule import Rule, Schedule
from reference_server.engines.leftovers import repeated_refits
from reference_server.httpd.request_log import Entry
from smg.rl.engines import ENGINES

DISK, RESUME = "/update_weights_from_disk", "/continue_generation"


def log(*requests: tuple[str, bytes]) -> list[Entry]:
    return [
        Entry(number, "POST", path, "", (), authorized=False, body=body) for number, (path, body) in enumerate(requests)
    ]


def again(kind: str, *requests: tuple[str, bytes]) -> list[tuple[int, int]]:
    return [(one.number, other.number) for one, other in repeated_refits(log(*requests), ENGINES[kind])]


class TestRepeatedRefits:
    def test_the_same_request_twice(self) -> None:
        assert again("sglang", (DISK, b"1"), ("/flush_cache", b"1"), (DISK, b"1")) == [(0, 2)]

    def test_three_times(self) -> None:
        assert again("sglang", (DISK, b"1"), (DISK, b"1"), (DISK, b"1")) == [(0, 1), (1, 2)]

    @pytest.mark.parametrize("between", [RESUME, "/resume_memory_occupation"])
    def test_a_resume_or_a_wake_up_between(self, between: str) -> None:
        assert again("sglang", (DISK, b"1"), (between, b"{}"), (DISK, b"1")) == []

    def test_a_wake_up_resumes_a_vllm(self) -> None:
        reload = ("/collective_rpc", b'{"method":"reload_weights"}')
        assert again("vllm", reload, ("/wake_up", b""), reload) == []
        assert again("vllm", reload, ("/resume", b""), reload, reload) == [(2, 3)]

    @pytest.mark.parametrize(
        ("path", "body"), [(DISK, b"2"), ("/update_weights_from_tensor", b"1"), ("/flush_cache", b"1")]
    )
    def test_another_body_another_path_another_purpose(self, path: str, body: bytes) -> None:
        assert again("sglang", (DISK, b"1"), (path, body), (path, body + b"0")) == []

    def test_what_says_nothing_of_its_refit_is_none_of_them(self) -> None:
        finish = ("/finish_weight_update", b"")
        assert again("vllm", finish, finish) == []

    def test_another_query(self) -> None:
        entries = log((DISK, b"1"))
        other = Entry(1, "POST", DISK, "a=b", (), authorized=False, body=b"1")
        assert repeated_refits([*entries, other], ENGINES["sglang"]) == []


class TestUnused:
    def test_a_rule_is_unused_until_a_request_meets_it(self) -> None:
        schedule = Schedule[str]()
        once, always = Rule("once", "a", times=2), Rule("always", "b")
        schedule.add(once)
        schedule.add(always)
        assert list(schedule.unused) == [once, always]
        schedule.take("GET", "/a")
        assert list(schedule.unused) == [always]
        schedule.take("GET", "/b")
        assert not schedule.unused

    def test_what_chance_decides_may_be_unused(self) -> None:
        schedule = Schedule[str]()
        schedule.add(Rule("perhaps", "a", probability=0.5))
        assert not schedule.unused

    def test_cleared_it_is_forgiven(self) -> None:
        schedule = Schedule[str]()
        schedule.add(Rule("once", "a", times=2))
        schedule.clear()
        assert not schedule.unused
