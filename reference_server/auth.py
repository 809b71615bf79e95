"""Who may use the control plane. Contract, chapter "Auth on `/v1/rl/*`"."""

import hmac
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from .wire import Reply, Request

_REALM = (("www-authenticate", 'Bearer realm="control-plane"'),)


@dataclass(frozen=True)
class Principal:
    """Who a request comes from: a name for the audit, and whether it may do everything."""

    id: str
    method: str
    role: str

    @property
    def admin(self) -> bool:
        return self.role == "admin"


@dataclass(frozen=True)
class ControlKey:
    """One `id:name:role:key` of `--control-plane-api-keys`; the key may contain colons."""

    id: str
    name: str
    role: str
    key: str = field(repr=False)

    @classmethod
    def parse(cls, text: str) -> "ControlKey":
        """Raises `ValueError` with a sentence that does not repeat the key."""
        parts = text.split(":", 3)
        if len(parts) != 4:
            raise ValueError("expected id:name:role:key")
        role = parts[2].lower()
        if role not in ("admin", "user"):
            raise ValueError(f"the role of key `{parts[0]}` is `{parts[2]}`, expected admin or user")
        return cls(parts[0], parts[1], role, parts[3])


Guard = Callable[[Request], Reply | None]
"""Gives the answer that keeps a request out, or None to let it in."""


def open_door(request: Request) -> Reply | None:
    """Everybody may come in."""
    return None


def api_key_guard(api_key: str) -> Guard:
    """Lets in who shows the gateway's own key."""

    def check(request: Request) -> Reply | None:
        token = bearer_token(request)
        if token is not None and same(token, api_key):
            return None
        return Reply(401, (("www-authenticate", "Bearer"),))

    return check


def control_guard(keys: Sequence[ControlKey]) -> Guard:
    """Lets in who shows a control-plane key with the role `admin`."""

    def check(request: Request) -> Reply | None:
        token = bearer_token(request)
        if not token:
            return Reply.of_text(401, "Missing or invalid Authorization header", _REALM)
        # Every key is compared, so that the time tells nothing about which one was close.
        matching = [key for key in keys if same(token, key.key)]
        if not matching:
            return Reply.of_text(401, "Invalid authentication token", _REALM)
        if not any(key.role == "admin" for key in matching):
            return Reply.of_text(403, "Admin role required for control plane access")
        return None

    return check


def bearer_token(request: Request) -> str | None:
    """What stands behind `Bearer` and one space; the scheme's case does not matter."""
    scheme, space, token = (request.header("authorization") or "").partition(" ")
    return token if space and scheme.lower() == "bearer" else None


def same(token: str, key: str) -> bool:
    """Compare in constant time. Header values are Latin-1, keys are text."""
    return hmac.compare_digest(token.encode("latin-1"), key.encode())
