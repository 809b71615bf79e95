"""How a process tells that it is ready: by a file that is there, and whole, as long as it is."""

import contextlib
import json
import os
from collections.abc import Iterator, Mapping


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
