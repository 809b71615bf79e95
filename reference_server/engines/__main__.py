"""`smg engine KIND`, which is `python -m reference_server.engines`: one mock engine in a process of its own."""

import argparse
import inspect
import json
import os
import sys
from collections.abc import Sequence

from ..process import Termination, ready_file
from .engine import MockEngine
from .kinds import KINDS

# What the keywords of `MockEngine` mean; their defaults, and so their types, are read there.
_OPTIONS = {
    "model": "the name it serves under",
    "model_path": "where its weights are from (default: the model)",
    "weight_version": "the version of its weights",
    "version": "the version of the engine that it looks like",
    "tp_size": "tensor parallel size",
    "dp_size": "data parallel size",
    "pp_size": "pipeline parallel size",
    "api_key": "the key it wants to see",
    "generation_ticks": "tokens of an answer, one a tick",
    "tick_seconds": "seconds of a tick",
    "health_timeout": "seconds that a health check waits for its token",
    "health_generation": "answer /health after a token, as real engines do",
}


def main(argv: Sequence[str] | None = None) -> int:
    """Run until SIGTERM or Ctrl-C; the first line on standard output says where.

    Exit 1 for a refused value, 2 for a wrong flag.
    """
    arguments = vars(parser().parse_args(argv))
    # Only one address: who can reach a mock engine can do anything with it.
    del arguments["host"]
    path = arguments.pop("ready_file")
    with Termination() as termination:
        try:
            with MockEngine(**arguments) as engine:
                ready = {"event": "ready", "url": engine.url, "pid": os.getpid(), "kind": engine.kind}
                with ready_file(path, ready):
                    print(json.dumps(ready), flush=True)
                    termination.wait()
        except (OSError, ValueError) as problem:
            text = problem.strerror if isinstance(problem, OSError) else None
            print(f"smg engine: {text or problem}", file=sys.stderr)
            return 1
    return 0


def parser() -> argparse.ArgumentParser:
    """The flags: keywords of `MockEngine`, written with dashes."""
    p = argparse.ArgumentParser(prog="smg engine", description="Run one mock engine.")
    p.add_argument("kind", choices=list(KINDS))
    p.add_argument("--host", choices=["127.0.0.1"], default="127.0.0.1", help="the loopback only")
    p.add_argument("--port", type=int, default=0, help="0 for a free one")
    p.add_argument("--ready-file", metavar="FILE", help="holds the first line of the output while the engine answers")
    p.add_argument("--control", dest="remote_control", action="store_true", help="let anyone control it under /_mock/")
    keywords = inspect.signature(MockEngine).parameters
    for name, help in _OPTIONS.items():
        flag, default = "--" + name.replace("_", "-"), keywords[name].default
        if isinstance(default, bool):
            p.add_argument(flag, action="store_true", help=help)
        else:
            kind = str if default is None else type(default)
            shown = "" if default is None else f" (default {default})"
            p.add_argument(flag, type=kind, default=default, metavar=kind.__name__.upper(), help=help + shown)
    p.add_argument("--checkpoints", nargs="+", metavar="PATH", help="the only model paths that load")
    p.add_argument("--no-dev-mode", dest="dev_mode", action="store_false", help="vllm: without routes for its control")
    p.add_argument("--no-control-port", dest="control", action="store_false", help="tokenspeed: without control port")
    return p


if __name__ == "__main__":
    sys.exit(main())
