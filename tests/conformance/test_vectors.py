"""Every recorded vector, against our gateway or the one that SMG_CONFORMANCE_LAUNCH starts."""

from collections.abc import Iterator

import pytest

from .compare import contract, differences
from .session import Session
from .steps import take
from .vectors import LAUNCH, Group, Vector, deviations, groups, merged

SHOWN_DIFFERENCES = 8

OURS = {} if LAUNCH else {deviation["vector"]: deviation["ours"] for deviation in deviations()}
CASES = [(group, vector) for group in groups() for vector in group.vectors]


@pytest.fixture(scope="module")
def session(request: pytest.FixtureRequest) -> Iterator[Session]:
    """The running setup of a group; kept for as long as the tests that follow ask for the same one."""
    group: Group = request.param
    running = Session(group.setup)
    yield running
    running.close()


@pytest.mark.parametrize(
    ("session", "vector"), CASES, ids=[vector["id"] for _, vector in CASES], indirect=["session"], scope="module"
)
def test_vector(session: Session, vector: Vector) -> None:
    recorded = vector["expect"]
    expected = merged(recorded, OURS[vector["id"]]) if vector["id"] in OURS else recorded
    found = list(differences(contract(expected), contract(take(session, vector))))
    if found:
        pytest.fail(_report(vector, found), pytrace=False)


def _report(vector: Vector, found: list[str]) -> str:
    requests = [f"{step.get('method', '')} {step['target']}" for step in vector["steps"] if "target" in step]
    hidden = len(found) - SHOWN_DIFFERENCES
    more = [f"… and {hidden} more"] if hidden > 0 else []
    return "\n".join([vector.get("note", vector["id"]), *requests, *found[:SHOWN_DIFFERENCES], *more])
