"""Circuit breakers: when they open, and when they let one try."""

from reference_server.breaker import BreakerPolicy, Breakers


def test_a_breaker_opens_after_failures_in_a_row_and_lets_one_try_later() -> None:
    now = [0.0]
    breakers = Breakers(BreakerPolicy(failures=2, seconds=10), lambda: now[0])
    for good in (False, True, False, False):
        assert breakers.allows("w")
        breakers.note("w", good)
    assert not breakers.allows("w")
    assert breakers.allows("another")
    now[0] = 10.0
    assert breakers.allows("w")
    breakers.note("w", False)
    assert not breakers.allows("w")
    now[0] = 20.0
    breakers.note("w", True)
    assert breakers.allows("w")


def test_a_disabled_breaker_never_opens() -> None:
    breakers = Breakers(BreakerPolicy(failures=1, enabled=False))
    breakers.note("w", False)
    assert breakers.allows("w")
