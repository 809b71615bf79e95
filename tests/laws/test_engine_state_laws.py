"""Laws of an engine's state: whatever is done to it, no request is lost."""

import itertools
import threading

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import (
    Bundle,
    MultipleResults,
    RuleBasedStateMachine,
    consumes,
    initialize,
    invariant,
    multiple,
    precondition,
    rule,
)

from reference_server.engines.state.generation import Generation, Phase, Progress, Wanted
from reference_server.engines.state.machine import EngineState, Flush, NothingNew, Refit
from reference_server.engines.state.traits import PAUSE_MODES, Traits
from reference_server.engines.state.weights import encode

NATURAL_LENGTH = 4
MOST_TOKENS = 6

prompts = st.lists(st.sampled_from(["w1", "w2", "w3"]), max_size=4).map(" ".join)
limits = st.none() | st.integers(0, MOST_TOKENS)
versions = st.sampled_from(["1", "2", "3"])
paths = st.sampled_from(["step-1", "step-2", "step-3"])
memory = st.sets(st.sampled_from(["weights", "kv_cache"])).map(frozenset)
kinds = st.builds(
    Traits,
    refuses=st.sampled_from([frozenset(), frozenset({"abort", "wait"})]),
    queues=st.booleans(),
    needs_memory=st.booleans(),
    half_loads=st.booleans(),
)


