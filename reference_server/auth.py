"""Who may use the control plane. Contract, chapter "Auth on `/v1/rl/*`"."""

import hmac
import ipaddress
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from .httpd.messages import Reply, Request
from .httpd.router import Guard

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
    """What was decided about a request: `refusal` keeps it out, None lets it in.

    `reason` is for the audit.
    """

    principal: Principal
    refusal: Reply | None = None
    reason: str | None = None


Audit = Callable[[Request, str, Admission], None]
"""Hears of each request to the control plane, its request id and what was decided."""

_NOBODY = Principal("unauthenticated", "none", "user")


def everybody(request: Request, request_id: str) -> Reply | None:
    """A guard that lets everybody in."""
    return None


def nobody(request: Request, request_id: str) -> Reply | None:
    """A guard that keeps everybody out: what was set up for others does not open this door."""
    return Reply(401, (("www-authenticate", "Bearer"),))


Authenticate = Callable[[str], Principal | None]
"""Tells whose token it is; None for nobody's."""


def key_authenticator(keys: Sequence[ControlKey]) -> Authenticate:
    """Knows the holders of control-plane keys."""

    def authenticate(token: str) -> Principal | None:
        # Every key is compared, so that the time tells nothing about which one was close.
        matching = [key for key in keys if same(token, key.key)]
        return Principal(matching[0].id, "api_key", matching[0].role) if matching else None

    return authenticate


def admins(authenticators: Sequence[Authenticate], audit: Audit | None = None) -> Guard:
    """A guard that lets in whom one of the authenticators knows as an admin."""

    def check(request: Request, request_id: str) -> Reply | None:
        admission = _admission(authenticators, bearer_token(request))
        if audit:
            audit(request, request_id, admission)
        return admission.refusal

    return check


def _admission(authenticators: Sequence[Authenticate], token: str | None) -> Admission:
    if not token:
        text = "Missing or invalid Authorization header"
        return Admission(_NOBODY, Reply.of_text(401, text, _REALM), "Missing token")
    principal = next(filter(None, (authenticate(token) for authenticate in authenticators)), None)
    if principal is None:
        return Admission(_NOBODY, Reply.of_text(401, "Invalid authentication token", _REALM), "Invalid token")
    if not principal.admin:
        text = "Admin role required for control plane access"
        return Admission(principal, Reply.of_text(403, text), text)
    return Admission(principal)


def is_loopback(host: str) -> bool:
    """Whether a host is this machine's own, and so out of reach for others."""
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"


def holders_of(keys: Sequence[str]) -> Guard:
    """A guard that lets in who shows one of several keys."""

    def check(request: Request, request_id: str) -> Reply | None:
        token = bearer_token(request)
        # All are compared, so that the time tells nothing about which one was close.
        good = token is not None and any([same(token, key) for key in keys])  # noqa: C419  # as said above
        return None if good else nobody(request, request_id)

    return check


def bearer_token(request: Request) -> str | None:
    """What stands behind `Bearer` and one space; the scheme's case does not matter."""
    scheme, space, token = (request.header("authorization") or "").partition(" ")
    return token if space and scheme.lower() == "bearer" and token.isascii() else None


def same(token: str, key: str) -> bool:
    """Compare in constant time."""
    return hmac.compare_digest(token.encode(), key.encode())
