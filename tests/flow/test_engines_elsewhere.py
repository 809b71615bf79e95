"""Engines over TLS, over IPv6, under a path, in data-parallel ranks, of other types."""

import contextlib
import ssl
from collections.abc import Iterator
from pathlib import Path

import pytest
import trustme

from reference_server import Gateway, MockEngine
from reference_server.httpd.messages import Reply, Request
from reference_server.httpd.server import HttpServer
from smg.rl import RL, FanoutError

from ..support.asking import ask
from ..support.loopback import NEEDS_IPV6
from ..support.waiting import wait_until

SELECTOR = "engine=sglang"


def sglang(request: Request) -> Reply:
    """Any path answers as an SGLang engine would to discovery."""
    request.body.read(1 << 20)
    host = request.header("host")
    return Reply.of_json(200, {"data": [{"id": "m", "owned_by": "sglang"}], "host": host, "path": request.path})


@contextlib.contextmanager
def served(host: str = "127.0.0.1", tls: ssl.SSLContext | None = None) -> Iterator[HttpServer]:
    server = HttpServer(sglang, host)
    if tls:
        listener = server._listener
        listener.socket = tls.wrap_socket(listener.socket, server_side=True)
    server.start()
    yield server
    server.stop()


@pytest.fixture(scope="module")
def authority() -> trustme.CA:
    return trustme.CA()


def context_of(certificate: trustme.LeafCert) -> ssl.SSLContext:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    certificate.configure_cert(context)
    return context


def test_an_engine_is_reached_over_tls_with_a_private_authority(authority: trustme.CA, tmp_path: Path) -> None:
    ca = tmp_path / "ca.pem"
    authority.cert_pem.write_to_path(str(ca))
    tls = context_of(authority.issue_cert("localhost"))
    with served(tls=tls) as server:
        url = f"https://localhost:{server.port}"
        with Gateway(worker_urls=[url], enable_rl=True, ca_cert_paths=[str(ca)]) as gateway:
            result = RL(gateway.url).fanout("x", {}, selector=SELECTOR)
            assert [answer.url for answer in result.results.values()] == [url]
            answer = ask(gateway.url, "POST", "/generate", {"text": "a"})
            assert (answer.status, answer.json["path"]) == (200, "/generate")


@pytest.mark.parametrize("name", ["another.example", "localhost"], ids=["another name", "an unknown authority"])
def test_an_engine_whose_certificate_is_not_trusted_is_never_spoken_to(
    authority: trustme.CA, tmp_path: Path, name: str
) -> None:
    ca = tmp_path / "ca.pem"
    (authority if name != "localhost" else trustme.CA()).cert_pem.write_to_path(str(ca))
    with served(tls=context_of(authority.issue_cert(name))) as server:
        with Gateway(enable_rl=True, ca_cert_paths=[str(ca)]) as gateway:
            worker_id, tried = gateway.register(f"https://localhost:{server.port}", runtime="sglang")
            assert tried.wait(30)
            assert gateway.registry.all() == []
            assert ask(gateway.url, "GET", f"/workers/{worker_id}").json["status"] == "pending"


@NEEDS_IPV6
def test_gateway_and_engine_speak_over_ipv6() -> None:
    with served("::1") as server:
        with Gateway(host="::1", worker_urls=[server.url], enable_rl=True) as gateway:
            assert gateway.url.startswith("http://[::1]:")
            rl = RL(gateway.url)
            assert [worker.base_url for worker in rl.workers()] == [server.url]
            for value in (server.url, f'"{server.url}"'):
                result = rl.fanout("x", {}, selector=f"base_url={value}")
                assert [a.body["host"] for a in result.results.values() if isinstance(a.body, dict)] == [server.address]


def test_an_engine_under_a_path_keeps_it() -> None:
    with served() as server, Gateway(worker_urls=[f"{server.url}/engines/7/"], enable_rl=True) as gateway:
        rl = RL(gateway.url)
        worker = rl.workers()[0]
        answer = rl.call(worker.id, "flush_cache").body
        assert worker.base_url == f"{server.url}/engines/7/"
        assert isinstance(answer, dict)
        assert answer["path"] == "/engines/7/flush_cache"


def test_ranks_of_one_engine_are_called_once_and_only_the_lowest_is_selected() -> None:
    with MockEngine("sglang", dp_size=4) as engine:
        with Gateway(worker_urls=[engine.url], enable_rl=True, dp_aware=True) as gateway:
            rl = RL(gateway.url)
            assert [(w.url, w.base_url, w.dp_ranks) for w in rl.workers()] == [(f"{engine.url}@0", engine.url, 4)]
            assert rl.fanout("pause_generation", {}, selector=SELECTOR).total == 1
            assert rl.fanout("continue_generation", {}, selector=SELECTOR).total == 1
            assert len(engine.calls("pause_generation")) == 1
            ids = [worker.id for worker in gateway.registry.all()]
            assert [rl.worker(i).url for i in ids] == [f"{engine.url}@{rank}" for rank in range(4)]
            assert rl.call(ids[3], "flush_cache").worker_id == ids[3]
            matched = [rl.fanout("health", selector=f"id={i}", method="GET").total for i in ids[:1]]
            assert matched == [1]
            with pytest.raises(Exception, match="no_workers_match"):
                rl.fanout("health", selector=f"id={ids[3]}", method="GET")


def test_user_names_in_a_url_are_not_mistaken_for_a_rank() -> None:
    with Gateway(enable_rl=True) as gateway:
        gateway.register("http://user:7@engine.invalid:1", runtime="sglang")
        assert ask(gateway.url, "GET", "/v1/rl/workers").status == 200


@pytest.mark.parametrize("kind", ["prefill", "decode", "encode"])
def test_a_worker_of_another_type_is_discovered_selected_and_called(kind: str) -> None:
    with MockEngine("sglang") as engine, Gateway(enable_rl=True) as gateway:
        assert ask(gateway.url, "POST", "/workers", {"url": engine.url, "worker_type": kind}).status == 202
        wait_until(lambda: len(gateway.registry.all()) == 1, "it is registered")
        rl = RL(gateway.url)
        assert [worker.worker_type for worker in rl.workers()] == [kind]
        assert rl.fanout("health", selector=f"worker_type={kind}", method="GET").succeeded == 1


def test_a_worker_that_speaks_no_http_is_listed_and_refused() -> None:
    with Gateway(enable_rl=True) as gateway:
        for url, runtime in (("grpc://127.0.0.1:9", "sglang"), ("ipc:///tmp/engine", "vllm")):
            assert ask(gateway.url, "POST", "/workers", {"url": url, "runtime_type": runtime}).status == 202
        wait_until(lambda: len(gateway.registry.all()) == 2, "both are registered")
        rl = RL(gateway.url)
        assert {worker.engine: worker.connection_mode for worker in rl.workers()} == {"sglang": "grpc", "vllm": "zmq"}
        for worker in rl.workers():
            with pytest.raises(Exception, match="unsupported_connection_mode") as refused:
                rl.call(worker.id, "health", method="GET")
            assert refused.value.status == 422  # type: ignore[attr-defined]  # an RlError, by its text
        with pytest.raises(FanoutError) as failed:
            rl.fanout("health", selector="health=ready", method="GET")
        assert {f.connection_mode for f in failed.value.result.failed} == {"grpc", "zmq"}
