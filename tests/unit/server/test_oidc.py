"""Tokens of an identity provider: which are good, and what keeps the door closed."""

import base64
import json
import time
from collections.abc import Callable, Mapping
from typing import Any

import jwt
import pytest
from cryptography.hazmat.primitives.asymmetric import ec, rsa
from jwt.algorithms import ECAlgorithm, RSAAlgorithm

from reference_server.oidc import REFETCH_SECONDS, JwtAuthenticator, JwtPolicy, secure

ISSUER, AUDIENCE, JWKS = "https://idp.example", "smg", "https://idp.example/keys"
RSA_KEY = rsa.generate_private_key(public_exponent=65537, key_size=2048)
OTHER_RSA_KEY = rsa.generate_private_key(public_exponent=65537, key_size=2048)
EC256_KEY, EC384_KEY = ec.generate_private_key(ec.SECP256R1()), ec.generate_private_key(ec.SECP384R1())
SECRET = "a shared secret that nobody should accept"

POLICY = JwtPolicy(ISSUER, AUDIENCE, JWKS)


def rsa_entry(kid: str, key: rsa.RSAPrivateKey = RSA_KEY, **more: str) -> dict[str, Any]:
    return {**RSAAlgorithm.to_jwk(key.public_key(), as_dict=True), "kid": kid, **more}


def ec_entry(kid: str, key: ec.EllipticCurvePrivateKey) -> dict[str, Any]:
    return {**ECAlgorithm.to_jwk(key.public_key(), as_dict=True), "kid": kid}


KEYS = {
    "keys": [rsa_entry("r"), rsa_entry("r512", alg="RS512"), ec_entry("e256", EC256_KEY), ec_entry("e384", EC384_KEY)]
}


class Provider:
    """Documents by URL, and a count of how often they were asked for."""

    def __init__(self, documents: Mapping[str, object]) -> None:
        self.documents, self.asked = dict(documents), list[str]()

    def __call__(self, url: str) -> bytes | None:
        self.asked.append(url)
        return json.dumps(self.documents[url]).encode() if url in self.documents else None


def token(algorithm: str = "RS256", kid: str | None = "r", key: Any = RSA_KEY, **claims: object) -> str:
    now = int(time.time())
    good = {"iss": ISSUER, "aud": AUDIENCE, "exp": now + 60, "sub": "ops", "roles": ["admin"]}
    given = {name: value for name, value in {**good, **claims}.items() if value is not None}
    return jwt.encode(given, key, algorithm, headers={"kid": kid} if kid else {})


def role(sent: str, policy: JwtPolicy = POLICY, provider: Provider | None = None) -> str | None:
    principal = JwtAuthenticator(policy, provider or Provider({JWKS: KEYS}))(sent)
    return principal.role if principal else None


@pytest.mark.parametrize(
    ("algorithm", "kid", "key"),
    [
        ("RS256", "r", RSA_KEY),
        ("RS384", "r", RSA_KEY),
        ("RS512", "r512", RSA_KEY),
        ("ES256", "e256", EC256_KEY),
        ("ES384", "e384", EC384_KEY),
    ],
)
def test_a_token_of_each_algorithm_is_good(algorithm: str, kid: str, key: Any) -> None:
    principal = JwtAuthenticator(POLICY, Provider({JWKS: KEYS}))(token(algorithm, kid, key))
    assert principal is not None
    assert (principal.id, principal.method, principal.role) == ("ops", "jwt", "admin")


def forged(header: Mapping[str, object]) -> str:
    parts = token().split(".")
    return ".".join([base64.urlsafe_b64encode(json.dumps(header).encode()).decode().rstrip("="), *parts[1:]])


