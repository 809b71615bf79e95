"""Public reports about what lies between client, gateway and engines (rows D), each as a test named after its row."""

import contextlib
import json
import socket
import ssl
from collections.abc import Iterator
from datetime import datetime, timezone

import pytest
import trustme

from reference_server import Fleet, Gateway, ManualTicks, faults
from reference_server.health import HealthPolicy
from reference_server.httpd.messages import Reply, Request
from reference_server.httpd.server import HttpServer
from smg.rl import RL, RlConnectionError, RlError, paused

from ..support.bare_connection import raw
from ..support.certificates import AUTHORITY, certified, trusting
from ..support.loopback import NEEDS_IPV6
from ..support.misbehaving_server import Script, Server, answer, answering, closing, keeping
from ..support.waiting import wait_until
from ..support.wire_answers import LISTING

ALL = "engine=sglang"
PAUSE, REFIT = "pause_generation", "update_weights_from_disk"
STEP = {"model_path": "/ckpt/step-42", "weight_version": "42"}
NOBODY = "http://127.0.0.1:9"
PROXIES = ("http_proxy", "HTTP_PROXY", "https_proxy", "HTTPS_PROXY", "all_proxy", "ALL_PROXY")


def test_d1_the_proxies_of_the_environment_are_used_by_nobody_who_did_not_ask(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in PROXIES:
        monkeypatch.setenv(name, NOBODY)
    for name in ("no_proxy", "NO_PROXY"):
        monkeypatch.setenv(name, "10.0.0.0/8")
    with Fleet(sglang=2) as fleet:
        with paused(fleet.rl, ALL):
            assert fleet.rl.fanout(REFIT, STEP, selector=ALL).succeeded == 2
        with pytest.raises(RlConnectionError):
            RL(fleet.url, trust_env=True).workers()


def test_d2_connections_that_were_closed_meanwhile_hurt_nobody() -> None:
    with Fleet(sglang=1) as fleet:
        engine, rl = fleet.engines[0], fleet.rl
        for number in range(20):
            body = {**STEP, "weight_version": str(number)}
            assert rl.call(fleet.worker_id(engine), REFIT, body).ok
            engine.restart()  # closes every connection that anybody has kept
        assert len(engine.calls(REFIT)) == 20


def test_d2_a_refit_whose_answer_was_lost_is_not_sent_again() -> None:
    with Fleet(sglang=1) as fleet:
        engine = fleet.engines[0]
        engine.fail(REFIT, faults.Reset(effect=True), times=1)
        with pytest.raises(RlError, match="upstream_unreachable.*effect is unknown"):
            fleet.rl.call(fleet.worker_id(engine), REFIT, STEP)
        assert (len(engine.calls(REFIT)), engine.weight_version) == (1, "42")


def test_d3_a_pause_does_not_wait_for_200_open_streams() -> None:
    body = json.dumps({"text": "hello", "stream": True}).encode()
    head = f"POST /generate HTTP/1.1\r\nHost: x\r\nContent-Type: application/json\r\nContent-Length: {len(body)}"
    with contextlib.ExitStack() as streams, Fleet(sglang=2, engine={"ticks": ManualTicks()}) as fleet:
        for _ in range(200):
            streams.enter_context(raw(fleet.url)).sendall(head.encode() + b"\r\n\r\n" + body)
        wait_until(lambda: sum(engine.in_flight for engine in fleet.engines) == 200, "all generate")
        with paused(fleet.rl, ALL, mode="in_place", timeout=10) as pause:
            assert pause.succeeded == 2
            assert sum(engine.in_flight for engine in fleet.engines) == 200
        streams.close()


@contextlib.contextmanager
def ipv6_engine(hosts: list[str]) -> Iterator[str]:
    def answered(request: Request) -> Reply:
        request.body.read(1 << 20)
        if request.path == "/flush_cache":
            hosts.append(request.header("host") or "")
        return Reply.of_json(200, {"data": [{"id": "m", "owned_by": "sglang"}]})

    server = HttpServer(answered, "::1")
    server.start()
    try:
        yield server.url
    finally:
        server.stop()


@NEEDS_IPV6
@pytest.mark.parametrize("quote", ["", '"'])
def test_d4_ipv6_from_the_client_to_the_engine(quote: str) -> None:
    hosts: list[str] = []
    with ipv6_engine(hosts) as url, Gateway(worker_urls=[url], enable_rl=True, host="::1", keep_log=True) as gateway:
        assert gateway.url.startswith("http://[::1]:")
        rl = RL(gateway.url)
        assert [(worker.base_url, worker.url) for worker in rl.workers()] == [(url, url)]
        assert rl.fanout("flush_cache", {}, selector=f"base_url={quote}{url}{quote}").succeeded == 1
        assert hosts == [url.removeprefix("http://")]
        headers = {name.lower(): value for name, value in gateway.log[-1].headers}
        assert headers["host"] == gateway.url.removeprefix("http://")


@pytest.mark.parametrize(
    ("form", "prefix"),
    [("{}", ""), ("{}/", ""), ("{}//", ""), ("{}/smg", "/smg"), ("{}/smg/", "/smg"), ("HTTP{}", "")],
)
def test_d5_the_usual_forms_of_a_url_work(form: str, prefix: str) -> None:
    with Server(keeping(LISTING)) as gateway:
        url = form.format(gateway.url.removeprefix("http") if form.startswith("HTTP") else gateway.url)
        RL(url).workers()
        assert gateway.received(1)[0].line == f"GET {prefix}/v1/rl/workers HTTP/1.1"


@pytest.mark.parametrize(
    "url",
    [
        "h:1",
        "h",
        "",
        "//h:1",
        "http:/h:1",
        "http//h:1",
        "http://",
        "http://u:p@h:1",
        "http://h:1?x=1",
        "http://h:1/#f",
        "http://h:port",
        "http://h:99999",
        "unix:///run/smg.sock",
        "ftp://h:1",
        " http://h:1",
        "http://h:1\n",
    ],
)
def test_d5_the_others_are_refused_at_once(url: str) -> None:
    with pytest.raises(ValueError, match="base_url"):
        RL(url)


def test_d6_a_slash_at_the_end_of_a_path_is_refused() -> None:
    with Fleet(sglang=1) as fleet:
        for ask in (
            lambda: fleet.rl.call(fleet.worker_id(fleet.engines[0]), PAUSE + "/", {}),
            lambda: fleet.rl.fanout(PAUSE + "/", {}, selector=ALL),
        ):
            with pytest.raises(RlError, match="invalid_engine_path") as refused:
                ask()
            assert refused.value.status == 400
        assert fleet.engines[0].state == "running"


@pytest.mark.parametrize("status", [301, 302, 303, 307, 308])
def test_d6_nobody_follows_a_redirect(status: int) -> None:
    with Fleet(sglang=1) as fleet, Server(keeping(LISTING)) as other:
        fleet.engines[0].fail(PAUSE, faults.Redirect(f"{other.url}/{PAUSE}/", status))
        assert fleet.rl.call(fleet.worker_id(fleet.engines[0]), PAUSE, {}).status == status
        with Server(keeping(answer(status, b"", f"Location: {other.url}/v1/rl/workers"))) as gateway:
            with pytest.raises(RlError, match=f"redirect to {other.url}/v1/rl/workers, which is not followed"):
                RL(gateway.url, "the-key").workers()
        assert other.connections == 0


def test_d7_a_private_authority_is_trusted_when_it_is_given() -> None:
    with Server(keeping(LISTING), tls=certified("127.0.0.1")) as gateway:
        assert len(RL(gateway.url, ssl_context=trusting()).workers()) == 1


def test_d7_a_gateway_that_wants_a_certificate_gets_the_clients() -> None:
    server, client = certified("127.0.0.1"), trusting()
    server.verify_mode = ssl.CERT_REQUIRED
    AUTHORITY.configure_trust(server)
    AUTHORITY.issue_cert("trainer@example.org").configure_cert(client)
    with Server(keeping(LISTING), tls=server) as gateway:
        assert len(RL(gateway.url, ssl_context=client).workers()) == 1
        with pytest.raises(RlConnectionError):
            RL(gateway.url, ssl_context=trusting()).workers()


@pytest.mark.parametrize(
    ("server", "client"),
    [
        (certified("127.0.0.1"), None),
        (certified("gateway.example"), trusting()),
        (certified("127.0.0.1", until=datetime(2020, 1, 1, tzinfo=timezone.utc)), trusting()),
        (certified("127.0.0.1", by=trustme.CA()), trusting()),
    ],
    ids=["no authority given", "another name", "expired", "another authority"],
)
def test_d7_any_other_certificate_is_refused(server: ssl.SSLContext, client: ssl.SSLContext | None) -> None:
    with Server(keeping(LISTING), tls=server) as gateway:
        with pytest.raises(RlConnectionError, match="certificate is not trusted") as refused:
            RL(gateway.url, ssl_context=client).workers()
        assert refused.value.code == "connection_failed"


BAD: dict[str, Script] = {
    "garbage": answering(b"\x00\xff this is not HTTP\r\n\r\n"),
    "closes at once": closing,
    "HTTP/0.9": answering(b"<html>hello</html>\r\n"),
    "a header of 1 MB": answering(answer(200, b"{}", "X-Long: " + "x" * (1 << 20))),
}


@pytest.mark.parametrize("script", BAD.values(), ids=BAD)
def test_d8_what_is_no_answer_is_a_bad_response(script: Script) -> None:
    with Server(script) as gateway, pytest.raises(RlConnectionError) as caught:
        RL(gateway.url).workers()
    assert (caught.value.code, caught.value.__context__) == ("bad_response", None)


def test_d8_a_gateway_that_is_not_there_is_a_failed_connection(monkeypatch: pytest.MonkeyPatch) -> None:
    def unknown(*args: object, **options: object) -> object:
        raise socket.gaierror(socket.EAI_NONAME, "Name or service not known")

    with socket.socket() as unused:
        unused.bind(("127.0.0.1", 0))  # bound, not listening: refuses
        with pytest.raises(RlConnectionError, match="refused") as caught:
            RL(f"http://127.0.0.1:{unused.getsockname()[1]}").workers()
        assert caught.value.code == "connection_failed"
    monkeypatch.setattr(socket, "getaddrinfo", unknown)
    with pytest.raises(RlConnectionError, match="not known") as caught:
        RL("http://gateway.invalid:30000").workers()
    assert caught.value.code == "connection_failed"


def test_d9_a_body_that_is_too_large_is_a_413_and_no_broken_pipe() -> None:
    with Fleet(sglang=1, gateway={"max_payload_size": 16 << 20}) as fleet:
        with pytest.raises(RlError, match="--max-payload-size") as caught:
            fleet.rl.fanout("update_weights_from_tensor", {"tensors": "A" * (64 << 20)}, selector=ALL)
        assert caught.value.status == 413
        assert fleet.engines[0].calls("update_weights_from_tensor") == ()


def test_d11_ranks_that_share_an_engine_are_one_call() -> None:
    with Fleet(sglang=1, engine={"dp_size": 4}, gateway={"dp_aware": True}) as fleet:
        engine, rl = fleet.engines[0], fleet.rl
        (worker,) = rl.workers()
        assert (worker.dp_ranks, worker.base_url, worker.url) == (4, engine.url, f"{engine.url}@0")
        assert rl.fanout("flush_cache", {}, selector=ALL).total == len(engine.calls("flush_cache")) == 1
        ranks = [one.id for one in fleet.gateway.registry.all()]
        assert len(ranks) == 4 and {rl.worker(rank).base_url for rank in ranks} == {engine.url}
        for rank in set(ranks) - {worker.id}:
            with pytest.raises(RlError, match="no_workers_match"):
                rl.fanout("flush_cache", {}, selector=f"id={rank}")


def test_d12_control_calls_reach_engines_that_are_not_ready() -> None:
    policy = HealthPolicy(interval=0.1, timeout=1.0, failure_threshold=1, success_threshold=1)
    with Fleet(
        sglang=2,
        engine={"health_generation": True, "health_timeout": 0.1},
        gateway={"health_check": True, "health": policy},
    ) as fleet:
        with paused(fleet.rl, ALL):
            wait_until(lambda: {w.health for w in fleet.rl.workers()} == {"not_ready"}, "nobody is ready")
            assert fleet.rl.fanout(REFIT, STEP, selector=ALL).succeeded == 2
            with pytest.raises(RlError, match="no_workers_match"):
                fleet.rl.fanout(REFIT, STEP, selector=f"{ALL},health=ready")
        wait_until(lambda: {w.health for w in fleet.rl.workers()} == {"ready"}, "all are ready again")


def test_d13_the_401_of_an_engine_is_not_that_of_the_gateway(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level("DEBUG")
    with Fleet(sglang=1, engine={"api_key": "engine-admin"}, gateway={"api_key": "inference"}) as fleet:
        engine, rl = fleet.engines[0], fleet.rl
        refused = rl.call(fleet.worker_id(engine), PAUSE, {})
        assert (refused.status, refused.ok, refused.url) == (401, False, engine.url)
        partial = rl.fanout(PAUSE, {}, selector=ALL, allow_partial=True)
        assert [(one.error, one.status) for one in partial.failed] == [("upstream_error", 401)]
        with pytest.raises(RlError, match="the gateway wants a key") as error:
            RL(fleet.url).call(fleet.worker_id(engine), PAUSE, {})
        assert error.value.status == 401
        said = [repr(rl), str(error.value), repr(engine.log), repr(fleet.gateway.log), caplog.text]
        assert not any("inference" in text or "engine-admin" in text for text in said)


def test_d13_the_key_of_the_caller_never_reaches_an_engine() -> None:
    keys: list[str | None] = []

    def engine(request: Request) -> Reply:
        request.body.read(1 << 20)
        keys.append(request.header("authorization"))
        return Reply.of_json(200, {"data": [{"id": "m", "owned_by": "sglang"}]})

    server = HttpServer(engine)
    server.start()
    try:
        with Gateway(enable_rl=True, api_key="callers", health_check=False) as gateway:
            worker_id, tried = gateway.register(server.url, api_key="engines")
            assert tried.wait(10)
            assert RL(gateway.url, "callers").call(worker_id, PAUSE, {}).ok
    finally:
        server.stop()
    assert keys[-1] == "Bearer engines" and not any("callers" in (key or "") for key in keys)
