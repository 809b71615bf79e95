"""Which native routes pause and resume an engine."""

from collections.abc import Mapping
from dataclasses import dataclass


@dataclass(frozen=True)
class PauseRoutes:
    """The engine's own routes for a pause.

    `pause` and `resume` are engine paths. The mode of a pause goes into the JSON body, or
    with `mode_in_query` into the query; such an engine is sent no body at all.
    """

    pause: str
    resume: str
    mode_in_query: bool = False

    def pause_call(self, mode: str | None) -> tuple[dict[str, str] | None, Mapping[str, str] | None]:
        """Body and query of the pause."""
        asked = {"mode": mode} if mode else {}
        return (None, asked or None) if self.mode_in_query else (asked, None)

    @property
    def resume_body(self) -> dict[str, str] | None:
        """Body of the resume: SGLang wants one, if only an empty object."""
        return None if self.mode_in_query else {}


SGLANG = PauseRoutes("pause_generation", "continue_generation")
"""SGLang, and TokenSpeed, which speaks the same."""

VLLM = PauseRoutes("pause", "resume", mode_in_query=True)
"""vLLM, whose routes exist with VLLM_SERVER_DEV_MODE=1 only."""
