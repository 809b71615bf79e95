"""How the house is built: who may import whom, what an import costs, what is public."""

import ast
import importlib
import inspect
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
MODULES = sorted([*ROOT.glob("smg/**/*.py"), *ROOT.glob("reference_server/**/*.py")])
PUBLIC = ["smg.rl", "smg.rl.aio", "reference_server"]

# What costs a trainer's worker or a shell tens of milliseconds, and is needed by a call only.
HEAVY = {"asyncio", "concurrent.futures", "email", "http.client", "logging", "ssl", "urllib.request"}

# What an extra or a test runner brings, and the one module that uses it.
EXTRAS = {"reference_server.oidc": {"jwt"}, "reference_server.pytest_plugin": {"pytest"}}

STANDARD = sys.stdlib_module_names


def name_of(path: Path) -> str:
    return ".".join(path.relative_to(ROOT).with_suffix("").parts).removesuffix(".__init__")


class WithoutTypeChecking(ast.NodeTransformer):
    """Takes out of a module what only a type checker reads."""

    def visit_If(self, node: ast.If) -> ast.AST | None:
        return None if ast.unparse(node.test) == "TYPE_CHECKING" else self.generic_visit(node)


def imports(path: Path, *, running: bool = False) -> Iterator[str]:
    """Absolute names of everything a module imports, wherever in it; or of that which `running` it does."""
    package = name_of(path) if path.name == "__init__.py" else name_of(path).rpartition(".")[0]
    tree = ast.parse(path.read_text(encoding="utf-8"))
    for node in ast.walk(WithoutTypeChecking().visit(tree) if running else tree):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            base = package.rsplit(".", node.level - 1)[0] if node.level > 1 else package
            prefix = f"{base}.{node.module}" if node.level and node.module else node.module or base
            yield prefix
            yield from (f"{prefix}.{alias.name}" for alias in node.names)


def below(path: Path, package: str) -> bool:
    return (name_of(path) + ".").startswith(package + ".")


@pytest.mark.parametrize("path", MODULES, ids=name_of)
def test_a_module_runs_on_the_standard_library_alone(path: Path) -> None:
    tops = {name.partition(".")[0] for name in imports(path, running=True)}
    assert tops <= STANDARD | {"smg", "reference_server"} | EXTRAS.get(name_of(path), set())


@pytest.mark.parametrize("path", [p for p in MODULES if below(p, "smg.rl")], ids=name_of)
def test_the_client_knows_nothing_of_the_gateway(path: Path) -> None:
    assert not [name for name in imports(path) if name.startswith("reference_server")]


@pytest.mark.parametrize("path", [p for p in MODULES if below(p, "reference_server")], ids=name_of)
def test_the_gateway_takes_the_selector_language_from_the_client_and_nothing_else(path: Path) -> None:
    if name_of(path) == "reference_server.fleet":
        return  # it hands out a client, and loads it then
    taken = {name for name in imports(path) if name.startswith("smg")}
    assert all(name.startswith("smg.rl.selectors") or name in ("smg", "smg.__version__") for name in taken)


def test_one_file_imports_urllib_request() -> None:
    users = [name_of(path) for path in MODULES if "urllib.request" in set(imports(path))]
    assert users == ["smg.rl.transport"]


@pytest.mark.parametrize("path", MODULES, ids=name_of)
def test_a_module_is_one_concept_in_at_most_300_lines_with_a_docstring(path: Path) -> None:
    source = path.read_text(encoding="utf-8")
    assert len(source.splitlines()) <= 300
    assert ast.get_docstring(ast.parse(source)) or not source


def test_the_gateway_is_thin() -> None:
    """Lines of code without blank lines, comments and docstrings, and without the mock fleet."""
    fleet = {"fleet.py", "pytest_plugin.py"}
    modules = [path for path in ROOT.glob("reference_server/*.py") if path.name not in fleet]
    assert sum(map(lines_of_code, modules)) <= 2600


def lines_of_code(path: Path) -> int:
    source = path.read_text(encoding="utf-8")
    documented = (ast.Module, ast.ClassDef, ast.FunctionDef, ast.AsyncFunctionDef)
    texts: set[int] = set()
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, documented) and ast.get_docstring(node):
            first = node.body[0]
            texts |= set(range(first.lineno, (first.end_lineno or first.lineno) + 1))
    lines = enumerate(source.splitlines(), 1)
    return sum(1 for n, line in lines if n not in texts and line.strip() and not line.strip().startswith("#"))


def test_every_exception_from_the_type_checker_has_its_reason() -> None:
    everything = [*MODULES, *ROOT.glob("tests/**/*.py"), *ROOT.glob("examples/**/*.py")]
    for path in everything:
        for number, line in enumerate(path.read_text(encoding="utf-8").splitlines(), 1):
            if "type: " + "ignore" in line and path != Path(__file__):
                assert re.search(r"type: ignore\[[\w, -]+\]  # \w+", line), f"{path}:{number}"


def python(code: str) -> str:
    return subprocess.run(
        [sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, timeout=60, check=True
    ).stdout


@pytest.mark.parametrize(
    "statement", ["import smg", "import smg.rl", "from smg.rl import RL, RlError, FanoutError, paused"]
)
def test_an_import_of_the_client_is_light(statement: str) -> None:
    loaded = set(python(f"import sys; {statement}; print(*sys.modules)").split())
    assert loaded & HEAVY == set()


def test_the_version_costs_nothing() -> None:
    _before, after = python(
        "import sys; a = set(sys.modules); import smg; print(*a, '|', *set(sys.modules) - a)"
    ).split("|")
    assert after.split() == ["smg"]


@pytest.mark.parametrize("package", PUBLIC)
def test_what_is_public_exists_and_is_documented(package: str) -> None:
    module = importlib.import_module(package)
    for name in module.__all__:
        thing = getattr(module, name)
        assert inspect.getdoc(thing), f"{package}.{name} has no docstring"
        members = vars(thing).items() if inspect.isclass(thing) else ()
        for member, value in members:
            public = not member.startswith("_") and (
                inspect.isfunction(value) or isinstance(value, (property, classmethod))
            )
            assert not public or inspect.getdoc(getattr(thing, member)), f"{package}.{name}.{member} has no docstring"


def test_the_public_names_are_these() -> None:
    """A name that is added here is added to the CHANGELOG too."""
    assert {package: importlib.import_module(package).__all__ for package in PUBLIC} == {
        "smg.rl": [
            "RL",
            "SGLANG",
            "VLLM",
            "CallResult",
            "FanoutError",
            "FanoutFailure",
            "FanoutResult",
            "Pause",
            "PauseRoutes",
            "RlConnectionError",
            "RlError",
            "RlTimeoutError",
            "Selector",
            "SelectorError",
            "Target",
            "Term",
            "WeightVersionError",
            "Worker",
            "paused",
        ],
        "smg.rl.aio": ["AsyncRL", "paused"],
        "reference_server": ["Config", "ConfigError", "Fleet", "Gateway", "MockEngine", "faults"],
    }
