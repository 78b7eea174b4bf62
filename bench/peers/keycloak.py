"""Keycloak on PostgreSQL: signed access tokens, each of a session that is kept in the database."""

import hashlib
import itertools
import os
import secrets
import zipfile
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import httpx

from bench.peers.processes import NotInstalled, Running, free_port, had, program, run
from bench.peers.work import (
    CREATE,
    FILLED,
    LIST,
    LISTED,
    OWNERS,
    REVOKE,
    VERIFY,
    Ask,
    Contender,
    Work,
    basic,
    form,
    gather,
)
from tests.support.postgres import Cluster

VERSION = "26.2.5"
PART = f"org.keycloak:keycloak-quarkus-dist:{VERSION}:zip"
SHA256 = "31c298273557bd53270905ae63c1522e319d2137ccce17318171864be496d699"
COPY = "org.apache.maven.plugins:maven-dependency-plugin:3.9.0:copy"
FETCH_SECONDS, BUILD_SECONDS, START_SECONDS, FILL_SECONDS = 400.0, 600.0, 600.0, 120
DAY = 86_400
TEN = 10
LEAST_TOKENS = TEN * LISTED
"""A password grant is slow to warm up: on a busy machine there are as many as two minutes make."""
REALM = "/realms/bench/protocol/openid-connect"
DATABASE = "peer_keycloak"
ACCESS, REFRESH = '"access_token":"([^"]+)"', '"refresh_token":"([^"]+)"'

NAME = "Keycloak on PostgreSQL"
DIFFERS = {
    "": "a token belongs to a session: memory answers for it, and the database keeps it",
    VERIFY: "introspection (RFC 7662) by one confidential client; the signature and the session are checked",
    LIST: "an administrator lists the sessions of a user",
    CREATE: "the password grant: a session, an access token and a refresh token; passwords are hashed once only",
    REVOKE: "RFC 7009 for the refresh token, which ends the session",
}


def need() -> str:
    """Returns what was installed."""
    install("postgres")
    return VERSION


def install(database: str) -> Path:
    """Keycloak's folder, built for this database, and kept."""
    program("java", "default-jre-headless")
    maven = program("mvn", "maven")
    home = f"keycloak-{VERSION}"

    def make(folder: Path) -> None:
        words = ["--batch-mode", "--quiet", COPY, f"-Dartifact={PART}", f"-DoutputDirectory={folder}"]
        run([maven, *words], folder, FETCH_SECONDS)
        packed = next(folder.glob("*.zip"))
        if hashlib.sha256(packed.read_bytes()).hexdigest() != SHA256:
            raise NotInstalled(f"{packed.name} is not the file whose hash is known.")
        with zipfile.ZipFile(packed) as files:
            files.extractall(folder)
        packed.unlink()
        for script in (folder / home / "bin").glob("*.sh"):
            script.chmod(0o755)
        run([folder / home / "bin" / "kc.sh", "build", f"--db={database}"], folder, BUILD_SECONDS)

    return had(f"keycloak-{database}", make) / home


def server(
    folder: Path,
    database: str,
    url: str,
    administrator: tuple[str, str],
    flags: Mapping[str, str],
    *prefix: str,
    **environment: str,
) -> Running:
    """Keycloak at a loopback address; its log is in the folder. The words of `prefix` go before its command."""
    given = {
        "http-enabled": "true",
        "http-host": "127.0.0.1",
        "http-port": url.rpartition(":")[2],
        "hostname-strict": "false",
        "cache": "local",
        "log-level": "warn",
        **flags,
    }
    first = dict(zip(("KC_BOOTSTRAP_ADMIN_USERNAME", "KC_BOOTSTRAP_ADMIN_PASSWORD"), administrator, strict=True))
    words = ["start", "--optimized", *(f"--{name}={value}" for name, value in given.items())]
    return Running(
        [*prefix, install(database) / "bin" / "kc.sh", *words],
        folder,
        url,
        START_SECONDS,
        first | environment,
        slow=True,
    )


