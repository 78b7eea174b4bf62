"""The second listener serves metrics and detailed health; the first does not."""

import socket
from collections.abc import Callable, Iterator
from pathlib import Path

import httpx
import pytest

from tests.support.ports import free_port
from tests.support.server import ADMIN, Server, plain_client, watchword
from tests.support.waiting import until

MakeServer = Callable[..., Server]
AS_ADMIN = {"X-Service-Actor": ADMIN}


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    address = f"127.0.0.1:{free_port()}"
    with Server(tmp_path_factory.mktemp("two"), "--workers", "2", "--metrics-address", address) as running:
        assert f"  metrics     http://{address}/metrics\n" in running.out.read_text()
        yield running
        assert running.stop() == 0


@pytest.fixture(scope="module")
def second(server: Server) -> Iterator[httpx.Client]:
    address = server.command[server.command.index("--metrics-address") + 1]
    with plain_client(f"http://{address}") as client:
        yield client


def test_metrics_on_a_public_address_print_a_warning(server: Server, make_server: MakeServer) -> None:
    assert "WARNING" not in server.out.read_text()
    address = f"0.0.0.0:{free_port()}"
    open_to_all = make_server("--metrics-address", address)
    assert f"WARNING: other machines can reach the metrics at {address} WITHOUT TLS" in open_to_all.out.read_text()


def test_first_listener_does_not_serve_metrics(server: Server) -> None:
    for path in ("/metrics", "/gms/metrics", "/api/gms/metrics"):
        answer = server.http.get(path, headers=AS_ADMIN)
        assert (answer.status_code, answer.json()["error"]["reason"]) == (404, "no_such_address")


def test_only_the_second_listener_shows_health_details(server: Server, second: httpx.Client) -> None:
    for path in ("/health", "/health/ready"):
        until(lambda path=path: second.get(path).json()["status"] == "ready", "ready")  # type: ignore[misc]
        assert second.get(path).json()["parts"] == {"store": {"status": "ready"}, "index": {"status": "ready"}}
        assert server.http.get(path).json() == {"status": "ready"}
    assert second.get("/health/live").json() == server.http.get("/health/live").json() == {"status": "live"}
    assert watchword("health", "--port", str(server.port)).stdout == "ready\n"


def test_second_listener_sums_the_metrics_of_all_workers(server: Server, second: httpx.Client) -> None:
    for _ in range(20):
        with plain_client(server.url) as client:
            assert client.get("/.well-known/jwks.json").status_code == 200
    wanted = 'watchword_http_requests_total{route="/.well-known/jwks.json",status="200"} 20.0'
    until(lambda: wanted in second.get("/metrics").text, "all are counted")
    assert second.get("/metrics").headers["content-type"].startswith("text/plain; version=0.0.4")
    bare = second.head("/metrics")
    assert (bare.status_code, bare.content) == (200, b"")


@pytest.mark.parametrize(
    "path", ["/", "/auth", "/config", "/api/graphql", "/gms/metrics", "/metrics/", "/session", "/.well-known/jwks.json"]
)
def test_second_listener_serves_nothing_else(second: httpx.Client, path: str) -> None:
    for method in ("GET", "POST"):
        answer = second.request(method, path, headers=AS_ADMIN, json={"query": "{ me { corpUser { urn } } }"})
        assert (answer.status_code, answer.json()["error"]["reason"]) == (404, "no_such_address")
    refused = second.post("/metrics", content=b"x" * 100_000)
    assert (refused.status_code, refused.headers["allow"]) == (405, "GET, HEAD")


def test_invalid_metrics_address_stops_the_start() -> None:
    done = watchword("serve", env={"WATCHWORD_METRICS_ADDRESS": "9090"})
    assert done.returncode == 2
    assert done.stderr == (
        "watchword: WATCHWORD_METRICS_ADDRESS must be an IP address or localhost, and a port, "
        "such as 127.0.0.1:9090 or [::1]:9090.\n"
    )


def test_metrics_address_in_use_stops_the_start(tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as other:
        taken = f"127.0.0.1:{other.getsockname()[1]}"
        started = ("serve", "--port", str(free_port()), "--data-dir", str(tmp_path / "data"))
        done = watchword(*started, "--metrics-address", taken)
    assert done.returncode != 0
    assert f"Cannot listen at WATCHWORD_METRICS_ADDRESS, {taken}: Address already in use." in done.stderr
