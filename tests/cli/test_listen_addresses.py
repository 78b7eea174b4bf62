"""The listen address: errors are one sentence, and the socket of a killed server is reused."""

import subprocess
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path

import httpx
import pytest

from tests.cli.in_process import watchword
from tests.support.server import Server
from tests.support.waiting import SECONDS


@pytest.fixture
def short() -> Iterator[Path]:
    """A folder with a path short enough for a socket."""
    with tempfile.TemporaryDirectory(dir="/tmp") as folder:
        yield Path(folder)


def _refused(ran: subprocess.CompletedProcess[str], setting: str) -> None:
    assert ran.returncode == 2
    assert ran.stderr.startswith(f"watchword: {setting}")
    assert len(ran.stderr.splitlines()) == 1


def test_socket_in_a_missing_folder_is_rejected(short: Path) -> None:
    ran = watchword("serve", "--host", f"unix:{short}/nowhere/w.sock", "--data-dir", str(short / "data"))
    _refused(ran, "WATCHWORD_HOST")


def test_too_long_socket_path_is_rejected(short: Path) -> None:
    ran = watchword("serve", "--host", f"unix:{short}/{'x' * 200}.sock", "--data-dir", str(short / "data"))
    _refused(ran, "WATCHWORD_HOST")


def test_file_at_the_socket_path_is_rejected_and_kept(short: Path) -> None:
    file = short / "w.sock"
    file.write_text("precious")
    _refused(watchword("serve", "--host", f"unix:{file}", "--data-dir", str(short / "data")), "WATCHWORD_HOST")
    assert file.read_text() == "precious"


def test_socket_of_a_running_server_is_rejected(short: Path, make_server: Callable[..., Server]) -> None:
    path = short / "w.sock"
    make_server("--host", f"unix:{path}")
    ran = watchword("serve", "--host", f"unix:{path}", "--data-dir", str(short / "other"))
    assert ran.returncode == 1
    assert ran.stderr == f"watchword: WATCHWORD_HOST must name a free socket; another process listens at {path}.\n"
    with httpx.Client(transport=httpx.HTTPTransport(uds=str(path)), timeout=SECONDS) as client:
        assert client.get("http://localhost/health").status_code == 200


def test_socket_of_a_killed_server_is_reused(short: Path, make_server: Callable[..., Server]) -> None:
    path = short / "w.sock"
    server = make_server("--host", f"unix:{path}")
    server.kill()
    assert path.is_socket()
    server.start()
    with httpx.Client(transport=httpx.HTTPTransport(uds=str(path)), timeout=SECONDS) as client:
        assert client.get("http://localhost/health").status_code == 200


@pytest.mark.parametrize("content", [None, "no certificate"])
def test_unusable_certificate_is_rejected(short: Path, content: str | None) -> None:
    file = short / "cert.pem"
    if content is not None:
        file.write_text(content)
    ran = watchword("serve", "--tls-cert", str(file), "--tls-key", str(file), "--data-dir", str(short / "data"))
    _refused(ran, "WATCHWORD_TLS_CERT")
    assert str(file) in ran.stderr
