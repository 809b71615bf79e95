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


@pytest.mark.parametrize("path", MODULES, ids=name_of)
def test_a_module_runs_on_the_standard_library_alone(path: Path) -> None:
    tops = {name.partition(".")[0] for name in imports(path, running=True)}
    assert tops <= STANDARD | {"smg", "reference_server"} | EXTRAS.get(name_of(path), set())


# Who may import whom, the most particular row first: a part of the house, and what of it may be
# imported there besides itself. Arrows point downward only.
DIALECTS = sorted(path.parent.name for path in ROOT.glob("reference_server/engines/*/kind.py"))
ENGINES = "reference_server.engines"
BELOW_A_DIALECT = {f"{ENGINES}.{name}" for name in ("kind", "options", "fastapi", "state")}
MAY_IMPORT: dict[str, set[str]] = {
    "smg.rl": {"smg.__version__"},
    "reference_server.httpd": set(),
    "reference_server.process": set(),
    "reference_server.flags": set(),
    f"{ENGINES}.state": set(),
    f"{ENGINES}.fastapi": {f"{ENGINES}.state", "reference_server.httpd"},
    f"{ENGINES}.faults": {f"{ENGINES}.state", f"{ENGINES}.fastapi", "reference_server.httpd"},
    **{f"{ENGINES}.{name}": {*BELOW_A_DIALECT, "reference_server.httpd", "smg.rl.engines"} for name in DIALECTS},
    ENGINES: {"reference_server.httpd", "reference_server.process", "reference_server.flags", "smg.rl.engines"},
    # A whole fleet is a gateway with engines: these three put one together.
    "reference_server.cli": {"reference_server", "smg.__version__"},
    "reference_server.fleet": {"reference_server", "smg.rl"},
    "reference_server.mocks": {"reference_server"},
    # They hand out the others.
    "reference_server.__init__": {"reference_server"},
    "reference_server.__main__": {"reference_server.cli"},
    "reference_server.pytest_plugin": {"reference_server"},
    "reference_server": {"smg.rl.selectors", "smg.rl.engines"},
    "smg": {"smg", "smg.rl", "reference_server"},
}


def part_of(path: Path) -> str:
    name = name_of(path) + (".__init__" if path.name == "__init__.py" else "")
    return next(part for part in MAY_IMPORT if f"{name}.".startswith(f"{part}."))


def within(name: str, part: str) -> bool:
    return f"{name}.".startswith(f"{part}.")


@pytest.mark.parametrize("path", MODULES, ids=name_of)
def test_arrows_point_downward_only(path: Path) -> None:
    part = part_of(path)
    for name in edges(path):
        own = within(name, part) and not (part == "reference_server" and within(name, ENGINES))
        assert own or any(within(name, other) for other in MAY_IMPORT[part]), f"{name_of(path)} imports {name}"


@pytest.mark.parametrize("dialect", DIALECTS)
def test_a_dialect_imports_no_other(dialect: str) -> None:
    others = [f"{ENGINES}.{other}" for other in DIALECTS if other != dialect]
    for path in ROOT.glob(f"reference_server/engines/{dialect}/*.py"):
        assert not [name for name in edges(path) if any(within(name, other) for other in others)], path


def edges(path: Path) -> set[str]:
    """The modules and names of ours that a module imports, for the type checker too.

    What is imported from a package's `__init__` is named `package.name`.
    """
    known = {name_of(module) for module in MODULES}
    return {name for name in imports(path) if name.partition(".")[0] in ("smg", "reference_server")} - (
        # `from . import part` imports the part, and from the package nothing else.
        {name for name in imports(path) if name in known and (ROOT / name.replace(".", "/")).is_dir()}
    )


def test_no_imports_go_round_in_a_circle() -> None:
    known = {name_of(path) for path in MODULES}
    graph = {name_of(path): sorted({target(name, known) for name in edges(path)}) for path in MODULES}
    done: set[str] = set()

    def visit(module: str, way: tuple[str, ...]) -> None:
        assert module not in way, f"a circle: {' -> '.join((*way[way.index(module) :], module))}"
        if module not in done:
            for other in graph[module]:
                visit(other, (*way, module))
            done.add(module)

    for module in graph:
        visit(module, ())


def target(name: str, known: set[str]) -> str:
    """The module that a name is imported from."""
    return name if name in known else name.rpartition(".")[0]


def test_one_file_imports_urllib_request() -> None:
    users = [name_of(path) for path in MODULES if "urllib.request" in set(imports(path))]
    assert users == ["smg.rl.transport"]


@pytest.mark.parametrize("path", MODULES, ids=name_of)
def test_a_module_says_what_it_is(path: Path) -> None:
    source = path.read_text(encoding="utf-8")
    assert ast.get_docstring(ast.parse(source)) or not source


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
        "reference_server": [
            "Config",
            "ConfigError",
            "EngineSettings",
            "Fleet",
            "Gateway",
            "GatewaySettings",
            "MakeFleet",
            "ManualTicks",
            "MockEngine",
            "faults",
        ],
    }
