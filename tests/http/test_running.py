"""A running server: probes, metrics, shutdown, TLS, sockets, peers, proxies and logs."""

import os
import resource
import signal
import socket
import sqlite3
import ssl
import stat
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import httpx
import orjson
import pytest

from tests.support.certificates import make_certificate
from tests.support.server import ADMIN, CREATE, Server, plain_client
from tests.support.store_file import locked
from tests.support.system import missing
from tests.support.waiting import SECONDS, until
from tests.support.wire import AS_ADMIN, JSON_TYPE, connect, head, receive, send
from watchword.app.server import STOP_SECONDS

MakeServer = Callable[..., Server]
ME = "{ me { corpUser { urn } } }"


def first_token(server: Server, actor: str = ADMIN) -> str:
    made = server.command_line("token", "create", "--local", "--actor", actor, "--name", "first")
    assert made.returncode == 0, made.stderr
    return made.stdout.strip()


def lines_of(server: Server) -> list[dict[str, Any]]:
    whole, _, _ = server.err.read_bytes().rpartition(b"\n")  # the last line may be half written
    return [orjson.loads(line) for line in whole.splitlines()]


def logged(server: Server, request_id: str) -> dict[str, Any] | None:
    found = [line for line in lines_of(server) if line.get("request_id") == request_id and line["event"] == "request"]
    assert len(found) <= 1
    return found[0] if found else None


class TestProbes:
    def test_locked_store_fails_readiness_but_not_liveness(self, server: Server) -> None:
        path = server.data_dir / "watchword.db"
        token = server.create(ADMIN)["accessToken"]
        with locked(server, "EXCLUSIVE"):
            until(lambda: server.http.get("/health/ready").status_code == 503, "not ready")
            refused = server.http.get("/health")
            assert refused.status_code == 503
            assert refused.headers["Retry-After"]
            store = refused.json()["parts"]["store"]
            assert store["status"] == "unavailable"
            assert str(path) not in refused.text
            assert server.http.get("/health/live").status_code == 200
            assert server.verify(token).status_code == 204
        until(lambda: server.http.get("/health/ready").status_code == 200, "ready")


class TestMetrics:
    def test_hammered_metrics_are_rendered_at_most_once_a_second(self, server: Server) -> None:
        # Each response is counted, so responses rendered at different times differ.
        began = time.monotonic()
        with plain_client(server.url) as one, plain_client(server.url) as other:
            told = {client.get("/metrics").content for _ in range(150) for client in (one, other)}
        assert len(told) <= time.monotonic() - began + 2

    def test_metrics_of_several_workers_are_summed(self, make_server: MakeServer) -> None:
        server = make_server("--workers", "2")
        asked = 0

        def each_was_asked() -> bool:
            """Use a new connection each time: the kernel gives it to a worker that is not stopped."""
            nonlocal asked
            assert send(server, "GET", "/config", [], None).status == 200
            asked += 1
            counted = [names.read_text() for names in server.data_dir.glob("run/*/*.names")]
            return asked >= 100 and ['"/config"' in one for one in counted] == [True, True]

        until(each_was_asked, "both workers have answered")
        made = [server.create(ADMIN) for _ in range(7)]
        for one in made[:3]:
            server.revoke(one["metadata"]["id"])
        for one in made:
            assert send(server, "GET", "/auth", [f"Authorization: Bearer {one['accessToken']}"], None).status in (
                204,
                401,
            )
        for _ in range(5):
            send(server, "GET", "/auth", ["Authorization: Bearer bad"], None)
            send(server, "GET", "/nothing/of/mine", [], None)
        wanted = {
            'watchword_http_requests_total{route="/config",status="200"}': asked,
            'watchword_http_requests_total{route="/api/graphql",status="200"}': 10,
            'watchword_http_requests_total{route="/auth",status="204"}': 4,
            'watchword_http_requests_total{route="/auth",status="401"}': 8,
            'watchword_http_requests_total{route="other",status="404"}': 5,
            'watchword_http_request_seconds_count{route="/config"}': asked,
            'watchword_verifications_total{verdict="accepted"}': 4,
            'watchword_verifications_total{verdict="believed"}': 10,
            'watchword_verifications_total{verdict="revoked"}': 3,
            'watchword_verifications_total{verdict="invalid"}': 5,
            "watchword_tokens_issued_total": 7,
            "watchword_tokens_revoked_total": 3,
        }  # fmt: skip
        # A request is counted when its response is being sent, so the last ones may be missing.
        until(lambda: server.samples().items() >= wanted.items(), "the sums")
        assert server.samples().items() >= wanted.items()
        assert server.samples()['watchword_store_seconds_count{operation="write"}'] >= 10


