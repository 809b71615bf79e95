"""The keywords of `MockEngine` as a type, for those who pass them on."""

from collections.abc import Collection
from typing import TypedDict

from .state.clock import Ticks


class EngineSettings(TypedDict, total=False):
    """See `EngineOptions` for what each means, and `MockEngine` for the last two."""

    port: int
    model: str
    model_path: str | None
    weight_version: str
    version: str | None
    tp_size: int
    dp_size: int
    pp_size: int
    api_key: str | None
    checkpoints: Collection[str] | None
    generation_ticks: int
    abort_ticks: int
    tick_seconds: float
    health_generation: bool
    health_timeout: float
    dev_mode: bool
    control: bool
    remote_control: bool
    ticks: Ticks | None
