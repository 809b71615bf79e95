"""The options of an engine, and that the keywords of `MockEngine` are these."""

import dataclasses
import inspect
import typing

from reference_server import MockEngine
from reference_server.engines.options import EngineOptions


def test_the_keywords_of_an_engine_are_its_options() -> None:
    """What has no default of its own may be left out too: None stands for what it depends on."""
    keywords, types = inspect.signature(MockEngine).parameters, typing.get_type_hints(MockEngine.__init__)
    named = keywords.keys() - {"kind", "ticks", "remote_control"}
    declared = typing.get_type_hints(EngineOptions)
    options = {one.name: one for one in dataclasses.fields(EngineOptions)}
    assert named == options.keys()
    for name, one in options.items():
        free = one.default is dataclasses.MISSING
        assert keywords[name].default == (None if free else one.default), name
        assert types[name] == (declared[name] | None if free else declared[name]), name
