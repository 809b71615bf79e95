"""What a mock engine is started with: the values that never change while it runs."""

from collections.abc import Collection
from dataclasses import dataclass, field


@dataclass(frozen=True, kw_only=True)
class EngineOptions:
    """The start-up options of an engine; raises `ValueError` for a value no engine can have.

    `generation_ticks` is the natural length of an answer in tokens, one token a tick;
    `tick_seconds` how long a tick takes, 0 for as fast as possible. `checkpoints` are
    the model paths that load, None for all; they may change while the engine runs. With
    `health_generation`, `/health` asks for a token, as a real engine does, and waits
    `health_timeout` seconds for it; without, it is 200 at once. Without `dev_mode` a vLLM
    has no routes for its control, without `control` a TokenSpeed answers there that it
    has no control port.
    """

    model: str
    model_path: str
    weight_version: str
    version: str
    tp_size: int
    dp_size: int
    pp_size: int
    api_key: str | None = field(repr=False)
    checkpoints: Collection[str] | None
    generation_ticks: int
    tick_seconds: float
    health_generation: bool
    health_timeout: float
    port: int
    dev_mode: bool = True
    control: bool = True

    def __post_init__(self) -> None:
        for name in ("model", "model_path", "version"):
            _require(bool(getattr(self, name)), f"{name} must not be empty")
        for name in ("tp_size", "dp_size", "pp_size", "generation_ticks"):
            number = getattr(self, name)
            _require(number >= 1, f"{name} must be 1 or more, not {number!r}")
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
