"""Which threads are left."""

import threading


def assert_no_thread_is_left() -> None:
    """A connection's thread may still be on its last steps."""
    for thread in threading.enumerate():
        if thread.name.startswith(("listen-", "connection-", "engine-")):
            thread.join(10)
            assert not thread.is_alive(), thread
