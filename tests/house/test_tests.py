"""Where tests are: unit tests by the name of their module, fixtures in `conftest`, the rest in `support`."""

import ast
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
TESTS = ROOT / "tests"
UNIT = TESTS / "unit"

# The folder of unit tests for a folder of modules, the most particular row first.
FOLDERS = {"smg/rl": "rl", "reference_server/engines": "engines", "reference_server": "server"}

# A file of unit tests that can have no module of its name, and why.
WITHOUT_A_MODULE: dict[str, str] = {
    f"engines/state/test_machine_{part}.py": "a part of what `machine` does, with fixtures of its own"
    for part in ("adapters", "asleep", "pause_lock")
}


def mirror_of(module: Path) -> Path:
    """`smg/rl/encoding.py` -> `rl/test_encoding.py`."""
    source = next(folder for folder in FOLDERS if module.is_relative_to(ROOT / folder))
    inside = module.relative_to(ROOT / source)
    return Path(FOLDERS[source], inside.with_name(f"test_{inside.name}"))


MIRRORED = {mirror_of(module).as_posix() for folder in FOLDERS for module in (ROOT / folder).rglob("*.py")}
UNIT_FILES = sorted(path.relative_to(UNIT).as_posix() for path in UNIT.rglob("test_*.py"))


@pytest.mark.parametrize("name", UNIT_FILES)
def test_a_file_of_unit_tests_has_the_place_and_the_name_of_its_module(name: str) -> None:
    assert (name in MIRRORED) != (name in WITHOUT_A_MODULE)


def test_who_needs_no_module_is_still_there() -> None:
    assert WITHOUT_A_MODULE.keys() <= set(UNIT_FILES)


def imported(tree: ast.Module) -> Iterator[str]:
    """Each part of a name of a module that is imported, and each name that is taken from one by `from . import`."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            yield from (part for one in node.names for part in one.name.split("."))
        elif isinstance(node, ast.ImportFrom):
            yield from (node.module.split(".") if node.module else [one.name for one in node.names])


def fixtures(tree: ast.Module) -> list[str]:
    functions = [node for node in ast.walk(tree) if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)]
    return [one.name for one in functions if any("pytest.fixture" in ast.unparse(d) for d in one.decorator_list)]


@pytest.mark.parametrize("path", sorted(TESTS.rglob("*.py")), ids=lambda path: path.relative_to(TESTS).as_posix())
def test_nothing_is_taken_from_a_module_of_tests_and_no_fixture_is_imported(path: Path) -> None:
    tree = ast.parse(path.read_text(encoding="utf-8"))
    assert [part for part in imported(tree) if part.startswith("test_") or part == "conftest"] == []
    if not path.name.startswith(("test_", "conftest")):
        assert fixtures(tree) == []
