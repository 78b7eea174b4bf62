"""Where the service cannot listen, the start says so in one sentence; what a killed one left behind is no obstacle."""

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
    """A folder whose path is short enough for a socket's."""
    with tempfile.TemporaryDirectory(dir="/tmp") as folder:
        yield Path(folder)


def _refused(ran: subprocess.CompletedProcess[str], setting: str) -> None:
    assert ran.returncode == 2
    assert ran.stderr.startswith(f"watchword: {setting}")
    assert len(ran.stderr.splitlines()) == 1


def test_a_socket_in_a_folder_that_is_not_there_is_refused_in_one_sentence(short: Path) -> None:
    ran = watchword("serve", "--host", f"unix:{short}/nowhere/w.sock", "--data-dir", str(short / "data"))
    _refused(ran, "WATCHWORD_HOST")


def test_a_path_longer_than_a_socket_may_have_is_refused_in_one_sentence(short: Path) -> None:
    ran = watchword("serve", "--host", f"unix:{short}/{'x' * 200}.sock", "--data-dir", str(short / "data"))
    _refused(ran, "WATCHWORD_HOST")


def test_a_file_in_the_place_of_the_socket_is_refused_and_left_alone(short: Path) -> None:
    file = short / "w.sock"
    file.write_text("precious")
    _refused(watchword("serve", "--host", f"unix:{file}", "--data-dir", str(short / "data")), "WATCHWORD_HOST")
    assert file.read_text() == "precious"


def test_a_socket_another_server_listens_at_is_refused_and_goes_on_answering(
    short: Path, make_server: Callable[..., Server]
) -> None:
    path = short / "w.sock"
    make_server("--host", f"unix:{path}")
    ran = watchword("serve", "--host", f"unix:{path}", "--data-dir", str(short / "other"))
    assert ran.returncode == 1
    assert ran.stderr == f"watchword: WATCHWORD_HOST must name a free socket; another process listens at {path}.\n"
    with httpx.Client(transport=httpx.HTTPTransport(uds=str(path)), timeout=SECONDS) as client:
        assert client.get("http://localhost/health").status_code == 200


def test_a_server_starts_again_on_the_socket_that_a_killed_one_left(
    short: Path, make_server: Callable[..., Server]
) -> None:
    path = short / "w.sock"
    server = make_server("--host", f"unix:{path}")
    server.kill()
    assert path.is_socket()
    server.start()
    with httpx.Client(transport=httpx.HTTPTransport(uds=str(path)), timeout=SECONDS) as client:
        assert client.get("http://localhost/health").status_code == 200


@pytest.mark.parametrize("content", [None, "no certificate"])
def test_a_certificate_that_cannot_be_used_is_refused_in_one_sentence(short: Path, content: str | None) -> None:
    file = short / "cert.pem"
    if content is not None:
        file.write_text(content)
    ran = watchword("serve", "--tls-cert", str(file), "--tls-key", str(file), "--data-dir", str(short / "data"))
    _refused(ran, "WATCHWORD_TLS_CERT")
    assert str(file) in ran.stderr
