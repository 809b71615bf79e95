"""The `smg` command: finds the part that does the work and loads that part only."""

import importlib
import sys
from collections.abc import Sequence

from . import __version__

# Word -> module, function and what the word does. Imported only when asked for:
# `smg rl` must not pay for the gateway, nor the gateway for the client.
_COMMANDS = {
    "launch": ("reference_server.cli", "main", "run a reference gateway"),
    "serve": ("smg.serve", "main", "start engines and a gateway together"),
    "engine": ("reference_server.engines.__main__", "main", "run a mock engine"),
    "rl": ("smg.rl.cli", "main", "drive the control plane of a gateway"),
    "demo": ("smg.demo", "main", "pause, refit and resume a small fleet, here and now"),
}


def main(argv: Sequence[str] | None = None) -> int:
    """Run `smg WORD …`. Exit 2 for a word that does not exist."""
    words = list(sys.argv[1:] if argv is None else argv)
    if words[:1] == ["--version"]:
        print(f"smg {__version__}")
        return 0
    if not words or words[0] not in _COMMANDS:
        asked = words[:1] in ([], ["-h"], ["--help"])
        print(
            _usage() if asked else f"smg: no command {words[0]!r}\n{_usage()}", file=sys.stdout if asked else sys.stderr
        )
        return 0 if asked else 2
    module, function, _ = _COMMANDS[words[0]]
    code: int = getattr(importlib.import_module(module), function)(words[1:])
    return code


def _usage() -> str:
    lines = [f"  smg {word:<8} {what}" for word, (_, _, what) in _COMMANDS.items()]
    return "\n".join(["usage: smg COMMAND [options]      (smg COMMAND --help for its options)", *lines])
