"""What a mock engine is started with: the values that never change while it runs."""

from collections.abc import Collection
from dataclasses import dataclass, field

from ..flags import about, documented, setting


@documented
@dataclass(frozen=True, kw_only=True)
class EngineOptions:
    """The start-up options of an engine: `MockEngine("sglang", tp_size=8, weight_version="7")`.

    What has no default here has one that depends on other options or on the kind of engine.
    Raises `ValueError` for a value no engine can have.
    """

    port: int = setting(0, "port to bind, 0 for a free one", metavar="PORT")
    model: str = setting("mock-model", "name it serves under", metavar="NAME")
    model_path: str = field(metadata=about("where its weights are from, none for the model's name", metavar="PATH"))
    weight_version: str = setting("default", "version of its weights", metavar="TEXT")
    version: str = field(
        metadata=about("version of the engine that it looks like, none for a recent one of its kind", metavar="X.Y.Z")
    )
    tp_size: int = setting(1, "tensor parallel size", metavar="N")
    dp_size: int = setting(1, "data parallel size", metavar="N")
    pp_size: int = setting(1, "pipeline parallel size", metavar="N")
    api_key: str | None = setting(None, "key that it wants to see", secret=True, metavar="KEY")
    checkpoints: Collection[str] | None = setting(
        None, "model paths that load, none for all; they may change while it runs", nargs="+", metavar="PATH"
    )
    generation_ticks: int = setting(8, "natural length of an answer in tokens, one a tick", metavar="N")
    abort_ticks: int = setting(0, "ticks until what was aborted has ended, 0 for at once", metavar="N")
    tick_seconds: float = setting(0.0, "seconds of a tick, 0 for as fast as possible", metavar="S")
    health_generation: bool = setting(False, "answer /health after a token as real engines do, else at once")
    health_timeout: float = setting(1.0, "seconds that /health waits for this token", metavar="S")
    dev_mode: bool = setting(True, "have routes for its control (vllm)")
    control: bool = setting(True, "have a control port (tokenspeed)", flags=["no-control-port"])

    def __post_init__(self) -> None:
        for name in ("model", "model_path", "version"):
            _require(bool(getattr(self, name)), f"{name} must not be empty")
        for name in ("tp_size", "dp_size", "pp_size", "generation_ticks"):
            number = getattr(self, name)
            _require(number >= 1, f"{name} must be 1 or more, not {number!r}")
        _require(self.abort_ticks >= 0, f"abort_ticks must be 0 or more, not {self.abort_ticks!r}")
        for name in ("tick_seconds", "health_timeout"):
            seconds = getattr(self, name)
            _require(0 <= seconds < float("inf"), f"{name} must be 0 or more seconds, not {seconds!r}")
        _require(0 <= self.port <= 65535, f"port must be between 0 and 65535, not {self.port!r}")
        _require(self.api_key != "", "api_key must not be empty; leave it out for an engine without a key")
        # A string is a collection of its letters.
        _require(not isinstance(self.checkpoints, str), "checkpoints must be a collection of paths, not one string")


def _require(condition: bool, sentence: str) -> None:
    if not condition:
        raise ValueError(sentence)
