"""Laws of an engine's state: whatever is done to it, no request is lost."""

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import Bundle, RuleBasedStateMachine, consumes, initialize, invariant, precondition, rule

from reference_server.engines.base import PAUSE_MODES, EngineState, Flush, Refit
from reference_server.engines.generations import Generation, Phase, Progress, Wanted
from reference_server.engines.weights import encode

NATURAL_LENGTH = 4

prompts = st.lists(st.sampled_from(["w1", "w2", "w3"]), max_size=4).map(" ".join)
limits = st.none() | st.integers(0, 6)
versions = st.sampled_from(["1", "2", "3"])
paths = st.sampled_from(["step-1", "step-2", "step-3"])


class EngineLaws(RuleBasedStateMachine):
    """One engine, one thread: only calls that need not wait."""

    generations = Bundle("generations")

    @initialize()
    def start(self) -> None:
        self.state = EngineState("step-1", "1", checkpoints=["step-1", "step-2"], generation_ticks=NATURAL_LENGTH)
        self.all: list[Generation] = []
        self.over: dict[str, Progress] = {}
        self.flushes = 0

    @rule(target=generations, prompt=prompts, limit=limits, ignore_end=st.booleans())
    def arrive(self, prompt: str, limit: int | None, ignore_end: bool) -> Generation:
        wanted = Wanted(str(len(self.all)), encode(prompt), limit, ignore_end)
        (new,) = self.state.arrive([wanted])
        self.all.append(new)
        assert (new.phase is Phase.PARKED) is self.state.paused
        return new

    @rule(mode=st.sampled_from(sorted(PAUSE_MODES)))
    def pause(self, mode: str) -> None:
        self.state.pause(mode)
        assert self.state.pause_mode == mode
        if mode == "abort":
            assert self.state.in_flight == 0
        if mode == "retract":
            assert self.state.count(Phase.RUNNING) == 0

    @rule()
    def resume(self) -> None:
        self.state.resume()
        assert not self.state.paused

    @rule()
    def tick(self) -> None:
        before = {one: len(one.tokens) for one in self.all}
        running = set(self.within(Phase.RUNNING)) if not self.state.paused else set()
        self.state.step()
        for one, count in before.items():
            assert len(one.tokens) == count + (one in running)

    @rule()
    def flush(self) -> None:
        flushed = self.state.flush()
        assert flushed is (Flush.BUSY if self.within(Phase.RUNNING) else Flush.DONE)
        self.flushes += flushed is Flush.DONE

    @precondition(lambda self: self.state.paused or not self.state.in_flight)
    @rule(path=paths, version=st.none() | versions, flush=st.booleans())
    def refit(self, path: str, version: str | None, flush: bool) -> None:
        self.check_refit(path, version, flush, abort=False)

    @rule(path=paths, version=st.none() | versions, flush=st.booleans())
    def refit_that_aborts(self, path: str, version: str | None, flush: bool) -> None:
        self.check_refit(path, version, flush, abort=True)

    def check_refit(self, path: str, version: str | None, flush: bool, *, abort: bool) -> None:
        old, reported = self.state.weights, self.state.reported
        refit = self.state.refit(path, version, flush=flush, abort=abort)
        if path == "step-3":
            assert refit is Refit.NO_CHECKPOINT
            assert (self.state.weights, self.state.reported) == (old, reported)
            return
        busy = flush and bool(self.within(Phase.RUNNING)) and self.state.paused
        assert refit is (Refit.NOT_FLUSHED if busy else Refit.DONE)
        assert (self.state.weights.path, self.state.weights.version) == (path, version or old.version)
        assert self.state.reported == (reported if busy else self.state.weights)
        self.flushes += flush and not busy

    @rule(version=versions, abort=st.booleans())
    def rename(self, version: str, abort: bool) -> None:
        self.state.rename(version, abort=abort)
        assert self.state.weights.version == self.state.reported.version == version

    @rule(one=generations)
    def abort(self, one: Generation) -> None:
        phase = one.phase
        self.state.abort(one.wanted.id)
        frozen = phase is Phase.RUNNING and self.state.paused
        assert one.phase is (phase if phase is Phase.PARKED or frozen else Phase.ENDED)

    @rule(one=consumes(generations))
    def caller_leaves(self, one: Generation) -> None:
        self.state.drop([one])
        assert one.ending is not None

    @invariant()
    def nobody_is_lost(self) -> None:
        in_flight = len(self.within(Phase.RUNNING, Phase.QUEUED))
        assert self.state.in_flight == in_flight
        assert self.state.count(Phase.PARKED) == len(self.within(Phase.PARKED))
        assert len(self.all) == in_flight + len(self.within(Phase.PARKED, Phase.ENDED))

    @invariant()
    def nobody_waits_without_a_pause(self) -> None:
        assert self.state.paused or not self.within(Phase.PARKED, Phase.QUEUED)

    @invariant()
    def who_has_ended_stays_so(self) -> None:
        for one in self.all:
            assert (one.phase is Phase.ENDED) is (one.ending is not None)
            if one.ending is not None:
                assert self.over.setdefault(one.wanted.id, one.progress(one.arrived)) == one.progress(one.arrived)

    @invariant()
    def spans_cover_the_tokens_without_gaps(self) -> None:
        for one in self.all:
            progress = one.progress(0.0)
            spans = progress.spans
            assert spans[0].start == 0 and spans[-1].end == len(progress.tokens)
            assert all(left.end == right.start for left, right in zip(spans, spans[1:], strict=False))
            assert all(left.version != right.version for left, right in zip(spans, spans[1:], strict=False))
            assert all(span.start < span.end for span in spans) or not progress.tokens
            for span in spans:
                assert set(progress.versions[span.start : span.end]) <= {span.version}

    @invariant()
    def flushes_are_counted(self) -> None:
        assert self.state.flushes == self.flushes

    def teardown(self) -> None:
        self.state.resume()
        for _ in range(7):
            self.state.step()
        assert self.state.in_flight == 0 and self.state.count(Phase.PARKED) == 0
        for one in self.all:
            assert one.ending is not None
            if one.ending.kind in ("stop", "length"):
                assert len(one.tokens) == self.planned(one.wanted)

    def planned(self, wanted: Wanted) -> int:
        if wanted.limit is None:
            return NATURAL_LENGTH
        return wanted.limit if wanted.ignore_end else min(wanted.limit, NATURAL_LENGTH)

    def within(self, *phases: Phase) -> list[Generation]:
        return [one for one in self.all if one.phase in phases]


TestEngineLaws = EngineLaws.TestCase
TestEngineLaws.settings = settings(stateful_step_count=40)
