"""An editor completes what is public: names of the packages, methods of their objects, keywords."""

from pathlib import Path

import jedi  # type: ignore[import-untyped]  # it has no stubs
import pytest

import reference_server
import smg.rl
import smg.rl.aio

ROOT = Path(__file__).parents[2]


def completed(source: str) -> set[str]:
    """What jedi offers at the end of a source text."""
    lines = source.splitlines()
    project = jedi.Project(ROOT)
    offered = jedi.Script(source, path=ROOT / "untitled.py", project=project).complete(len(lines), len(lines[-1]))
    return {one.name for one in offered}


@pytest.mark.parametrize("package", [smg.rl, smg.rl.aio, reference_server], ids=lambda package: package.__name__)
def test_an_import_completes_every_public_name(package: object) -> None:
    name: str = getattr(package, "__name__")  # noqa: B009  # the type of a module does not promise one
    names: list[str] = getattr(package, "__all__")  # noqa: B009  # nor the other
    assert set(names) <= completed(f"from {name} import ")


OBJECTS = {
    "from smg.rl import RL\nrl = RL('http://h')\nrl.": {"call", "fanout", "match", "weight_versions", "workers"},
    "from smg.rl import RL\nRL('http://h').workers()[0].": {"base_url", "capabilities", "labels", "weight_version"},
    "from smg.rl import RL\nRL('http://h').fanout('p', selector='a=b').": {"failed", "failed_selector", "results"},
    "from smg.rl.aio import AsyncRL\nrl = AsyncRL('http://h')\nrl.": {"call", "fanout", "match", "workers"},
    "from reference_server import Fleet\nfleet = Fleet(sglang=1)\nfleet.": {"check", "engines", "gateway", "rl"},
    "from reference_server import MockEngine\nengine = MockEngine('vllm')\nengine.": {"calls", "fail", "hold", "state"},
    "from reference_server import faults\nfaults.": {"Delay", "Hang", "Lie", "Status"},
    "from reference_server import MockEngine\nMockEngine('vllm', ": {"model_path=", "tick_seconds=", "weight_version="},
    "from smg.rl import RL, paused\npaused(RL('http://h'), 'a=b', ": {"mode=", "quarantine=", "resume_retries="},
}


@pytest.mark.parametrize("source", OBJECTS, ids=lambda source: source.splitlines()[-1])
def test_an_object_completes_its_methods_and_a_call_its_keywords(source: str) -> None:
    assert OBJECTS[source] <= completed(source)
