"""`python -m reference_server.engines KIND`: one mock engine in a process of its own."""

import argparse
import json
import os
import sys
from collections.abc import Sequence

from ..signals import Termination
from .engine import DIALECTS, MockEngine


def main(argv: Sequence[str] | None = None) -> int:
    """Run until SIGTERM or Ctrl-C; the first line on standard output says where."""
    parser = argparse.ArgumentParser(prog="mock engine", description="Run one mock engine.")
    parser.add_argument("kind", choices=list(DIALECTS))
    parser.add_argument("--host", choices=["127.0.0.1"], default="127.0.0.1", help="the loopback only")
    parser.add_argument("--port", type=int, default=0, help="0 for a free one")
    parser.add_argument("--model-path", default=None, metavar="PATH")
    parser.add_argument("--weight-version", default="default", metavar="TEXT")
    arguments = parser.parse_args(argv)
    engine = MockEngine(
        arguments.kind, port=arguments.port, model_path=arguments.model_path, weight_version=arguments.weight_version
    )
    with Termination() as termination:
        try:
            engine.start()
        except OSError as problem:
            print(f"mock engine: {problem.strerror or problem}", file=sys.stderr)
            return 1
        print(json.dumps({"event": "ready", "url": engine.url, "pid": os.getpid()}), flush=True)
        termination.wait()
    engine.stop()
    return 0


if __name__ == "__main__":
    sys.exit(main())
