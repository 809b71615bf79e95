"""How to free engines that are left paused: commands for a shell, for every one of them, never cut."""

import json
import shlex
from collections.abc import Sequence

from .chunks import pieces
from .engines import ENGINES, PauseRoutes
from .report import Pause, Target, others
from .selectors import Selector, Term

_ROOM = 3000
"""Bytes of a selector in one command."""


def remedy(pause: Pause, routes: PauseRoutes, base_url: str, selector: str | Selector, *, gateway_lost: bool) -> str:
    """Who is stuck, and what frees them.

    Engines that are dead, or were left paused because of their refit, get no resume. When the
    gateway could not be reached their ids may mean nothing to the next one: then the selector
    of the caller, and each engine's own address.
    """
    waiting = others(pause.still_paused, [*pause.unreachable, *pause.quarantined])
    lines = [f"still paused: {', '.join(map(str, pause.still_paused))}"] if pause.still_paused else []
    commands = _commands(pause, waiting, routes, base_url, selector, gateway_lost=gateway_lost)
    if commands and not pause.still_paused:
        lines.append(f"still paused, perhaps: whoever matches {selector}")
    if commands:
        lines += ["free them with:", *(f"  {command}" for command in commands)]
    if pause.unreachable:
        silent = ", ".join(map(str, pause.unreachable))
        lines.append(f"not reachable: {silent}; an engine that is started anew is not paused")
    if pause.quarantined:
        bad = ", ".join(map(str, pause.quarantined))
        lines.append(f"left paused because their refit failed: {bad}; refit them, then resume them")
    return "\n".join(lines)


def _commands(
    pause: Pause,
    waiting: Sequence[Target],
    routes: PauseRoutes,
    base_url: str,
    selector: str | Selector,
    *,
    gateway_lost: bool,
) -> list[str]:
    gone = [t for t in waiting if t in pause.left]
    known = others(waiting, gone)
    if gateway_lost or not pause.concerned:
        return [_resume(base_url, str(selector), routes), *_direct(waiting, routes)]
    ids = Selector((Term("id", "in", tuple(t.worker_id for t in known)),)) if known else None
    through = [_resume(base_url, part, routes) for part in pieces(ids, _ROOM)] if ids else []
    return [*through, *_direct(gone, routes)]


def _resume(base_url: str, selector: str, routes: PauseRoutes) -> str:
    """The command that resumes who matches, through the gateway."""
    kind = _kind(routes)
    if kind is None:
        body = [] if routes.resume_body is None else [json.dumps(routes.resume_body)]
        return shlex.join(["smg", "rl", "fanout", routes.resume, *body, "--smg", base_url, "--selector", selector])
    return shlex.join(["smg", "rl", "resume", "--smg", base_url, *kind, "--selector", selector])


def _direct(targets: Sequence[Target], routes: PauseRoutes) -> list[str]:
    """The commands that resume engines at their own addresses."""
    kind = _kind(routes)
    asked = dict.fromkeys(target.address for target in targets if target.url)
    if kind is None:
        return [shlex.join(["curl", "-X", "POST", f"{url}/{routes.resume}", *_curl_body(routes)]) for url in asked]
    return [shlex.join(["smg", "rl", "resume", *kind, "--engine-url", url]) for url in asked]


def _curl_body(routes: PauseRoutes) -> list[str]:
    if routes.resume_body is None:
        return []
    return ["-H", "Content-Type: application/json", "-d", json.dumps(routes.resume_body)]


def _kind(routes: PauseRoutes) -> list[str] | None:
    """The flag that names these routes; nothing for the default ones, None when no flag does."""
    kind = next((name for name, facts in ENGINES.items() if facts.pause == routes), None)
    return None if kind is None else [] if kind == next(iter(ENGINES)) else ["--engine", kind]
