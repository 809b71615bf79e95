"""Every Python snippet of README and docs runs, every link leads somewhere."""

import inspect
import re
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest

from reference_server import Fleet, Gateway, MockEngine

ROOT = Path(__file__).parents[2]
PAGES = sorted([*ROOT.glob("*.md"), *ROOT.glob("docs/*.md")])
SNIPPET = re.compile(r"^(?:<!-- (?P<mark>[a-z -]+) -->\n)?```python\n(?P<code>.*?)^```$", re.MULTILINE | re.DOTALL)
LINK = re.compile(r"\]\((?!https?://|#)([^)#]+)")

# A snippet that needs real engines is marked so; a test in tests/interop does the same.
NEEDS_REAL_ENGINES = "real engines"


def snippets() -> Iterator[Any]:
    for page in PAGES:
        text = page.read_text(encoding="utf-8")
        for found in SNIPPET.finditer(text):
            if found["mark"] != NEEDS_REAL_ENGINES:
                line = text.count("\n", 0, found.start()) + 1
                yield pytest.param(found["code"], id=f"{page.relative_to(ROOT)}:{line}")


@pytest.mark.parametrize("code", list(snippets()))
def test_a_snippet_runs(code: str) -> None:
    with MockEngine("sglang") as one, MockEngine("sglang") as two:
        with Gateway(worker_urls=[one.url, two.url], enable_rl=True) as gateway:
            names = {"SMG": gateway.url, "engines": [one, two]}
            exec(compile(code.replace("http://smg:30000", gateway.url), "snippet", "exec"), names)
            run_tests_of(names)
        assert [(engine.state, engine.in_flight) for engine in (one, two)] == [("running", 0)] * 2


def run_tests_of(names: dict[str, Any]) -> None:
    """A snippet that is a test is run as one."""
    for name in [name for name in names if name.startswith("test_")]:
        with ExitStack() as stack:
            given = {"smg_fleet": lambda **kinds: stack.enter_context(Fleet(**kinds))}
            names[name](**{wanted: given[wanted] for wanted in inspect.signature(names[name]).parameters})


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_every_link_leads_to_a_file(page: Path) -> None:
    for target in LINK.findall(page.read_text(encoding="utf-8")):
        assert (page.parent / target).exists(), target
