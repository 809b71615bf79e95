"""What each kind of engine can do: a static table that `rl.*` labels override.

Contract, chapter "Capabilities".
"""

from collections.abc import Mapping

_Row = dict[str, object]

_TABLE: dict[str, _Row] = {
    "sglang": {
        "pause_modes": ["abort", "retract", "in_place"],
        "update_from": ["disk", "tensor", "distributed"],
        "abort": True,
        "flush_cache": True,
        "sleep_wake": True,
        "reports_weight_version": True,
    },
    "vllm": {
        "pause_modes": ["abort", "wait", "keep"],
        "update_from": ["disk", "distributed"],
        "abort": False,
        "flush_cache": False,
        "sleep_wake": True,
        "reports_weight_version": False,
    },
}
_NOTHING: _Row = {
    "pause_modes": [],
    "update_from": [],
    "abort": False,
    "flush_cache": False,
    "sleep_wake": False,
    "reports_weight_version": False,
}


def capabilities(engine: str, labels: Mapping[str, str]) -> _Row:
    """The capability row of an engine, and in `source` whether a label changed it."""
    row = _TABLE.get(engine, _NOTHING)
    overrides = {name: labels[f"rl.{name}"] for name in row if f"rl.{name}" in labels}
    return {
        "source": "label" if overrides else "static",
        **{name: _read(overrides[name], value) if name in overrides else value for name, value in row.items()},
    }


def _read(label: str, default: object) -> object:
    if isinstance(default, list):
        return [item for item in map(str.strip, label.split(",")) if item]
    return label.strip().lower() == "true"
