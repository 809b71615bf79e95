"""Health, from a row of good and bad answers."""

from reference_server.health import HealthPolicy, Streak


def test_health_changes_after_as_many_equal_answers_as_the_policy_wants() -> None:
    policy = HealthPolicy(failure_threshold=3, success_threshold=2)
    streak, health, seen = Streak(), "ready", []
    for good in [False, False, True, False, False, False, True, False, True, True]:
        streak = streak.then(good)
        health = streak.health(health, policy)
        seen.append(health)
    assert seen == ["ready"] * 5 + ["not_ready"] * 4 + ["ready"]