BAD: dict[str, Callable[[], str]] = {
    "another key": lambda: token(key=OTHER_RSA_KEY),
    "an unknown key id": lambda: token(kid="x"),
    "no key id": lambda: token(kid=None),
    "another issuer": lambda: token(iss="https://evil.example"),
    "another audience": lambda: token(aud="other"),
    "no audience": lambda: token(aud=None),
    "expired": lambda: token(exp=int(time.time()) - 60),
    "no expiry": lambda: token(exp=None),
    "not yet good": lambda: token(nbf=int(time.time()) + 60),
    "an algorithm that is not the key's": lambda: token("RS256", "r512"),
    "a curve that is not the key's": lambda: token("ES256", "e384", EC256_KEY),
    "a shared secret": lambda: token("HS256", "r", SECRET),
    "no signature": lambda: forged({"alg": "none", "kid": "r"}),
    "an algorithm that does not exist": lambda: forged({"alg": "XX1", "kid": "r"}),
    "a key id that is no text": lambda: forged({"alg": "RS256", "kid": ["r"]}),
    "no token": lambda: "abc",
    "two dots": lambda: "..",
}


@pytest.mark.parametrize("what", BAD)
def test_a_bad_token_is_nobody_s(what: str) -> None:
    assert role(BAD[what]()) is None


@pytest.mark.parametrize(
    ("roles", "mapping", "expected"),
    [
        (["admin"], {}, "admin"),
        (["user", "admin"], {}, "admin"),
        ("admin", {}, "admin"),
        (["Ops"], {}, "user"),
        (None, {}, "user"),
        ([7], {}, "user"),
        (["Ops"], {"Ops": "admin"}, "admin"),
        (["Dev"], {"Ops": "admin", "Dev": "user"}, "user"),
        (["admin"], {"Ops": "admin"}, "user"),
    ],
)
def test_the_role_is_the_claim_s_or_what_it_is_mapped_to(roles: object, mapping: dict[str, str], expected: str) -> None:
    assert role(token(roles=roles), JwtPolicy(ISSUER, AUDIENCE, JWKS, mapping)) == expected


def test_keys_are_fetched_once_and_again_for_an_unknown_id_at_most_once_a_minute() -> None:
    now = [0.0]
    provider = Provider({JWKS: {"keys": []}})
    authenticate = JwtAuthenticator(POLICY, provider, lambda: now[0])
    assert authenticate(token()) is None
    provider.documents[JWKS] = KEYS
    now[0] = REFETCH_SECONDS - 1
    assert authenticate(token()) is None
    now[0] = REFETCH_SECONDS
    assert authenticate(token()) is not None
    assert authenticate(token()) is not None
    assert len(provider.asked) == 2
    provider.documents.clear()
    now[0] += REFETCH_SECONDS
    assert authenticate(token(kid="x")) is None
    assert authenticate(token()) is not None, "keys that are known stay known while the provider is away"


def test_the_keys_address_is_discovered_from_the_issuer() -> None:
    policy = JwtPolicy(ISSUER, AUDIENCE)
    document = f"{ISSUER}/.well-known/openid-configuration"
    good: dict[str, object] = {"issuer": ISSUER, "jwks_uri": JWKS}
    assert role(token(), policy, Provider({document: good, JWKS: KEYS})) == "admin"
    for odd in ({"issuer": "https://evil.example"}, {"jwks_uri": "http://idp.example/keys"}, {"jwks_uri": 7}):
        documents = {document: {**good, **odd}, JWKS: KEYS, "http://idp.example/keys": KEYS}
        assert role(token(), policy, Provider(documents)) is None


@pytest.mark.parametrize("keys", [None, [], {"keys": 1}, {"keys": [1, {}, {"kid": "r"}, {"kid": "r", "kty": "RSA"}]}])
def test_keys_that_make_no_sense_let_nobody_in(keys: object) -> None:
    assert role(token(), POLICY, Provider({JWKS: keys})) is None


def test_a_key_for_encryption_is_no_key_for_signatures() -> None:
    assert role(token(), POLICY, Provider({JWKS: {"keys": [rsa_entry("r", use="enc")]}})) is None


@pytest.mark.parametrize(
    ("url", "good"),
    [
        ("https://idp.example", True),
        ("http://127.0.0.1:8080/keys", True),
        ("http://[::1]/keys", True),
        ("http://localhost", True),
        ("http://idp.example", False),
        ("http://127.0.0.1.idp.example", False),
        ("ftp://127.0.0.1", False),
        ("https://", False),
        ("", False),
    ],
)
def test_keys_come_over_https_or_from_this_machine(url: str, good: bool) -> None:
    assert secure(url) is good
