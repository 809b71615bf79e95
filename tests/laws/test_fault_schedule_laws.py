"""What is true of every schedule."""

import threading
from collections import Counter

from hypothesis import given
from hypothesis import strategies as st

from reference_server.engines.faults.schedule import Rule, Schedule

paths = st.sampled_from(["a", "/a", "b", "c/d", "*"])
asked = st.sampled_from(["/a", "/b", "/c/d", "/e"])
methods = st.sampled_from(["GET", "POST"])
requests = st.lists(st.tuples(methods, asked), max_size=30)
chances = st.one_of(st.just(1.0), st.floats(0.01, 1.0))


@st.composite
def plans(draw: st.DrawFn, certain: bool = False) -> list[Rule[int]]:
    """Rules whose plan is their place."""
    count = draw(st.integers(0, 5))
    return [
        Rule(
            place,
            draw(paths),
            draw(st.none() | st.integers(1, 4)),
            draw(st.none() | methods),
            1.0 if certain else draw(chances),
            draw(st.integers(0, 1 << 32)),
        )
        for place in range(count)
    ]


def met(rules: list[Rule[int]], asked: list[tuple[str, str]]) -> list[int | None]:
    schedule = Schedule[int]()
    for rule in rules:
        schedule.add(rule)
    return [schedule.take(method, path) for method, path in asked]


@given(plans(), requests)
def test_the_same_seeds_and_requests_meet_the_same(rules: list[Rule[int]], asked: list[tuple[str, str]]) -> None:
    assert met(rules, asked) == met(rules, asked)


@given(plans(), requests)
def test_who_meets_a_plan_is_concerned_by_it_and_no_more_often_than_planned(
    rules: list[Rule[int]], asked: list[tuple[str, str]]
) -> None:
    found = met(rules, asked)
    for (method, path), place in zip(asked, found, strict=True):
        assert place is None or rules[place].concerns(method, path)
    for place, count in Counter(place for place in found if place is not None).items():
        assert count <= (rules[place].times or count)


@given(plans(certain=True), requests)
def test_without_chance_it_is_the_first_that_fits_and_is_left(
    rules: list[Rule[int]], asked: list[tuple[str, str]]
) -> None:
    left = [rule.times for rule in rules]
    expected: list[int | None] = []
    for method, path in asked:
        fit = [n for n, rule in enumerate(rules) if rule.concerns(method, path) and left[n] != 0]
        expected.append(fit[0] if fit else None)
        if fit and (rest := left[fit[0]]) is not None:
            left[fit[0]] = rest - 1
    assert met(rules, asked) == expected


@given(plans(), requests, asked)
def test_a_request_that_does_not_concern_a_rule_draws_nothing_from_it(
    rules: list[Rule[int]], asked: list[tuple[str, str]], other: str
) -> None:
    """What happens on one route does not depend on the traffic of another."""
    rules = [rule for rule in rules if not rule.concerns("GET", other) and not rule.concerns("POST", other)]
    mixed = [one for request in asked for one in (("GET", other), request, ("POST", other))]
    assert met(rules, mixed)[1::3] == met(rules, asked)


@given(plans(), requests)
def test_what_is_left_is_what_was_planned_less_what_was_met(
    rules: list[Rule[int]], asked: list[tuple[str, str]]
) -> None:
    schedule = Schedule[int]()
    for rule in rules:
        schedule.add(rule)
    found = Counter(schedule.take(method, path) for method, path in asked)
    left = {rule.plan: rule.times for rule in schedule.rules}
    for rule in rules:
        rest = None if rule.times is None else rule.times - found[rule.plan]
        assert left.get(rule.plan, 0) == rest


@given(st.integers(1, 20), st.integers(2, 6))
def test_threads_do_not_meet_a_plan_more_often_than_planned(times: int, threads: int) -> None:
    schedule = Schedule[str]()
    schedule.add(Rule("plan", "*", times))
    found: list[str | None] = []

    def ask() -> None:
        found.extend(schedule.take("GET", "/a") for _ in range(times))

    crowd = [threading.Thread(target=ask) for _ in range(threads)]
    for one in crowd:
        one.start()
    for one in crowd:
        one.join()
    assert found.count("plan") == times


@given(st.floats(0.2, 0.8), st.integers(0, 1 << 32))
def test_chance_is_about_as_often_as_said(probability: float, seed: int) -> None:
    found = met([Rule(0, "*", probability=probability, seed=seed)], [("GET", "/a")] * 400)
    assert abs(found.count(0) / 400 - probability) < 0.2
