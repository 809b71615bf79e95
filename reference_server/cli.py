"""`smg launch`, which is `python -m reference_server`: SMG's flags -> Config -> a running gateway."""

import argparse
import json
import os
import sys
from collections.abc import Sequence
from contextlib import AbstractContextManager, nullcontext
from typing import TYPE_CHECKING, NoReturn

from smg import __version__

from .config import METRICS, Config, ConfigError, open_to_all
from .flags import add_flags, read_flags
from .gateway import Gateway
from .logs import LEVELS, stop_writing, write_to_stderr
from .process import Termination, ready_file

if TYPE_CHECKING:
    from .mocks import Mocks

# Flags of SMG that tune what this gateway does not have: taken as typed, without effect.
_WITHOUT_EFFECT = {
    1: """assignment-mode balance-abs-threshold balance-rel-threshold block-size cache-threshold
        cb-success-threshold cb-window-duration-secs
        eviction-interval-secs job-queue-capacity job-queue-concurrency load-monitor-interval
        log-dir max-concurrent-requests max-idle-secs max-tree-size policy queue-size
        queue-timeout-secs rate-limit-tokens-per-second retry-backoff-multiplier
        retry-initial-backoff-ms retry-jitter-factor retry-max-backoff-ms retry-max-retries
        tokenizer-path upstream-pool-idle-timeout-secs worker-startup-check-interval""",
    0: "disable-load-monitoring disable-retries disable-tokenizer-autoload enable-igw",
}


_OPEN = (
    "anyone who can reach this port can pause engines and load weights into them; "
    "close it with --control-plane-api-keys or --api-key, or with --host 127.0.0.1"
)


def main(argv: Sequence[str] | None = None, prog: str = "smg launch", termination: Termination | None = None) -> int:
    """Run a gateway until SIGTERM or Ctrl-C. Exit 0 then; 1 for a refused value, 2 for a wrong flag.

    A caller that takes the signals itself passes its `termination`.
    """
    arguments = parser(prog).parse_args(argv)
    handler = write_to_stderr(arguments.log_level, as_json=arguments.log_json)
    try:
        with _mocks(arguments) as mocks:
            gateway = Gateway(config_of(arguments), interceptor=mocks.interceptor if mocks else None)
            return _serve(prog, gateway, mocks, arguments.ready_file, termination)
    except ConfigError as problem:
        return _fail(prog, str(problem))
    finally:
        stop_writing(handler)


def parser(prog: str) -> argparse.ArgumentParser:
    """The flags, under SMG's names: those of `Config`, and what concerns the command alone."""
    p = argparse.ArgumentParser(prog=prog, description="Run a reference gateway for the SMG RL control plane.")
    p.add_argument("--version", action="version", version=__version__)
    groups = add_flags(p, Config)
    _add_mock_flags(p.add_argument_group("mock engines"))
    _add_log_flags(groups[METRICS])
    for values, names in _WITHOUT_EFFECT.items():
        for name in names.split():
            p.add_argument(f"--{name}", action="store" if values else "store_true", help=argparse.SUPPRESS)
    return p


def _add_mock_flags(group: "argparse._ArgumentGroup") -> None:
    started = "mock engines to start, as sglang=2,vllm=1 (default none)"
    ready = "file that holds the first line of the output while the gateway answers (default none)"
    group.add_argument("--mock", type=_kinds, default=[], metavar="KIND=N", help=started)
    group.add_argument("--control", action="store_true", help="let anyone control them under /_mock/")
    group.add_argument("--ready-file", metavar="FILE", help=ready)


def _add_log_flags(group: "argparse._ArgumentGroup") -> None:
    least = "least level that is logged (default %(default)s)"
    group.add_argument("--log-level", choices=list(LEVELS), default="info", help=least)
    group.add_argument("--log-json", action="store_true", help="log JSON, an object a line")


def _kinds(text: str) -> list[str]:
    from .mocks import kinds

    return kinds(text)


def _mocks(a: argparse.Namespace) -> "AbstractContextManager[Mocks | None]":
    if not a.mock:
        return nullcontext()
    from .mocks import Mocks

    return Mocks(a.mock, a.control)


def config_of(parsed: argparse.Namespace) -> Config:
    """The settings that the flags name; raises `ConfigError`."""
    try:
        settings = read_flags(Config, parsed)
    except ValueError as problem:
        raise ConfigError(str(problem)) from None
    return Config(**settings)


def _serve(prog: str, gateway: Gateway, mocks: "Mocks | None", path: str | None, given: Termination | None) -> int:
    with nullcontext(given) if given else Termination() as termination:
        try:
            gateway.start()
            engines = mocks.register(gateway) if mocks else {}
            ready = {"event": "ready", "url": gateway.url, "pid": os.getpid(), **engines}
            with ready_file(path, ready):
                print(json.dumps(ready), flush=True)
                if open_to_all(gateway.config):
                    print(f"{prog}: warning: {_OPEN}", file=sys.stderr)
                termination.wait()
        except OSError as problem:
            gateway.stop()
            return _fail(prog, problem.strerror or str(problem))
    gateway.stop(gateway.config.shutdown_grace_period_secs)
    return 0


def _fail(prog: str, problem: str) -> int:
    print(f"{prog}: {problem}", file=sys.stderr)
    return 1


def run() -> NoReturn:
    """The entry of `python -m reference_server`; an optional word `launch` is accepted."""
    argv = sys.argv[1:]
    sys.exit(main(argv[1:] if argv[:1] == ["launch"] else argv))
