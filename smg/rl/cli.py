"""`smg rl …`: the control plane from a shell, for people at a terminal and for scripts."""

import argparse
import json
import os
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from . import display
from .client import RL
from .engines import ENGINES, PAUSED, RUNNING
from .errors import FanoutError, RlConnectionError, RlError, RlTimeoutError, WeightVersionError
from .pause import paused
from .results import CallResult, FanoutResult, Worker
from .selectors import SelectorError

DONE, FAILED, USAGE, NO_ANSWER = 0, 1, 2, 3

_ROUTES = {name: facts.pause for name, facts in ENGINES.items() if facts.pause}
_EPILOG = (
    "The gateway is --smg or SMG_URL, the key is read from SMG_ADMIN_TOKEN. "
    "Exit code: 0 done, 1 some failed, do not run or differ, 2 usage, 3 no answer."
)


def main(argv: Sequence[str] | None = None) -> int:
    """Run `smg rl COMMAND …`; the exit code is DONE, FAILED, USAGE or NO_ANSWER."""
    a = parser().parse_args(argv)
    try:
        rl = RL(a.smg, api_key=os.environ.get("SMG_ADMIN_TOKEN"), timeout=a.timeout)
        with display.elapsed(a.command):
            value = _COMMANDS[a.command](rl, a)
    except SelectorError as problem:
        return _say(f"{problem}\n{problem.caret}", USAGE)
    except ValueError as problem:
        return _say(str(problem), USAGE)
    except FanoutError as problem:
        _show(problem.result, a.json)
        return _fail(problem, FAILED)
    except WeightVersionError as problem:
        expected = a.weight_version if a.command == "refit" else a.expect
        print(display.as_json(problem.versions) if a.json else display.versions(problem.versions, expected))
        return _say(str(problem), FAILED)
    except (RlConnectionError, RlTimeoutError) as problem:
        return _fail(problem, NO_ANSWER)
    except RlError as problem:
        return _fail(problem, FAILED)
    except KeyboardInterrupt:
        return _say("interrupted", 130)
    _show(value, a.json)
    return DONE if _good(value) else FAILED


def parser() -> argparse.ArgumentParser:
    """The flags of every command."""
    top = argparse.ArgumentParser(prog="smg rl", description="Drive the RL control plane of a gateway.", epilog=_EPILOG)
    commands = top.add_subparsers(dest="command", required=True, metavar="COMMAND")
    common = argparse.ArgumentParser(add_help=False)
    common.add_argument("--smg", default=os.environ.get("SMG_URL", "http://127.0.0.1:30000"), metavar="URL")
    common.add_argument("--timeout", type=float, default=600.0, metavar="S", help="seconds for each request (600)")
    common.add_argument("--json", action="store_true", help="print JSON")
    some = argparse.ArgumentParser(add_help=False)
    some.add_argument("--selector", required=True, metavar="SELECTOR", help="such as engine=sglang")
    routes = argparse.ArgumentParser(add_help=False)
    routes.add_argument("--engine", choices=list(_ROUTES), default="sglang", help="whose routes (default sglang)")
    mode = argparse.ArgumentParser(add_help=False)
    mode.add_argument("--mode", help="of the pause, such as abort")
    what = argparse.ArgumentParser(add_help=False)
    what.add_argument("path", help="the engine's own route, such as flush_cache")
    what.add_argument("body", nargs="?", type=_json, help="JSON to send")
    what.add_argument("--method", default="POST")
    what.add_argument("--param", action="append", default=[], type=_pair, metavar="KEY=VALUE", help="of the query")

    def add(name: str, help: str, *parents: argparse.ArgumentParser) -> argparse.ArgumentParser:
        return commands.add_parser(name, help=help, description=help, parents=[common, *parents])

    add("workers", "list the engines the gateway manages")
    add("worker", "show one of them").add_argument("id")
    add("match", "who would be hit, without hitting anyone", some)
    one = add("call", "call one engine", what)
    one.add_argument("--worker", required=True, metavar="ID")
    add("fanout", "call every engine that matches", what, some)
    add("pause", "pause every engine that matches", some, routes, mode)
    resume = add("resume", "resume every engine that matches: the remedy after a killed trainer", routes)
    whom = resume.add_mutually_exclusive_group(required=True)
    whom.add_argument("--selector", metavar="SELECTOR", help="such as engine=sglang")
    whom.add_argument(
        "--engine-url", metavar="URL", help="one engine at its own address, without a gateway (key in SMG_ENGINE_KEY)"
    )
    add("status", "whether each engine runs, as it says itself", some)
    refit = add("refit", "pause, load a checkpoint from disk, resume, check", some, mode)
    refit.add_argument("--model-path", required=True, metavar="PATH")
    refit.add_argument("--weight-version", required=True, metavar="V")
    refit.add_argument("--guard", action="store_true", help="resume even if this process is killed")
    add("versions", "the weight version each engine reports", some).add_argument("--expect", metavar="V")
    return top


