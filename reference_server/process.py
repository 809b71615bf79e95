"""How a process tells that it is ready, and how it is told to end."""

import contextlib
import json
import os
import signal
from collections.abc import Iterator, Mapping
from types import TracebackType

_SIGNALS = (signal.SIGTERM, signal.SIGINT)


class Termination:
    """Within its `with`, SIGTERM and SIGINT are the wish to end; `wait` waits for one.

    The system may hand a signal to any thread. Only a byte on a file descriptor is sure
    to wake the one that waits. `wake` does the same from any thread.
    """

    def __enter__(self) -> "Termination":
        self._reading, self._writing = os.pipe()
        os.set_blocking(self._writing, False)
        self._handlers = [signal.signal(number, lambda number, frame: None) for number in _SIGNALS]
        self._earlier = signal.set_wakeup_fd(self._writing)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        signal.set_wakeup_fd(self._earlier)
        for number, handler in zip(_SIGNALS, self._handlers, strict=True):
            signal.signal(number, handler)
        os.close(self._reading)
        os.close(self._writing)

    def wait(self) -> None:
        os.read(self._reading, 1)

    def wake(self) -> None:
        os.write(self._writing, b"\0")


@contextlib.contextmanager
def ready_file(path: str | None, ready: Mapping[str, object]) -> Iterator[None]:
    """Within the block the file holds `ready` as JSON; raises `OSError` naming it. None: no file."""
    if path is None:
        yield
        return
    # Whoever waits for the file must never read half of it.
    part = f"{path}.{os.getpid()}"
    try:
        with open(part, "w", encoding="utf-8") as file:
            file.write(json.dumps(ready) + "\n")
        os.replace(part, path)
    except OSError as problem:
        _remove(part)
        raise OSError(problem.errno, f"cannot write {path}: {problem.strerror}") from None
    try:
        yield
    finally:
        _remove(path)


def _remove(path: str) -> None:
    with contextlib.suppress(OSError):
        os.unlink(path)
