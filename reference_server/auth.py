"""Who may use the control plane. Contract, chapter "Auth on `/v1/rl/*`"."""

import hmac
import ipaddress
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from .httpd.messages import Reply, Request

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


@dataclass(frozen=True)
class Admission:
    """What a guard decided: `refusal` keeps the request out, None lets it in.

    `principal` is None where nobody has to be named; `reason` is for the audit.
    """

    refusal: Reply | None = None
    principal: Principal | None = None
    reason: str | None = None


Guard = Callable[[Request], Admission]

_NOBODY = Principal("unauthenticated", "none", "user")


def open_door(request: Request) -> Admission:
    """Everybody may come in."""
    return Admission()


def closed_door(request: Request) -> Admission:
    """Nobody may come in: what was set up for others does not open this door."""
    return Admission(Reply(401, (("www-authenticate", "Bearer"),)))


Authenticate = Callable[[str], Principal | None]
"""Tells whose token it is; None for nobody's."""


def key_authenticator(keys: Sequence[ControlKey]) -> Authenticate:
    """Knows the holders of control-plane keys."""

    def authenticate(token: str) -> Principal | None:
        # Every key is compared, so that the time tells nothing about which one was close.
        matching = [key for key in keys if same(token, key.key)]
        return Principal(matching[0].id, "api_key", matching[0].role) if matching else None

    return authenticate


def control_guard(authenticators: Sequence[Authenticate]) -> Guard:
    """Lets in whom one of the authenticators knows as an admin."""

    def check(request: Request) -> Admission:
        token = bearer_token(request)
        if not token:
            text = "Missing or invalid Authorization header"
            return Admission(Reply.of_text(401, text, _REALM), _NOBODY, "Missing token")
        principal = next(filter(None, (authenticate(token) for authenticate in authenticators)), None)
        if principal is None:
            refusal = Reply.of_text(401, "Invalid authentication token", _REALM)
            return Admission(refusal, _NOBODY, "Invalid token")
        if not principal.admin:
            text = "Admin role required for control plane access"
            return Admission(Reply.of_text(403, text), principal, text)
        return Admission(None, principal)

    return check


def is_loopback(host: str) -> bool:
    """Whether a host is this machine's own, and so out of reach for others."""
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"


def any_of(keys: Sequence[str]) -> Guard:
    """Lets in who shows one of several keys."""

    def check(request: Request) -> Admission:
        token = bearer_token(request)
        good = token is not None and any([same(token, key) for key in keys])  # noqa: C419  # all are compared, in equal time
        return Admission() if good else closed_door(request)

    return check


def bearer_token(request: Request) -> str | None:
    """What stands behind `Bearer` and one space; the scheme's case does not matter."""
    scheme, space, token = (request.header("authorization") or "").partition(" ")
    return token if space and scheme.lower() == "bearer" and token.isascii() else None


def same(token: str, key: str) -> bool:
    """Compare in constant time."""
    return hmac.compare_digest(token.encode(), key.encode())