def _json(text: str) -> object:
    try:
        return json.loads(text)
    except ValueError as problem:
        raise argparse.ArgumentTypeError(f"not JSON: {problem}") from None


def _pair(text: str) -> tuple[str, str]:
    key, equals, value = text.partition("=")
    if not equals:
        raise argparse.ArgumentTypeError(f"{text!r} is not KEY=VALUE")
    return key, value


def _pause(rl: RL, a: argparse.Namespace) -> FanoutResult:
    routes = _ROUTES[a.engine]
    body, params = routes.pause_call(a.mode)
    return rl.fanout(routes.pause, body, selector=a.selector, params=params)


def _resume(rl: RL, a: argparse.Namespace) -> "FanoutResult | Freed":
    if a.engine_url is not None:
        from .direct import resume

        return Freed(*resume(a.engine_url, a.engine, os.environ.get("SMG_ENGINE_KEY"), a.timeout))
    routes = _ROUTES[a.engine]
    return rl.fanout(routes.resume, routes.resume_body, selector=a.selector)


def _refit(rl: RL, a: argparse.Namespace) -> FanoutResult:
    body = {"model_path": a.model_path, "weight_version": a.weight_version, "flush_cache": True}
    with paused(rl, a.selector, mode=a.mode, resume_retries=3, sigterm=True, guard=a.guard):
        result = rl.fanout("update_weights_from_disk", body, selector=a.selector)
    rl.expect_weight_version(a.selector, a.weight_version)
    return result


def _versions(rl: RL, a: argparse.Namespace) -> Mapping[str, str | None]:
    if a.expect is not None:
        rl.expect_weight_version(a.selector, a.expect)
    return rl.weight_versions(a.selector)


def _status(rl: RL, a: argparse.Namespace) -> "Statuses":
    return Statuses(rl.status(a.selector), {worker.id: worker.url for worker in rl.match(a.selector)})


@dataclass(frozen=True)
class Statuses:
    """The status of each engine, and the URL of each."""

    statuses: Mapping[str, str]
    urls: Mapping[str, str]


@dataclass(frozen=True)
class Freed:
    """What an engine answered to a resume, and whether it runs."""

    answer: CallResult
    status: str


_Value = list[Worker] | Worker | CallResult | FanoutResult | Mapping[str, str | None] | Statuses | Freed

_COMMANDS: Mapping[str, Callable[[RL, argparse.Namespace], _Value]] = {
    "workers": lambda rl, a: rl.workers(),
    "worker": lambda rl, a: rl.worker(a.id),
    "match": lambda rl, a: rl.match(a.selector),
    "call": lambda rl, a: rl.call(a.worker, a.path, a.body, method=a.method, params=a.param),
    "fanout": lambda rl, a: rl.fanout(a.path, a.body, selector=a.selector, method=a.method, params=a.param),
    "pause": _pause,
    "resume": _resume,
    "status": _status,
    "refit": _refit,
    "versions": _versions,
}


def _good(value: _Value) -> bool:
    if isinstance(value, Freed):
        return value.answer.ok and value.status != PAUSED
    if isinstance(value, Statuses):
        return set(value.statuses.values()) <= {RUNNING}
    return not isinstance(value, CallResult) or value.ok


def _show(value: _Value, as_json: bool) -> None:
    if isinstance(value, Statuses):
        print(display.as_json(value.statuses) if as_json else display.statuses(value.statuses, value.urls))
    elif isinstance(value, Freed):
        said = {"status": value.status, "http_status": value.answer.status, "body": value.answer.body}
        print(display.as_json(said) if as_json else f"{display.for_people(value.answer)}\nstatus: {value.status}")
    else:
        print(display.as_json(value) if as_json else display.for_people(value))


def _fail(problem: RlError, code: int) -> int:
    """Say what went wrong, and who is left paused, with what frees them."""
    notes: list[str] = getattr(problem, "__notes__", [])
    stuck = [f"still paused: {', '.join(map(str, problem.still_paused))}"] if problem.still_paused else []
    return _say("\n".join([str(problem), *(notes or stuck)]), code)


def _say(problem: str, code: int) -> int:
    print(f"smg rl: {problem}", file=sys.stderr)
    return code
