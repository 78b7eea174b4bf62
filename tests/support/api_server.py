"""A kube-apiserver with its etcd. There are no nodes and no controllers: it accepts, rejects and stores."""

import secrets
import ssl
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import httpx
import yaml
from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric import rsa

from tests.support.certificates import make_certificate
from tests.support.go_programs import go_program
from tests.support.ports import free_port
from tests.support.system import need_program
from tests.support.waiting import until

ISSUER = "https://kubernetes.default.svc"
PLURALS = {"Ingress": "ingresses", "NetworkPolicy": "networkpolicies"}
"""Of the others, the kind in lower case with an s."""


@dataclass(frozen=True)
class ApiServer:
    config: Path
    """For kubectl and Helm: who may do everything."""
    http: httpx.Client

    def create(self, path: str, content: Any) -> None:
        """Fails if the server rejects it, or if it has a field that the server does not know."""
        answer = self.http.post(path, params={"fieldValidation": "Strict"}, json=content)
        assert answer.is_success, answer.text

    def stored(self, namespace: str, manifest: Any) -> Any:
        """What it has of this kind and name; None if nothing."""
        kind, version = manifest["kind"], manifest["apiVersion"]
        group = f"/apis/{version}" if "/" in version else f"/api/{version}"
        plural = PLURALS.get(kind, f"{kind.lower()}s")
        answer = self.http.get(f"{group}/namespaces/{namespace}/{plural}/{manifest['metadata']['name']}")
        assert answer.is_success or answer.status_code == 404, answer.text
        return answer.json() if answer.is_success else None


@contextmanager
def running_api_server(folder: Path) -> Iterator[ApiServer]:
    """Both end with this process."""
    program, etcd = go_program("kube-apiserver"), need_program("etcd", "etcd-server")
    folder.mkdir(parents=True)
    store, peers = (f"http://127.0.0.1:{free_port()}" for _ in range(2))
    url, token = f"https://127.0.0.1:{free_port()}", secrets.token_urlsafe()
    chain, key = make_certificate(folder)
    (folder / "tokens.csv").write_text(f'{token},admin,admin,"system:masters"\n')
    signing = rsa.generate_private_key(65_537, 2_048).private_bytes(
        serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
    )
    (folder / "signing.pem").write_bytes(signing)
    (folder / "config").write_text(_config(url, chain, token))
    with (
        _process(
            folder / "etcd.log", etcd, f"--data-dir={folder / 'etcd'}", f"--listen-client-urls={store}",
            f"--advertise-client-urls={store}", f"--listen-peer-urls={peers}", f"--initial-advertise-peer-urls={peers}",
            f"--initial-cluster=default={peers}",
        ),
        _process(
            folder / "api-server.log", program, f"--etcd-servers={store}", "--bind-address=127.0.0.1",
            "--advertise-address=127.0.0.1", f"--secure-port={url.rpartition(':')[2]}", f"--cert-dir={folder}",
            f"--tls-cert-file={chain}", f"--tls-private-key-file={key}", "--endpoint-reconciler-type=none",
            "--service-cluster-ip-range=10.96.0.0/24", "--authorization-mode=RBAC",
            f"--token-auth-file={folder / 'tokens.csv'}", f"--service-account-issuer={ISSUER}",
            f"--service-account-key-file={folder / 'signing.pem'}",
            f"--service-account-signing-key-file={folder / 'signing.pem'}",
            f"--service-account-jwks-uri={url}/openid/v1/jwks",
        ) as server,
        httpx.Client(
            base_url=url, headers={"Authorization": f"Bearer {token}"}, timeout=60,
            verify=ssl.create_default_context(cafile=str(chain)),
        ) as http,
    ):  # fmt: skip
        until(lambda: _is_ready(http) or server.poll() is not None, f"it is ready: {folder / 'api-server.log'}")
        assert server.poll() is None, (folder / "api-server.log").read_text()[-2_000:]
        yield ApiServer(folder / "config", http)


@contextmanager
def _process(log: Path, *command: str | Path) -> Iterator[subprocess.Popen[bytes]]:
    dies = (need_program("setpriv", "util-linux"), "--pdeathsig", "KILL")
    with log.open("wb") as out:
        process = subprocess.Popen([*dies, *command], stdout=out, stderr=out)
    try:
        yield process
    finally:
        process.kill()
        process.wait()


def _is_ready(http: httpx.Client) -> bool:
    with suppress(httpx.HTTPError):
        return http.get("/readyz").status_code == 200
    return False


def _config(url: str, chain: Path, token: str) -> str:
    cluster = {"server": url, "certificate-authority": str(chain)}
    return yaml.safe_dump(
        {
            "apiVersion": "v1",
            "kind": "Config",
            "clusters": [{"name": "test", "cluster": cluster}],
            "users": [{"name": "admin", "user": {"token": token}}],
            "contexts": [{"name": "test", "context": {"cluster": "test", "user": "admin"}}],
            "current-context": "test",
        }
    )
