"""`health` exits with 0 if the service is healthy, else 1 with the reason. It needs no token."""

import json
import socket
import subprocess
import threading
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.cli.in_process import watchword
from tests.support.ports import free_port
from tests.support.server import Server
from tests.support.store_file import locked
from tests.support.system import need_program
from tests.support.waiting import until

MakeServer = Callable[..., Server]


def test_healthy_service_exits_with_0(server: Server) -> None:
    done = watchword("health", "--port", str(server.port))
    assert (done.returncode, done.stdout, done.stderr) == (0, "ready\n", "")


def test_health_uses_the_address_of_the_environment(server: Server) -> None:
    for host in ("0.0.0.0", "localhost"):
        assert watchword("health", env={"WATCHWORD_HOST": host, "WATCHWORD_PORT": str(server.port)}).returncode == 0


def test_health_uses_the_unix_socket(make_server: MakeServer, tmp_path: Path) -> None:
    place = f"unix:{tmp_path / 'w.sock'}"
    make_server("--host", place)
    assert watchword("health", "--host", place).stdout == "ready\n"


def test_health_accepts_any_certificate_name(make_server: MakeServer, tmp_path: Path) -> None:
    cert, key = str(tmp_path / "cert.pem"), str(tmp_path / "key.pem")
    wanted = "req -x509 -newkey ec -pkeyopt ec_paramgen_curve:P-256 -nodes -days 2 -subj /CN=tokens.example.org"
    openssl = need_program("openssl", "openssl")
    subprocess.run([openssl, *wanted.split(), "-keyout", key, "-out", cert], check=True, capture_output=True)
    server = make_server("--tls-cert", cert, "--tls-key", key)
    done = watchword("health", "--port", str(server.port), "--tls-cert", cert, "--tls-key", key)
    assert (done.returncode, done.stdout) == (0, "ready\n"), done.stderr
    for words in (("whoami", "--as", "admin"), ("health",)):
        wrong = watchword(*words, "--url", f"http://127.0.0.1:{server.port}")
        assert wrong.returncode == 1
        assert "uses TLS on this port" in wrong.stderr
        assert "https" in wrong.stderr


@pytest.mark.parametrize("words", [("whoami", "--as", "admin"), ("health",)], ids=" ".join)
def test_https_to_a_port_without_tls_is_explained(server: Server, words: tuple[str, ...]) -> None:
    wrong = watchword(*words, "--url", f"https://127.0.0.1:{server.port}")
    assert wrong.returncode == 1
    assert "does not use TLS on this port" in wrong.stderr


def test_health_is_asked_by_url_and_printed_as_json(server: Server) -> None:
    for words in (("--url", server.url, "--json"), ("--url", f"{server.url}/", "-o", "json")):
        done = watchword("health", *words)
        assert (done.returncode, json.loads(done.stdout)["status"]) == (0, "ready")


@pytest.mark.parametrize("url", ["ftp://x", "http://u:p@127.0.0.1", "nonsense", "http://[::1"])
def test_url_that_is_no_address_is_rejected(url: str) -> None:
    wrong = watchword("health", "--url", url)
    assert wrong.returncode == 2
    assert wrong.stderr.startswith("watchword: --url must be an address")


@pytest.mark.parametrize("url", ["http://[::1]", "https://[2001:db8::abcd]"])
def test_ipv6_address_without_a_port_is_tried(url: str) -> None:
    done = watchword("health", "--url", url)
    assert (done.returncode, done.stdout) == (1, "")
    assert done.stderr.startswith(f"watchword: No answer at {url} (")


def test_stopped_service_is_reported_with_a_next_step() -> None:
    port = free_port()
    done = watchword("health", "--port", str(port))
    assert (done.returncode, done.stdout) == (1, "")
    assert done.stderr == (
        f"watchword: No answer at http://127.0.0.1:{port} (Connection refused). "
        "If the service is not running, start it: watchword serve\n"
    )


def test_service_without_index_is_degraded_but_healthy(make_server: MakeServer) -> None:
    server = make_server("--index-url", f"http://127.0.0.1:{free_port()}")
    done = watchword("health", "--port", str(server.port))
    assert done.returncode == 0
    assert done.stdout.startswith("degraded: index: ")


def test_unwritable_store_is_unhealthy(make_server: MakeServer) -> None:
    server = make_server()
    with locked(server, "EXCLUSIVE"):
        until(lambda: server.http.get("/health").status_code == 503, "not ready")
        done = watchword("health", "--port", str(server.port))
    assert (done.returncode, done.stdout) == (1, "")
    assert done.stderr.startswith(f"watchword: The service at {server.url} is unavailable: store: ")


def test_another_program_at_the_port_is_unhealthy() -> None:
    with socket.create_server(("127.0.0.1", 0)) as stranger:
        port = stranger.getsockname()[1]

        def answer() -> None:
            taken, _ = stranger.accept()
            with taken:
                taken.recv(4096)
                taken.sendall(b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok")

        thread = threading.Thread(target=answer)
        thread.start()
        done = watchword("health", "--port", str(port))
        thread.join()
    assert done.returncode == 1
    assert done.stderr.startswith(f"watchword: No answer at http://127.0.0.1:{port} (")
