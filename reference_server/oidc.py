"""Control-plane tokens of an identity provider: JWTs checked against its published keys.

Contract, chapter "Auth on `/v1/rl/*`". The cryptography is PyJWT's (`pip install
smg[jwt]`). Whatever cannot be checked is refused: no keys, no entrance.
"""

import importlib.util
import json
import threading
import time
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from urllib.parse import urlsplit

from .auth import Principal, is_loopback
from .flags import about, documented, setting

# By key type and curve. Nothing else is accepted: no HMAC, no `none`.
_ALGORITHMS_OF: Mapping[tuple[object, object], tuple[str, ...]] = {
    ("RSA", None): ("RS256", "RS384", "RS512"),
    ("EC", "P-256"): ("ES256",),
    ("EC", "P-384"): ("ES384",),
}
REFETCH_SECONDS = 60.0
"""The least time between two fetches of the provider's keys."""

_Key = Mapping[str, object]

Fetch = Callable[[str], bytes | None]
"""GET a URL; None for anything but a 2xx."""


def available() -> bool:
    """Whether PyJWT and its cryptography are installed."""
    return all(importlib.util.find_spec(name) for name in ("jwt", "cryptography"))


def _pairs(texts: Iterable[str]) -> dict[str, str]:
    return {theirs: ours for theirs, _, ours in (text.rpartition("=") for text in texts)}


@documented
@dataclass(frozen=True)
class JwtPolicy:
    """Whose tokens are good: `JwtPolicy("https://idp.example", "smg", roles={"ops": "admin"})`."""

    issuer: str = field(
        metadata=about(
            "URL of the identity provider whose tokens are accepted; needs smg[jwt]",
            flags=["jwt-issuer"],
            launch="",
            metavar="URL",
        )
    )
    audience: str = field(
        metadata=about(
            "audience that the tokens must be made out for", flags=["jwt-audience"], launch="", metavar="TEXT"
        )
    )
    jwks_uri: str | None = setting(
        None,
        "URL of the provider's keys, none for what its discovery document says",
        flags=["jwt-jwks-uri"],
        metavar="URL",
    )
    roles: Mapping[str, str] = field(
        default_factory=dict,
        metadata=about(
            "what roles of the provider are here, admin or user; without any they have these names",
            flags=["jwt-role-mapping"],
            nargs="*",
            launch=(),
            read=_pairs,
            metavar="THEIRS=OURS",
        ),
    )

    def role(self, claims: Mapping[str, object]) -> str:
        """The gateway's role for the claims of a good token."""
        given = claims.get("roles")
        names = [given] if isinstance(given, str) else given if isinstance(given, list) else []
        mapped = [self.roles.get(name) if self.roles else name for name in names if isinstance(name, str)]
        return "admin" if "admin" in mapped else "user"


class JwtAuthenticator:
    """Knows the holders of good tokens. Keys are fetched when first needed, and again for
    an unknown key id, at most once in `REFETCH_SECONDS`."""

    def __init__(self, policy: JwtPolicy, fetch: Fetch, clock: Callable[[], float] = time.monotonic) -> None:
        self._policy, self._fetch, self._clock = policy, fetch, clock
        self._lock = threading.Lock()
        self._keys: dict[str, _Key] = {}
        self._fetched = float("-inf")

    def __call__(self, token: str) -> Principal | None:
        import jwt

        try:
            header = jwt.get_unverified_header(token)
            algorithm = header.get("alg")
            key = self._key(header.get("kid"))
            if key is None or not _fits(key, algorithm):
                return None
            claims = jwt.decode(
                token,
                jwt.PyJWK(dict(key), algorithm),
                algorithms=[str(algorithm)],
                issuer=self._policy.issuer,
                audience=self._policy.audience,
                options={"require": ["exp", "iss", "aud"]},
            )
        except (jwt.PyJWTError, ValueError, TypeError, KeyError):
            return None
        return Principal(str(claims.get("sub", "unknown")), "jwt", self._policy.role(claims))

    def _key(self, kid: object) -> _Key | None:
        if not isinstance(kid, str):
            return None
        with self._lock:
            if kid not in self._keys and self._clock() - self._fetched >= REFETCH_SECONDS:
                self._fetched = self._clock()
                self._keys = self._fetch_keys() or self._keys
            return self._keys.get(kid)

    def _fetch_keys(self) -> dict[str, _Key]:
        uri = self._policy.jwks_uri or self._discovered()
        listed = _object(self._fetch(uri)).get("keys") if uri else None
        entries = [entry for entry in listed if isinstance(entry, dict)] if isinstance(listed, list) else []
        return {e["kid"]: e for e in entries if isinstance(e.get("kid"), str) and e.get("use", "sig") == "sig"}

    def _discovered(self) -> str | None:
        document = _object(self._fetch(f"{self._policy.issuer.rstrip('/')}/.well-known/openid-configuration"))
        uri = document.get("jwks_uri")
        return uri if document.get("issuer") == self._policy.issuer and isinstance(uri, str) and secure(uri) else None


def secure(url: str) -> bool:
    """Whether keys from this URL can be believed: https, or this very machine."""
    try:
        parts = urlsplit(url)
        host = parts.hostname or ""
    except ValueError:
        return False
    return bool(host) and (parts.scheme == "https" or (parts.scheme == "http" and is_loopback(host)))


def _fits(key: _Key, algorithm: object) -> bool:
    """Whether a token may claim this algorithm: one of ours, and the key's, not the token's word."""
    kind = (key.get("kty"), key.get("crv") if key.get("kty") == "EC" else None)
    return algorithm in _ALGORITHMS_OF.get(kind, ()) and key.get("alg", algorithm) == algorithm


def _object(body: bytes | None) -> Mapping[str, object]:
    try:
        value = json.loads(body or b"")
    except (ValueError, RecursionError):
        return {}
    return value if isinstance(value, dict) else {}
