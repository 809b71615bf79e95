"""What a mock engine is started with: the values that never change while it runs."""

from collections.abc import Collection
from dataclasses import dataclass, field


@dataclass(frozen=True)
class EngineOptions:
    """The start-up options of an engine; raises `ValueError` for a value no engine can have.

    `generation_ticks` is the natural length of an answer in tokens, one token a tick;
    `tick_seconds` how long a tick takes, 0 for as fast as possible. `checkpoints` are
    the model paths that load, None for all. With `health_generation`, `/health` asks
    for a token, as a real engine does, and waits `health_timeout` seconds for it.
    """

    model: str = "mock-model"
    model_path: str = ""
    weight_version: str = "default"
    version: str = "0.5.23"
    tp_size: int = 1
    dp_size: int = 1
    pp_size: int = 1
    api_key: str | None = field(default=None, repr=False)
    checkpoints: Collection[str] | None = None
    generation_ticks: int = 8
    tick_seconds: float = 0.0
    health_generation: bool = False
    health_timeout: float = 1.0
    port: int = 0

    def __post_init__(self) -> None:
        for name in ("model", "version"):
            _require(bool(getattr(self, name)), f"{name} must not be empty")
        for name in ("tp_size", "dp_size", "pp_size", "generation_ticks"):
            _require(getattr(self, name) >= 1, f"{name} must be 1 or more, not {getattr(self, name)!r}")
        for name in ("tick_seconds", "health_timeout"):
            _require(0 <= getattr(self, name) < float("inf"), f"{name} must be 0 or more seconds, not {getattr(self, name)!r}")
        _require(0 <= self.port <= 65535, f"port must be between 0 and 65535, not {self.port!r}")
        _require(self.api_key != "", "api_key must not be empty; leave it out for an engine without a key")
        # A string is a collection of its letters.
        _require(not isinstance(self.checkpoints, str), "checkpoints must be a collection of paths, not one string")
        if not self.model_path:
            object.__setattr__(self, "model_path", self.model)


def _require(condition: bool, sentence: str) -> None:
    if not condition:
        raise ValueError(sentence)