class Keycloak(Contender):
    def __init__(self, url: str, admin_password: str, cpu_seconds: Callable[[], float]) -> None:
        super().__init__(NAME, url, DIFFERS, cpu_seconds)
        client_secret, self._password = secrets.token_urlsafe(32), secrets.token_urlsafe(16)
        self._client = basic("bench", client_secret)
        with httpx.Client(base_url=url, timeout=120) as client:
            self._admin = _admin(client, admin_password)
            client.headers.update(self._admin)
            _asked(client.post("/admin/realms", json=_realm(client_secret, self._password)))
            users = _asked(client.get("/admin/realms/bench/users", params={"max": OWNERS})).json()
            self._users = [user["id"] for user in sorted(users, key=lambda user: int(user["lastName"]))]
        create = Work(self._creations, 200, '"access_token":"', kept=REFRESH, keep=self.made.extend)
        filling = Work(self._fillings, 200, create.words, kept=ACCESS, once=True)
        self._live = gather(url, filling, FILL_SECONDS, least=LEAST_TOKENS)
        self.tokens = len(self._live)
        self._full = self.tokens // LEAST_TOKENS * TEN
        self.works = {
            VERIFY: Work(self._verifications, 200, '"active":true', look=10),
            LIST: Work(self._lists, 200, '"username":"', look=10),
            CREATE: create,
            REVOKE: Work(self._revocations, 200, once=True, over=self.ended),
        }

    def _fillings(self) -> Iterator[Ask]:
        """Of ten owners after the other, so that the first have as many as are listed wherever it ends."""
        for number in range(FILLED):
            yield self._creation((number // LEAST_TOKENS * TEN + number % TEN) % OWNERS)

    def _creations(self) -> Iterator[Ask]:
        return (self._creation(number % OWNERS) for number in itertools.count())

    def _creation(self, owner: int) -> Ask:
        who = f"owner{owner}"
        return form(f"{REALM}/token", self._client, grant_type="password", username=who, password=self._password)

    def _verifications(self) -> Iterator[Ask]:
        return (form(f"{REALM}/token/introspect", self._client, token=token) for token in self._live)

    def _lists(self) -> Iterator[Ask]:
        return (
            Ask("GET", f"/admin/realms/bench/users/{user}/sessions", self._admin) for user in self._users[: self._full]
        )

    def _revocations(self) -> Iterator[Ask]:
        return (form(f"{REALM}/revoke", self._client, token=token) for token in self.made)


def _realm(client_secret: str, password: str) -> dict[str, Any]:
    """A realm whose sessions outlast the run. Passwords are hashed in a single round."""
    return {
        "realm": "bench",
        "enabled": True,
        "sslRequired": "none",
        "accessTokenLifespan": DAY,
        "ssoSessionIdleTimeout": 2 * DAY,
        "ssoSessionMaxLifespan": 2 * DAY,
        "passwordPolicy": "hashAlgorithm(pbkdf2-sha256) and hashIterations(1)",
        "clients": [
            {
                "clientId": "bench",
                "secret": client_secret,
                "publicClient": False,
                "directAccessGrantsEnabled": True,
                "standardFlowEnabled": False,
            }
        ],
        "users": [
            {
                "username": f"owner{number}",
                "email": f"owner{number}@example.com",
                "emailVerified": True,
                "firstName": "Owner",
                "lastName": str(number),
                "enabled": True,
                "credentials": [{"type": "password", "value": password}],
            }
            for number in range(OWNERS)
        ],
    }


def _admin(client: httpx.Client, password: str) -> dict[str, str]:
    """The bearer of the administrator, for as long as the run takes."""
    who = {"grant_type": "password", "client_id": "admin-cli", "username": "bench", "password": password}
    path = "/realms/master/protocol/openid-connect/token"
    short = _bearer(client.post(path, data=who))
    _asked(client.put("/admin/realms/master", headers=short, json={"realm": "master", "accessTokenLifespan": DAY}))
    return _bearer(client.post(path, data=who))


def _bearer(answer: httpx.Response) -> dict[str, str]:
    return {"Authorization": f"Bearer {_asked(answer).json()['access_token']}"}


def _asked(answer: httpx.Response) -> httpx.Response:
    if answer.status_code >= 300:
        raise SystemExit(f"Keycloak, {answer.request.url.path}: {answer.status_code} {answer.text}")
    return answer


@contextmanager
def start(folder: Path, cluster: Cluster, database_cpu: Callable[[], float]) -> Iterator[Contender]:
    port, password = free_port(), secrets.token_urlsafe(16)
    url = f"http://127.0.0.1:{port}"
    cluster.ask(f"CREATE DATABASE {DATABASE}")
    flags = {"db-url": f"jdbc:postgresql://127.0.0.1:{cluster.port}/{DATABASE}", "db-username": "ww"}
    one_core = "-XX:ActiveProcessorCount=1"  # as on the one where it will be
    running = server(
        folder, "postgres", url, ("bench", password), flags, KC_DB_PASSWORD="unused", JAVA_OPTS_APPEND=one_core
    )
    with running:
        contender = Keycloak(url, password, lambda: running.cpu_seconds() + database_cpu())
        running.settle()
        os.sync()
        yield contender
