"""How a process is told to end."""

import os
import signal
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
