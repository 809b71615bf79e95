"""For which paths something can be planned: those that the engine has."""

import difflib
from collections.abc import Collection
from dataclasses import dataclass

from . import checks


@dataclass(frozen=True)
class Routes:
    """The `paths` of an `engine`, which is called so in an error."""

    engine: str
    paths: Collection[str]

    def check(self, path: str) -> None:
        """Raise `ValueError` for what is neither one of them, its first slash optional, nor `*`."""
        checks.text("path", path)
        wanted = "/" + path.lstrip("/")
        if path == "*" or wanted in self.paths:
            return
        near = difflib.get_close_matches(wanted, self.paths)
        guess = f"; did you mean {' or '.join(near)}?" if near else ""
        raise ValueError(f"{self.engine} has no route {wanted}{guess}")
