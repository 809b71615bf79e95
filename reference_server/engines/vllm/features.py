"""What came when to vLLM."""

import re
from dataclasses import dataclass

from ..state.traits import Traits


@dataclass(frozen=True)
class Features:
    """What a version of vLLM has.

    `refuses_while_paused`: what arrives in an abort or wait pause is a 503; without, it
    waits in silence. `weight_spans`: `return_weight_versions` is understood.
    `weight_routes`: there are routes for the weight version, and those that came with them.
    `json_answers`: JSON where older versions answer with nothing. `sleep_is_a_pause`: who
    is paused counts as asleep, and a wake-up of a part leaves the engine paused.
    `wait_flag`: a pause takes `wait_for_inflight_requests`, from the time before modes.
    """

    refuses_while_paused: bool
    weight_spans: bool
    weight_routes: bool
    json_answers: bool
    sleep_is_a_pause: bool
    wait_flag: bool

    @classmethod
    def of(cls, version: str) -> "Features":
        """The features of a version; of one that cannot be read, those of the newest."""
        numbers = re.match(r"([0-9]+)\.([0-9]+)", version)
        release = (int(numbers[1]), int(numbers[2])) if numbers else (1, 0)
        return cls(
            refuses_while_paused=release >= (0, 33),
            weight_spans=release >= (0, 33),
            weight_routes=release >= (0, 27),
            json_answers=release >= (0, 27),
            sleep_is_a_pause=release >= (0, 27),
            wait_flag=release < (0, 27),
        )


def traits(version: str) -> Traits:
    """How a vLLM behaves beneath its routes."""
    refuses = frozenset({"abort", "wait"}) if Features.of(version).refuses_while_paused else frozenset[str]()
    return Traits(locks=frozenset(), refuses=refuses, queues=True, needs_memory=True, half_loads=True)
