"""What came when to vLLM."""

import pytest

from reference_server.engines.vllm.features import Features


class TestVersions:
    @pytest.mark.parametrize(
        ("version", "refuses", "tells"),
        [
            ("0.33.0", True, True),
            ("0.32.0", False, True),
            ("0.27.0rc1", False, True),
            ("0.26.9", False, False),
            ("1.0", True, True),
            ("dev", True, True),
        ],
    )
    def test_what_came_when(self, version: str, refuses: bool, tells: bool) -> None:
        assert Features.of(version) == Features(refuses, refuses, tells, tells, tells, not tells)
