"""The settings of a gateway, as a value."""

from reference_server import Config
from reference_server.auth import ControlKey


def test_a_secret_is_in_no_repr() -> None:
    config = Config(
        api_key="hush", tenant_api_keys=["hush"], control_plane_api_keys=[ControlKey.parse("k:n:admin:hush")]
    )
    assert "hush" not in repr(config)
