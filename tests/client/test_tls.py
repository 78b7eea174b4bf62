"""Both clients and the command line verify certificates; a named CA is trusted."""

import ssl
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.support.both_clients import Clients
from tests.support.server import ADMIN, Server, watchword
from tests.support.system import need_program
from watchword.client import Unreachable


@pytest.fixture(scope="module")
def encrypted(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[str, Path]]:
    """The address of a server with a self-signed certificate, and the certificate's file."""
    folder = tmp_path_factory.mktemp("tls")
    certificate, key = folder / "cert.pem", folder / "key.pem"
    openssl = need_program("openssl", "openssl")
    wanted = "req -x509 -newkey ec -pkeyopt ec_paramgen_curve:P-256 -nodes -days 2 -subj /CN=127.0.0.1"
    words = [*wanted.split(), "-addext", "subjectAltName=IP:127.0.0.1", "-keyout", str(key), "-out", str(certificate)]
    subprocess.run([openssl, *words], check=True, capture_output=True)
    with Server(folder / "server", "--tls-cert", str(certificate), "--tls-key", str(key)) as server:
        yield server.url.replace("http:", "https:"), certificate


def test_unknown_certificate_is_rejected_and_a_named_one_believed(
    encrypted: tuple[str, Path], connect: Clients
) -> None:
    url, certificate = encrypted
    with pytest.raises(Unreachable, match="CERTIFICATE_VERIFY_FAILED"):
        connect(url, actor=ADMIN, retries=0).me()
    own = ssl.create_default_context(cafile=certificate)
    assert connect(url, actor=ADMIN, verify=own).me().urn == ADMIN


def test_http_to_a_port_with_tls_is_explained(encrypted: tuple[str, Path], connect: Clients) -> None:
    url, _ = encrypted
    plain = url.replace("https:", "http:")
    with pytest.raises(Unreachable, match="uses TLS on this port") as lost:
        connect(plain, actor=ADMIN, retries=0).me()
    assert lost.value.use_url == url
    ran = watchword("whoami", "--url", plain, "--as", ADMIN)
    assert ran.stderr.endswith(f"The server uses TLS on this port. Pass --url {url}\n")


def test_https_to_a_port_without_tls_is_explained(server: Server, connect: Clients) -> None:
    with pytest.raises(Unreachable, match="does not use TLS on this port") as lost:
        connect(server.url.replace("http:", "https:"), actor=ADMIN, retries=0).me()
    assert lost.value.use_url == server.url


def test_commands_believe_the_certificate_that_the_environment_names(encrypted: tuple[str, Path]) -> None:
    url, certificate = encrypted
    refused = watchword("whoami", "--url", url, "--as", ADMIN)
    assert refused.returncode == 1
    assert "SSL_CERT_FILE" in refused.stderr
    believed = watchword("whoami", "--url", url, "--as", ADMIN, env={"SSL_CERT_FILE": str(certificate)})
    assert (believed.returncode, believed.stderr) == (0, "")
