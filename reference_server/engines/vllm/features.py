"""What came when to vLLM."""

import re
from dataclasses import dataclass

from ..state.traits import Traits


@dataclass(frozen=True)
class Features:
    """What a version of vLLM has.

    `refuses`: 503 for what arrives in a pause, unless that keeps what is in flight; without,
    it waits in silence. `spans`: `return_weight_versions` is understood. `tells`: a weight
    version, and JSON where older versions answer with nothing; and a wake-up of a part
    leaves the engine paused.
    """

    refuses: bool
    spans: bool
    tells: bool

    @classmethod
    def of(cls, version: str) -> "Features":
        """The features of a version; of one that cannot be read, those of the newest."""
        numbers = re.match(r"([0-9]+)\.([0-9]+)", version)
        release = (int(numbers[1]), int(numbers[2])) if numbers else (1, 0)
        return cls(refuses=release >= (0, 33), spans=release >= (0, 33), tells=release >= (0, 27))


def traits(version: str) -> Traits:
    """How a vLLM behaves beneath its routes."""
    refuses = frozenset({"abort", "wait"}) if Features.of(version).refuses else frozenset[str]()
    return Traits(refuses, queues=True, needs_memory=True, half_loads=True)
