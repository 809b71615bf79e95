"""The table of refusals."""

from reference_server.errors import STATUS, Code


def test_every_error_code_has_a_status() -> None:
    assert set(STATUS) == set(Code)
