"""What a user installs: the wheel's files and metadata, and the demo out of it."""

import os
import shutil
import subprocess
import sys
import zipfile
from email import message_from_string
from pathlib import Path

import pytest

from smg import __version__

ROOT = Path(__file__).parents[2]


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    target = tmp_path_factory.mktemp("wheel")
    # Built from a copy: a build leaves folders beside the sources.
    source = tmp_path_factory.mktemp("source")
    for name in ("setup.cfg", "pyproject.toml", "README.md", "LICENSE", "smg", "reference_server"):
        copy = ["cp", "-r", str(ROOT / name), str(source)]
        subprocess.run(copy, check=True)
    command = [
        sys.executable,
        "-m",
        "pip",
        "wheel",
        "--no-deps",
        "--no-build-isolation",
        "--quiet",
        "-w",
        str(target),
        ".",
    ]
    subprocess.run(command, cwd=source, check=True, capture_output=True)
    return next(target.glob("*.whl"))


@pytest.fixture(scope="module")
def names(wheel: Path) -> list[str]:
    with zipfile.ZipFile(wheel) as archive:
        return archive.namelist()


def read(wheel: Path, ending: str) -> str:
    with zipfile.ZipFile(wheel) as archive:
        return archive.read(next(n for n in archive.namelist() if n.endswith(ending))).decode()


def test_the_wheel_is_pure_and_has_two_top_level_names(wheel: Path, names: list[str]) -> None:
    assert wheel.name == f"smg-{__version__}-py3-none-any.whl"
    info = f"smg-{__version__}.dist-info"
    assert {name.partition("/")[0] for name in names} == {"smg", "reference_server", info}
    assert {"smg/py.typed", "reference_server/py.typed"} <= set(names)
    assert not [name for name in names if "tests/" in name or "/test_" in name or name.endswith(".pyc")]


def test_the_wheel_needs_nothing_but_python(wheel: Path) -> None:
    metadata = message_from_string(read(wheel, "/METADATA"))
    assert metadata["Name"] == "smg"
    assert metadata["Version"] == __version__
    assert metadata["License-Expression"] == "Apache-2.0"
    assert metadata["Requires-Python"] == ">=3.10"
    assert sorted(metadata.get_all("Provides-Extra", [])) == ["jwt", "test"]
    assert all("extra ==" in need for need in metadata.get_all("Requires-Dist", []))
    entry_points = read(wheel, "/entry_points.txt")
    assert "[console_scripts]\nsmg = smg.cli:main" in entry_points
    assert "[pytest11]\nsmg = reference_server.pytest_plugin" in entry_points


def test_the_demo_runs_out_of_the_wheel(wheel: Path, tmp_path: Path) -> None:
    with zipfile.ZipFile(wheel) as archive:
        archive.extractall(tmp_path)
    done = subprocess.run(
        [sys.executable, "-W", "error", "-m", "smg", "demo"], cwd=tmp_path, capture_output=True, text=True, timeout=60
    )
    assert (done.returncode, done.stderr) == (0, "")
    assert "Every engine runs" in done.stdout


def test_a_trainers_test_finds_the_fixture_of_the_installed_wheel(wheel: Path, tmp_path: Path) -> None:
    site, trainer = tmp_path / "site", tmp_path / "trainer"
    pip = [sys.executable, "-m", "pip", "install", "--no-deps", "--quiet", "--target", str(site), str(wheel)]
    subprocess.run(pip, check=True, capture_output=True)
    shutil.copytree(ROOT / "examples" / "rl" / "ci", trainer)
    done = subprocess.run(
        [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "."],
        cwd=trainer,
        env={**os.environ, "PYTHONPATH": str(site)},
        capture_output=True,
        text=True,
        timeout=60,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert "2 passed" in done.stdout
