"""What each kind of engine can do: its row of the table of engines, which `rl.*` labels override.

Contract, chapter "Capabilities".
"""

from collections.abc import Mapping

from smg.rl.engines import facts_of


def capabilities(engine: str, labels: Mapping[str, str]) -> dict[str, object]:
    """The capability row of an engine, and in `source` whether a label changed it."""
    known = facts_of(engine).capabilities._asdict()
    row = {name: list(value) if isinstance(value, tuple) else value for name, value in known.items()}
    overrides = {name: _read(labels[f"rl.{name}"], row[name]) for name in row if f"rl.{name}" in labels}
    return {"source": "label" if overrides else "static", **row, **overrides}


def _read(label: str, default: object) -> object:
    if isinstance(default, list):
        return [item for item in map(str.strip, label.split(",")) if item]
    return label.strip().lower() == "true"
