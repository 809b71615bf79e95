"""The same work in several threads, to its end."""

import contextvars
import threading
from collections.abc import Callable


def in_parallel(work: Callable[[], None], count: int) -> None:
    """Run `work` in `count` threads at once and wait for all; the first exception is raised."""
    errors: list[BaseException] = []

    def run(context: contextvars.Context) -> None:
        try:
            context.run(work)
        except BaseException as error:
            errors.append(error)

    threads = [
        threading.Thread(target=run, args=(contextvars.copy_context(),), name="rl-part", daemon=True)
        for _ in range(count)
    ]
    started = []
    try:
        for thread in threads:
            thread.start()
            started.append(thread)
    except RuntimeError:  # no more threads, or the interpreter is going down
        run(contextvars.copy_context())
    for thread in started:
        thread.join()
    if errors:
        raise errors[0]
