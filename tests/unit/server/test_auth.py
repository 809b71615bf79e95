"""Keys of the control plane: how they are read, and that nothing repeats them."""

import pytest

from reference_server.auth import ControlKey


def test_a_control_key_may_hold_colons_and_is_in_no_repr() -> None:
    key = ControlKey.parse("k1:Ops:Admin:a:b:c")
    assert (key.id, key.name, key.role, key.key) == ("k1", "Ops", "admin", "a:b:c")
    assert "a:b:c" not in repr(key)


@pytest.mark.parametrize("text", ["a:b:secret", "a:b:root:secret", ""])
def test_a_malformed_control_key_is_refused_without_being_repeated(text: str) -> None:
    with pytest.raises(ValueError, match="expected") as refused:
        ControlKey.parse(text)
    assert "secret" not in str(refused.value)