class EngineLaws(RuleBasedStateMachine):
    """One engine, one thread: only calls that need not wait, but for a pause that drains."""

    generations = Bundle("generations")

    @initialize(traits=kinds)
    def start(self, traits: Traits) -> None:
        self.traits = traits
        self.state = EngineState(
            "step-1", "1", checkpoints=["step-1", "step-2"], generation_ticks=NATURAL_LENGTH, traits=traits
        )
        self.all: list[Generation] = []
        self.over: dict[str, Progress] = {}
        self.flushes = 0
        self.half_loaded = False

    @rule(target=generations, prompt=prompts, limit=limits, ignore_end=st.booleans())
    def arrive(self, prompt: str, limit: int | None, ignore_end: bool) -> "Generation | MultipleResults[Generation]":
        wanted = Wanted(str(len(self.all)), encode(prompt), limit, ignore_end)
        if self.state.pause_mode in self.traits.refuses:
            with pytest.raises(NothingNew):
                self.state.arrive([wanted])
            return multiple()
        (new,) = self.state.arrive([wanted])
        self.all.append(new)
        assert (new.phase is Phase.PARKED) is self.state.paused
        return new

    @rule(mode=st.sampled_from(sorted(PAUSE_MODES.keys() - {"wait"})))
    def pause(self, mode: str) -> None:
        self.state.pause(mode)
        assert self.state.pause_mode == mode and self.state.frozen
        if mode == "abort":
            assert self.state.in_flight == 0
            assert not (self.traits.queues and self.within(Phase.PARKED))
        if mode == "retract":
            assert self.state.count(Phase.RUNNING) == 0

    @precondition(lambda self: not self.lethal())
    @rule()
    def pause_and_drain(self) -> None:
        running, frozen = self.within(Phase.RUNNING), self.state.frozen
        waiting = threading.Thread(target=self.state.pause, args=("wait",))
        waiting.start()
        with self.state.changed:
            assert self.state.changed.wait_for(lambda: self.state.pause_mode == "wait", 10)
        for _ in range(MOST_TOKENS):
            self.state.step()
        waiting.join(10)
        assert not waiting.is_alive() and self.state.frozen
        assert all((one.phase is Phase.RUNNING) is frozen for one in running)

    @rule()
    def resume(self) -> None:
        self.state.resume()
        assert not self.state.paused

    @precondition(lambda self: not self.lethal())
    @rule()
    def tick(self) -> None:
        before = {one: len(one.tokens) for one in self.all}
        running = set(self.within(Phase.RUNNING)) if not self.state.frozen else set()
        self.state.step()
        for one, count in before.items():
            assert len(one.tokens) == count + (one in running)

    @rule(retract=st.booleans())
    def flush(self, retract: bool) -> None:
        busy = self.clinging() and not retract
        assert self.state.flush(retract=retract) is (Flush.BUSY if busy else Flush.DONE)
        self.flushes += not busy

    @precondition(lambda self: not self.clinging())
    @rule(tags=memory, discard=st.booleans())
    def sleep(self, tags: frozenset[str], discard: bool) -> None:
        before, version = self.state.asleep, self.state.weights.version
        self.state.sleep(tags, discard=discard)
        assert self.state.asleep == before | tags
        assert self.state.weights.version == version and (not discard or self.state.weights.path == "")
        self.flushes += "kv_cache" in tags

    @rule(tags=memory)
    def wake(self, tags: frozenset[str]) -> None:
        before, paused = self.state.asleep, self.state.paused
        self.state.wake(tags & before)
        assert self.state.asleep == before - tags and self.state.paused is paused

    @rule(tags=st.none() | memory)
    def rouse(self, tags: frozenset[str] | None) -> None:
        left = frozenset() if tags is None else self.state.asleep - tags
        paused = self.state.paused
        assert self.state.rouse(tags) is (not left)
        assert self.state.asleep == left and self.state.paused is (paused and bool(left))

    @precondition(lambda self: self.loadable() and (self.state.frozen or not self.state.in_flight))
    @rule(path=paths, version=st.none() | versions, flush=st.booleans())
    def refit(self, path: str, version: str | None, flush: bool) -> None:
        self.check_refit(path, version, flush)

    @precondition(lambda self: self.loadable())
    @rule(path=paths, version=st.none() | versions, flush=st.booleans())
    def refit_at_once(self, path: str, version: str | None, flush: bool) -> None:
        self.check_refit(path, version, flush, at_once=True)

    @precondition(lambda self: self.loadable())
    @rule(path=paths, version=st.none() | versions, flush=st.booleans())
    def refit_that_aborts(self, path: str, version: str | None, flush: bool) -> None:
        self.check_refit(path, version, flush, abort=True)

    def check_refit(
        self, path: str, version: str | None, flush: bool, *, abort: bool = False, at_once: bool = False
    ) -> None:
        old, reported = self.state.weights, self.state.reported
        refit = self.state.refit(path, version, flush=flush, abort=abort, at_once=at_once)
        self.half_loaded = path == "step-3" and self.traits.half_loads
        if path == "step-3":
            assert refit is Refit.NO_CHECKPOINT
            assert (self.state.weights, self.state.reported) == (old, reported)
            return
        busy = flush and self.clinging()
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
        doomed = phase is Phase.RUNNING and self.state.pause_mode == "in_place"
        out_of_reach = phase is Phase.PARKED and not self.traits.queues
        assert one.phase is (phase if doomed or out_of_reach else Phase.ENDED)

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
        waits_for_memory = self.state.asleep and not self.traits.needs_memory
        waiting = self.within(Phase.PARKED) if waits_for_memory else self.within(Phase.PARKED, Phase.QUEUED)
        assert self.state.paused or not waiting

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
            assert all(left.end == right.start for left, right in itertools.pairwise(spans))
            assert all(left.version != right.version for left, right in itertools.pairwise(spans))
            assert all(span.start < span.end for span in spans) or not progress.tokens
            for span in spans:
                assert set(progress.versions[span.start : span.end]) <= {span.version}

    @invariant()
    def flushes_are_counted(self) -> None:
        assert self.state.flushes == self.flushes

    @invariant()
    def nobody_has_died(self) -> None:
        assert self.state.crashed is None

    def teardown(self) -> None:
        lethal = self.traits.needs_memory and self.state.asleep
        self.state.resume()
        if lethal and self.within(Phase.RUNNING):
            self.state.step()
            assert self.state.crashed is not None
            return
        self.state.rouse()
        self.state.refit("step-1", flush=False, at_once=True)
        for _ in range(MOST_TOKENS + 1):
            self.state.step()
        assert self.state.in_flight == 0 and self.state.count(Phase.PARKED) == 0
        for one in self.all:
            assert one.ending is not None
            if one.ending.kind in ("stop", "length"):
                assert len(one.tokens) == self.planned(one.wanted)

    def clinging(self) -> bool:
        """Whether something holds on to the prefix cache."""
        return self.state.pause_mode != "keep" and bool(self.within(Phase.RUNNING))

    def loadable(self) -> bool:
        return not (self.traits.needs_memory and "weights" in self.state.asleep)

    def lethal(self) -> bool:
        """Whether the next token would be the engine's death."""
        unfit = self.half_loaded or (self.traits.needs_memory and bool(self.state.asleep))
        return unfit and not self.state.frozen and bool(self.within(Phase.RUNNING))

    def planned(self, wanted: Wanted) -> int:
        if wanted.limit is None:
            return NATURAL_LENGTH
        return wanted.limit if wanted.ignore_end else min(wanted.limit, NATURAL_LENGTH)

    def within(self, *phases: Phase) -> list[Generation]:
        return [one for one in self.all if one.phase in phases]


TestEngineLaws = EngineLaws.TestCase
TestEngineLaws.settings = settings(stateful_step_count=40)
