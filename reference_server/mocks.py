"""The mock engines that `smg launch --mock` starts beside its gateway."""

import argparse
from collections.abc import Sequence
from contextlib import ExitStack
from types import TracebackType

from .engines.engine import MockEngine
from .engines.kinds import KINDS
from .engines.remote import Remotes
from .gateway import Gateway
from .httpd.router import Interceptor

_REGISTER_SECONDS = 10.0


def kinds(text: str) -> list[str]:
    """The kind of each engine that `KIND=N,KIND=N` asks for, from a command line."""
    found: list[str] = []
    for item in text.split(","):
        kind, _, count = item.partition("=")
        if kind not in KINDS or not (count or "1").isdecimal():
            raise argparse.ArgumentTypeError(f"{item!r} is not KIND=N with a KIND of {', '.join(KINDS)}")
        found += [kind] * int(count or "1")
    return found


class Mocks:
    """Engines that run within its `with`; `interceptor` is their remote control, None unless wanted."""

    def __init__(self, kinds: Sequence[str], control: bool) -> None:
        self._engines = [MockEngine(kind) for kind in kinds]
        self._stack = ExitStack()
        self.interceptor: Interceptor | None = Remotes([one.remote() for one in self._engines]) if control else None

    def register(self, gateway: Gateway) -> dict[str, object]:
        """Make them known to a gateway that runs, wait for that, and say what there is."""
        tries = [gateway.register(engine.url)[1] for engine in self._engines]
        for tried in tries:
            tried.wait(_REGISTER_SECONDS)
        return {"engines": [{"kind": engine.kind, "url": engine.url} for engine in self._engines]}

    def __enter__(self) -> "Mocks":
        for engine in self._engines:
            self._stack.enter_context(engine)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._stack.close()