class TestStopping:
    def test_shutdown_finishes_running_requests_and_accepts_no_new_ones(self, make_server: MakeServer) -> None:
        server = make_server()
        wanted = {"type": "PERSONAL", "actorUrn": ADMIN, "duration": "ONE_HOUR", "name": "last"}
        body = orjson.dumps({"query": CREATE, "variables": {"input": wanted}})
        assert server.process is not None
        with closing(connect(server)) as slow:
            waiting = [AS_ADMIN, JSON_TYPE, "Expect: 100-continue"]
            slow.sendall(head(server, "POST", "/api/graphql", waiting, len(body)))
            assert slow.recv(100).startswith(b"HTTP/1.1 100 ")  # from now on the server waits for the body
            slow.sendall(body[:40])
            server.process.send_signal(signal.SIGTERM)
            until(lambda: refuses_connections(server), "no new connection")
            slow.sendall(body[40:])
            answer = receive(slow)
        assert answer.status == 200
        assert server.process.wait(STOP_SECONDS) == 0
        server.start()
        assert server.verify(answer.json()["data"]["createAccessToken"]["accessToken"]).status_code == 204

    def test_ctrl_c_stops_workers_through_the_main_process(self, make_server: MakeServer) -> None:
        server = make_server()
        (worker,) = server.workers()
        worker.send_signal(signal.SIGINT)
        for _ in range(50):
            connect(server).close()
            assert server.http.get("/health/live").status_code == 200
        assert server.workers() == [worker]
        assert server.process is not None
        os.killpg(server.process.pid, signal.SIGINT)
        assert server.process.wait(STOP_SECONDS) == 0
        assert server.err.read_text().count("Unexpected exit") == 0


def refuses_connections(server: Server) -> bool:
    try:
        connect(server).close()
    except ConnectionRefusedError:
        return True
    return False


