"""Fleets of one kind of engine, and what their engines do."""

from typing import Any

from reference_server import Fleet


def fleet_of(kind: str, count: int, **options: Any) -> Fleet:
    """A fleet of one kind of engine, by its name."""
    return Fleet(**{**options, kind: count})


def states(fleet: Fleet) -> list[str]:
    return [engine.state for engine in fleet.engines]
