"""Who gets in at a running gateway: tokens, tenant keys, what is set up wrongly."""

import logging
import time
from collections.abc import Iterator

import jwt
import pytest
from cryptography.hazmat.primitives.asymmetric import rsa
from jwt.algorithms import RSAAlgorithm

from reference_server import ConfigError, Gateway
from reference_server.auth import ControlKey
from reference_server.httpd.messages import Reply, Request
from reference_server.httpd.server import HttpServer
from reference_server.oidc import JwtPolicy
from smg.rl import RL, RlError

from ..support.asking import ask

KEY = rsa.generate_private_key(public_exponent=65537, key_size=2048)
ROWS = "/v1/rl/workers"


@pytest.fixture
def issuer() -> Iterator[str]:
    """An identity provider on this machine that publishes KEY."""

    def answer(request: Request) -> Reply:
        documents: dict[str, object] = {
            "/.well-known/openid-configuration": {"issuer": server.url, "jwks_uri": f"{server.url}/keys"},
            "/keys": {"keys": [{**RSAAlgorithm.to_jwk(KEY.public_key(), as_dict=True), "kid": "k"}]},
        }
        return Reply.of_json(200, documents[request.path])

    server = HttpServer(answer)
    server.start()
    yield server.url
    server.stop()


def token(issuer: str, role: str) -> str:
    claims = {"iss": issuer, "aud": "smg", "exp": int(time.time()) + 60, "sub": "trainer", "roles": [role]}
    return jwt.encode(claims, KEY, "RS256", headers={"kid": "k"})


def status(gateway: Gateway, key: str | None, path: str = ROWS, method: str = "GET") -> int:
    headers = {"authorization": f"Bearer {key}"} if key else {}
    return ask(gateway.url, method, path, {"text": "a"} if method == "POST" else None, headers).status


def test_an_admin_s_token_opens_the_control_plane(issuer: str, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO)
    policy = JwtPolicy(issuer, "smg")
    with Gateway(enable_rl=True, jwt=policy, control_plane_audit_enabled=True) as gateway:
        admin = token(issuer, "admin")
        assert RL(gateway.url, api_key=admin).workers() == []
        assert [status(gateway, token(issuer, "user")), status(gateway, "x.y.z"), status(gateway, None)] == [
            403,
            401,
            401,
        ]
    audit = [record.getMessage() for record in caplog.records if record.name == "smg.audit"]
    assert [line.split(" path=")[0] for line in audit] == [
        "control_plane_audit principal=trainer auth_method=jwt role=admin method=GET",
        "control_plane_audit principal=trainer auth_method=jwt role=user method=GET",
        "control_plane_audit principal=unauthenticated auth_method=none role=user method=GET",
        "control_plane_audit principal=unauthenticated auth_method=none role=user method=GET",
    ]
    assert admin not in caplog.text


def test_a_key_and_a_token_open_the_same_door(issuer: str) -> None:
    keys = [ControlKey.parse("k:ops:admin:s3cret")]
    with Gateway(enable_rl=True, jwt=JwtPolicy(issuer, "smg"), control_plane_api_keys=keys) as gateway:
        assert [status(gateway, key) for key in ("s3cret", token(issuer, "admin"), "other")] == [200, 200, 401]


def test_a_provider_that_is_away_keeps_the_control_plane_closed() -> None:
    with Gateway(enable_rl=True, jwt=JwtPolicy("http://127.0.0.1:1", "smg")) as gateway:
        assert status(gateway, token("http://127.0.0.1:1", "admin")) == 401


@pytest.mark.parametrize(
    ("policy", "says"),
    [
        (JwtPolicy("http://idp.example", "smg"), "jwt_issuer='http://idp.example'.*https"),
        (JwtPolicy("https://idp.example", ""), "jwt_audience"),
        (JwtPolicy("https://idp.example", "smg", "http://idp.example/keys"), "jwt_jwks_uri.*https"),
        (JwtPolicy("https://idp.example", "smg", None, {"Ops": "root"}), "jwt_role_mapping='root'"),
    ],
)
def test_a_set_up_that_cannot_be_trusted_does_not_start(policy: JwtPolicy, says: str) -> None:
    with pytest.raises(ConfigError, match=says):
        Gateway(enable_rl=True, jwt=policy)


def test_without_pyjwt_a_gateway_that_wants_tokens_does_not_start(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("reference_server.config.available", lambda: False)
    with pytest.raises(ConfigError, match=r"pip install 'smg\[jwt\]'"):
        Gateway(enable_rl=True, jwt=JwtPolicy("https://idp.example", "smg"))


def test_tenant_keys_open_inference_and_never_the_control_plane() -> None:
    with Gateway(enable_rl=True, tenant_api_keys=["tenant"]) as gateway:
        assert [status(gateway, key) for key in ("tenant", None)] == [401, 401]
        assert [status(gateway, key, "/generate", "POST") for key in ("tenant", "other", None)] == [404, 401, 401]
    with Gateway(enable_rl=True, tenant_api_keys=["tenant"], api_key="own") as gateway:
        assert [status(gateway, key) for key in ("tenant", "own")] == [401, 200]
        assert [status(gateway, key, "/generate", "POST") for key in ("tenant", "own")] == [404, 404]


def test_the_client_says_what_a_refused_caller_needs() -> None:
    keys = [ControlKey.parse("k:ops:user:s3cret")]
    with Gateway(enable_rl=True, control_plane_api_keys=keys) as gateway:
        with pytest.raises(RlError, match="pass api_key=") as missing:
            RL(gateway.url).workers()
        with pytest.raises(RlError, match="no admin role") as weak:
            RL(gateway.url, api_key="s3cret").workers()
    assert [(error.value.status, error.value.code) for error in (missing, weak)] == [
        (401, "http_error"),
        (403, "http_error"),
    ]
    assert "s3cret" not in str(weak.value)