@pytest.fixture(scope="module")
def certificate(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    return make_certificate(tmp_path_factory.mktemp("tls"))


def test_tls_server_uses_an_https_origin(make_server: MakeServer, certificate: tuple[Path, Path]) -> None:
    chain, private = certificate
    server = make_server("--tls-cert", str(chain), "--tls-key", str(private), "--access-log", "off")
    address = f"https://127.0.0.1:{server.port}"
    assert f"listens at {address}" in server.out.read_text()
    trusted = ssl.create_default_context(cafile=str(chain))
    with httpx.Client(base_url=address, verify=trusted, timeout=SECONDS) as client:
        for origin, status in ((address, 200), (server.url, 401), (None, 200)):
            headers = {"X-Service-Actor": ADMIN} | ({"Origin": origin} if origin else {})
            assert client.post("/api/graphql", json={"query": ME}, headers=headers).status_code == status
        refused = client.get("/auth")
        assert refused.status_code == 401
        assert refused.headers["Strict-Transport-Security"] == "max-age=31536000"
    with pytest.raises(httpx.TransportError):
        server.http.get("/config")
    server.stop()
    assert [line for line in lines_of(server) if line["event"] == "request"] == []


@pytest.fixture
def socket_folder() -> Iterator[Path]:
    """A short path: Unix socket paths have a length limit."""
    with tempfile.TemporaryDirectory(prefix="ww-") as folder:
        yield Path(folder)


class TestUnixSocket:
    def test_unix_socket_is_private_and_accepts_the_actor_header_if_trusted(
        self, make_server: MakeServer, socket_folder: Path
    ) -> None:
        path = socket_folder / "s"
        server = make_server("--host", f"unix:{path}", env={"WATCHWORD_TRUSTED_PEERS": "unix"})
        mode = path.stat().st_mode
        assert stat.S_ISSOCK(mode)
        assert stat.S_IMODE(mode) == 0o600
        there = httpx.HTTPTransport(uds=str(path))
        with httpx.Client(transport=there, base_url="http://somewhere", timeout=SECONDS) as client:
            me = client.post("/api/graphql", json={"query": ME}, headers={"X-Service-Actor": ADMIN})
            assert me.json()["data"]["me"]["corpUser"]["urn"] == ADMIN
            assert client.get("/auth", headers={"X-Service-Actor": ADMIN}).status_code == 401
        with pytest.raises(httpx.ConnectError):
            server.http.get("/config")
        server.stop()
        (line,) = [line for line in lines_of(server) if line.get("path") == "/api/graphql"]
        assert line["client"] == "unix"

    def test_unix_socket_rejects_the_actor_header_by_default(
        self, make_server: MakeServer, socket_folder: Path
    ) -> None:
        path = socket_folder / "s"
        server = make_server("--host", f"unix:{path}")
        assert "local mode  off" in server.out.read_text()
        there = httpx.HTTPTransport(uds=str(path))
        with httpx.Client(transport=there, base_url="http://localhost", timeout=SECONDS) as client:
            answer = client.post("/api/graphql", json={"query": ME}, headers={"X-Service-Actor": ADMIN})
            assert answer.status_code == 401


def test_only_trusted_peers_may_send_the_actor_header_without_local_mode(make_server: MakeServer) -> None:
    server = make_server(
        "--local-mode", "off", env={"WATCHWORD_TRUSTED_PEERS": "10.0.0.0/8,127.0.0.2/31,127.9.0.0/16,::1/128"}
    )
    for source, status in (("127.0.0.1", 401), ("127.0.0.2", 200), ("127.0.0.3", 200), ("127.0.0.4", 401),
                           ("127.9.200.1", 200), ("127.8.200.1", 401)):  # fmt: skip
        with httpx.Client(transport=httpx.HTTPTransport(local_address=source), timeout=SECONDS) as client:
            assert server.post(ME, actor=ADMIN, client=client).status_code == status, source
            refused = client.get(f"{server.url}/auth", headers={"X-Service-Actor": ADMIN})
            assert refused.status_code == 401


def test_client_named_by_a_trusted_proxy_is_logged(make_server: MakeServer) -> None:
    server = make_server("--trusted-proxies", "127.0.0.2/32,192.0.2.0/24")
    token = first_token(server)
    chains = {
        "plain": ("127.0.0.2", [], "127.0.0.2"),
        "named": ("127.0.0.2", ["203.0.113.9"], "203.0.113.9"),
        "spoofed": ("127.0.0.2", ["198.51.100.66, 203.0.113.9"], "203.0.113.9"),
        "two-proxies": ("127.0.0.2", ["203.0.113.9, 192.0.2.5"], "203.0.113.9"),
        "two-headers": ("127.0.0.2", ["203.0.113.9", "192.0.2.5"], "203.0.113.9"),
        "nonsense": ("127.0.0.2", ["203.0.113.9, nonsense"], "unknown"),
        "with-a-port": ("127.0.0.2", ["203.0.113.9:4711"], "203.0.113.9"),
        "six": ("127.0.0.2", ["2001:db8::7"], "2001:db8::7"),
        "stranger": ("127.0.0.1", ["203.0.113.9"], "127.0.0.1"),
    }  # fmt: skip
    wanted = {"type": "PERSONAL", "actorUrn": ADMIN, "duration": "ONE_HOUR", "name": "x"}
    for name, (source, given, _) in chains.items():
        headers = [("Authorization", f"Bearer {token}"), ("X-Request-Id", name)]
        headers += [("X-Forwarded-For", chain) for chain in given]
        with httpx.Client(transport=httpx.HTTPTransport(local_address=source), timeout=SECONDS) as client:
            body = {"query": CREATE, "variables": {"input": wanted}}
            assert "errors" not in client.post(f"{server.url}/api/graphql", json=body, headers=headers).json()
    server.stop()
    with closing(sqlite3.connect(server.data_dir / "watchword.db")) as store:
        events = dict(store.execute("SELECT request_id, peer FROM events WHERE action = 'token.created'").fetchall())
    for name, (_, _, client_address) in chains.items():
        line = logged(server, name)
        assert line is not None
        assert line["client"] == client_address, name
        assert events[name] == client_address, name


class TestAccessLog:
    def test_access_log_omits_successful_auth_and_probes(self, server: Server) -> None:
        token = server.create(ADMIN)["accessToken"]
        bearer = f"Authorization: Bearer {token}"
        quiet = {"q-auth": ("/auth", bearer), "q-live": ("/health/live", ""), "q-ready": ("/health", ""),
                 "q-metrics": ("/metrics", ""), "q-gms": ("/gms/auth/x", bearer)}  # fmt: skip
        spoken = {"s-auth": ("/auth", "Authorization: Bearer bad"), "s-config": ("/config", ""), "s-404": ("/x", ""),
                  "s-401": ("/api/x", ""), "s-root": ("/", "")}  # fmt: skip
        for name, (target, header) in (quiet | spoken).items():
            send(server, "GET", f"{target}?secret=1", [f"X-Request-Id: {name}", *([header] if header else [])], None)
        until(lambda: all(logged(server, name) for name in spoken), "all lines")
        assert not [name for name in quiet if logged(server, name)]
        for name, (target, _) in spoken.items():
            line = logged(server, name)
            assert line is not None, name
            assert line["path"] == target
            assert line["method"] == "GET"
            assert {"status", "ms", "client", "actor", "level", "timestamp"} <= set(line)

    def test_access_log_names_the_actor_but_not_the_query(self, server: Server) -> None:
        send(server, "POST", "/api/graphql?operationName=hidden", [AS_ADMIN, JSON_TYPE, "X-Request-Id: who"])
        until(lambda: logged(server, "who") is not None, "the line")
        line = logged(server, "who")
        assert line is not None
        assert (line["actor"], line["path"], line["status"]) == (ADMIN, "/api/graphql", 200)
        assert "hidden" not in server.err.read_text()


def test_data_folder_and_files_are_private(server: Server) -> None:
    assert stat.S_IMODE(server.data_dir.stat().st_mode) == 0o700
    for path in server.data_dir.rglob("*"):
        assert stat.S_IMODE(path.stat().st_mode) == (0o700 if path.is_dir() else 0o600), path
        assert path.stat().st_uid == os.getuid()


def test_missing_bodies_do_not_block_other_clients(server: Server) -> None:
    held: list[socket.socket] = []
    try:
        for _ in range(50):
            held.append(connect(server))
            held[-1].sendall(head(server, "POST", "/api/graphql", [AS_ADMIN, JSON_TYPE], 100))
        assert server.ask(ME, actor=ADMIN)["me"]["corpUser"]["urn"] == ADMIN
    finally:
        for connection in held:
            connection.close()


def test_2000_idle_connections_do_not_block_other_clients(make_server: MakeServer) -> None:
    server = make_server()
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if hard != resource.RLIM_INFINITY and hard < 4_096:
        missing("needs a limit of open files of 4,096 or more: ulimit -Hn")
    resource.setrlimit(resource.RLIMIT_NOFILE, (max(soft, 4_096), hard))
    held: list[socket.socket] = []
    try:
        for _ in range(2_000):
            held.append(connect(server))
            held[-1].sendall(b"GET / HTTP/1.1\r\nX: ")
        assert server.http.get("/health/live", timeout=12).status_code == 200
    finally:
        for connection in held:
            connection.close()
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))


def test_control_characters_in_a_path_are_escaped_in_the_log(server: Server) -> None:
    answer = server.http.get("/%C2%9B2J%E2%80%AEevil")
    until(lambda: any(line.get("request_id") == answer.headers["x-request-id"] for line in lines_of(server)), "a line")
    (line,) = [line for line in lines_of(server) if line.get("request_id") == answer.headers["x-request-id"]]
    assert line["path"] == "/\\x9b2J\\u202eevil"
