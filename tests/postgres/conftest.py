import os
import subprocess
from collections.abc import Iterator

import pytest

from tests.support.postgres import Cluster, own_cluster
from tests.support.system import need_program


@pytest.fixture(scope="session")
def durable_cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    """A cluster with fsync and TLS. Its certificate for 127.0.0.1 is in `folder / "ca.pem"`."""
    with own_cluster(tmp_path_factory.mktemp("careful"), fsync="on", max_connections="60") as cluster:
        _certify(cluster)
        yield cluster


def _certify(cluster: Cluster) -> None:
    certificate, key = cluster.data / "server.crt", cluster.data / "server.key"
    openssl = need_program("openssl", "openssl")
    wanted = "req -x509 -newkey ec -pkeyopt ec_paramgen_curve:P-256 -nodes -days 2 -subj /CN=database"
    words = [*wanted.split(), "-addext", "subjectAltName=IP:127.0.0.1", "-keyout", str(key), "-out", str(certificate)]
    subprocess.run([openssl, *words], check=True, capture_output=True)
    owner = cluster.data.stat()
    for file in (certificate, key):
        file.chmod(0o600)
        os.chown(file, owner.st_uid, owner.st_gid)
    (cluster.folder / "ca.pem").write_bytes(certificate.read_bytes())
    cluster.ask("ALTER SYSTEM SET ssl = on")
    cluster.ask("SELECT pg_reload_conf()")
