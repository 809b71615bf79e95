"""Keywords are typed: mypy and pyright tell a misspelt one, or a wrong type, before anything runs."""

import json
import re
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
RIGHT, WRONG = "right", "wrong"
IMPORTS = (
    "from reference_server import Config, Fleet, Gateway, MakeFleet, MockEngine;"
    " from smg.rl.aio import AsyncRL; from typing import cast; smg_fleet = cast(MakeFleet, None)"
)

# One statement a line, as a user of the package writes it.
CASES = [
    ("Gateway()", RIGHT),
    ("Gateway(worker_urls=['http://h:1'], enable_rl=True, rl_control_timeout_secs=0.5)", RIGHT),
    ("Gateway(Config(), api_key=None, prometheus_port=0, keep_log=True)", RIGHT),
    ("Gateway(enable_lr=True)", WRONG),
    ("Gateway(enable_rl='yes')", WRONG),
    ("Gateway(worker_urls=[8000])", WRONG),
    ("Gateway(keep_logs=True)", WRONG),
    ("Config(enable_rl=True, host='0.0.0.0')", RIGHT),
    ("Config(enable_lr=True)", WRONG),
    ("Config(port='30000')", WRONG),
    ("Gateway().register('http://h:1')", RIGHT),
    ("Gateway().register('http://h:1', labels={'role': 'policy'}, api_key='k', priority=1)", RIGHT),
    ("Gateway().register('http://h:1', label={'role': 'policy'})", WRONG),
    ("Gateway().register('http://h:1', labels=['policy'])", WRONG),
    ("MockEngine('vllm', weight_version='7', tick_seconds=0.1, checkpoints=['a'])", RIGHT),
    ("MockEngine('vllm', weights_version='7')", WRONG),
    ("MockEngine('vllm', tp_size='8')", WRONG),
    ("Fleet(MockEngine('vllm'), sglang=2, tokenspeed=1, seed=3, labels={'role': 'policy'})", RIGHT),
    ("Fleet(sglang=2, engine={'tp_size': 8}, gateway={'enable_rl': True})", RIGHT),
    ("Fleet(sglng=2)", WRONG),
    ("Fleet(sglang='2')", WRONG),
    ("Fleet(sglang=2, engine={'tp': 8})", WRONG),
    ("Fleet(sglang=2, gateway={'enable_lr': True})", WRONG),
    ("smg_fleet(sglang=2, engine={'dp_size': 2}).rl.workers()", RIGHT),
    ("smg_fleet(sglng=2)", WRONG),
    ("smg_fleet(sglang=2, engine={'dp': 2})", WRONG),
    ("AsyncRL('http://h:1', api_key='k', timeout=5, trust_env=True, headers={'x-request-id': 'r'})", RIGHT),
    ("AsyncRL('http://h:1', apikey='k')", WRONG),
    ("AsyncRL('http://h:1', trust_env='yes')", WRONG),
]


@pytest.fixture
def module(tmp_path: Path) -> Path:
    """A module of all cases, the imports on its first line."""
    path = tmp_path / "cases.py"
    path.write_text("\n".join([IMPORTS, *(code for code, _ in CASES), ""]), encoding="utf-8")
    return path


def checked(*command: str) -> str:
    """What a checker says on standard output; its exit code is 0 or, with errors, 1."""
    done = subprocess.run(
        [sys.executable, "-m", *command], cwd=ROOT, capture_output=True, text=True, timeout=600, check=False
    )
    assert done.returncode in (0, 1), done.stdout + done.stderr
    return done.stdout


def mypy(module: Path) -> set[int]:
    said = checked("mypy", "--config-file", str(ROOT / "setup.cfg"), "--no-pretty", "--no-error-summary", str(module))
    return {int(number) for number in re.findall(rf"{module.name}:(\d+): error:", said)}


def pyright(module: Path) -> set[int]:
    said = checked("pyright", "--outputjson", "--pythonpath", sys.executable, str(module))
    # On a new machine it says first how it installs itself.
    found = json.loads(said[said.index("{") :])["generalDiagnostics"]
    return {one["range"]["start"]["line"] + 1 for one in found if one["severity"] == "error"}


@pytest.mark.parametrize("checker", [mypy, pyright])
def test_a_wrong_keyword_is_told_before_anything_runs(checker: Callable[[Path], set[int]], module: Path) -> None:
    errors = checker(module)
    assert 1 not in errors, IMPORTS
    assert [(code, WRONG if line in errors else RIGHT) for line, (code, _) in enumerate(CASES, 2)] == CASES
