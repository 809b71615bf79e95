"""`smg engine KIND`, which is `python -m reference_server.engines`: one mock engine in a process of its own."""

import argparse
import json
import os
import sys
from collections.abc import Sequence

from ..flags import add_flags, read_flags
from ..process import Termination, ready_file
from .engine import MockEngine
from .kinds import KINDS
from .options import EngineOptions


def main(argv: Sequence[str] | None = None) -> int:
    """Run until SIGTERM or Ctrl-C; the first line on standard output says where.

    Exit 1 for a refused value, 2 for a wrong flag.
    """
    parsed = parser().parse_args(argv)
    # Not the host: who can reach a mock engine can do anything with it.
    options = {**read_flags(EngineOptions, parsed), "remote_control": parsed.remote_control}
    with Termination() as termination:
        try:
            with MockEngine(parsed.kind, **options) as engine:
                ready = {"event": "ready", "url": engine.url, "pid": os.getpid(), "kind": engine.kind}
                with ready_file(parsed.ready_file, ready):
                    print(json.dumps(ready), flush=True)
                    termination.wait()
        except (OSError, ValueError) as problem:
            text = problem.strerror if isinstance(problem, OSError) else None
            print(f"smg engine: {text or problem}", file=sys.stderr)
            return 1
    return 0


def parser() -> argparse.ArgumentParser:
    """The flags: `EngineOptions`, and what concerns the process."""
    p = argparse.ArgumentParser(prog="smg engine", description="Run one mock engine.")
    p.add_argument("kind", choices=list(KINDS), help="engine that it looks like")
    loopback = "the loopback only (default %(default)s)"
    p.add_argument("--host", choices=["127.0.0.1"], default="127.0.0.1", help=loopback)
    ready = "file that holds the first line of the output while the engine answers (default none)"
    p.add_argument("--ready-file", metavar="FILE", help=ready)
    p.add_argument("--control", dest="remote_control", action="store_true", help="let anyone control it under /_mock/")
    add_flags(p, EngineOptions)
    return p


if __name__ == "__main__":
    sys.exit(main())
