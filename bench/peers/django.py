"""django-rest-knox and django-oauth-toolkit, each on gunicorn, on SQLite or on PostgreSQL."""

import itertools
import json
import os
import secrets
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from bench.contenders import ROOT
from bench.peers.processes import MADE, Running, free_port, had, run
from bench.peers.work import CREATE, LIST, OWNERS, REVOKE, TOKENS, VERIFY, Ask, Contender, Work, basic, form
from tests.support.postgres import Cluster

PACKAGES = ("django-oauth-toolkit==3.*", "django-rest-knox==5.*", "gunicorn", "psycopg[binary]")
SITE = Path(__file__).parent / "site"
INSTALL_SECONDS, START_SECONDS, FILL_SECONDS = 180.0, 60.0, 120.0
WORKERS = ("--workers=2", "--worker-class=gthread", "--threads=4", "--keep-alive=60")

KNOX, TOOLKIT = "django-rest-knox", "django-oauth-toolkit"
MODULES = {KNOX: "knox", TOOLKIT: "oauth2_provider"}
DIFFERS = {
    KNOX: {
        VERIFY: "a view of ours behind its authentication, which answers 204; it reads all tokens of the user to end "
        "those that have expired",
        LIST: "it has no list: a view of ours over its model",
        CREATE: "its login view, by a bearer; a token has no name, no event is written, and nothing is signed",
        REVOKE: "its logout view: a token revokes itself, and its row is deleted",
    },
    TOOLKIT: {
        VERIFY: "a view of ours behind its bearer check, which answers 204",
        LIST: "its page of HTML, by the session of a user who has logged in",
        CREATE: "the client-credentials grant, by a client whose secret is not hashed; no event is written, and "
        "nothing is signed",
        REVOKE: "RFC 7009 by the client, and the row is deleted",
    },
}


def need() -> str:
    """Returns what was installed."""
    uv = ROOT / ".venv/bin/uv"

    def install(folder: Path) -> None:
        run([uv, "venv", "--quiet", "--clear", "--no-project", "--python", ROOT / ".venv/bin/python", folder], ROOT, 60)
        run([uv, "pip", "install", "--quiet", "--python", folder, *PACKAGES], ROOT, INSTALL_SECONDS)

    folder = had("django", install)
    listed = run([uv, "pip", "list", "--quiet", "--format=json", "--python", folder], ROOT, 60)
    wanted = {KNOX, TOOLKIT, "django", "gunicorn"}
    return ", ".join(f"{one['name']} {one['version']}" for one in json.loads(listed) if one["name"] in wanted)


class Site(Contender):
    """A site that answers; its database's processor time counts too."""

    def __init__(
        self, peer: str, name: str, url: str, secret: str, cpu_seconds: Callable[[], float], file: Path
    ) -> None:
        super().__init__(name, url, DIFFERS[peer], cpu_seconds)
        self._client = basic("bench", secret)
        there: dict[str, list[str]] = json.loads(file.read_text())
        self._live, self._sessions = there["tokens"], there["sessions"]
        self.works = self._knox() if peer == KNOX else self._toolkit()

    def _knox(self) -> dict[str, Work]:
        return {
            VERIFY: Work(lambda: (_by("GET", "/who", token) for token in self._live), 204),
            LIST: Work(lambda: (_by("GET", "/own", token) for token in self._live), 200, '[{"token_key":"', look=20),
            CREATE: Work(
                lambda: (_by("POST", "/login", token) for token in itertools.cycle(self._live)),
                200,
                '"token":"',
                kept='"token":"([^"]+)"',
                keep=self.made.extend,
            ),
            REVOKE: Work(
                lambda: (_by("POST", "/logout", token) for token in self.made), 204, once=True, over=self.ended
            ),
        }

    def _toolkit(self) -> dict[str, Work]:
        return {
            VERIFY: Work(lambda: (_by("GET", "/who", token) for token in self._live), 204),
            LIST: Work(
                lambda: (Ask("GET", "/o/authorized_tokens/", {"Cookie": session}) for session in self._sessions),
                200,
                "/o/authorized_tokens/",
                look=20,
            ),
            CREATE: Work(
                lambda: itertools.repeat(form("/o/token/", self._client, grant_type="client_credentials")),
                200,
                '"access_token": "',
                kept='"access_token": "([^"]+)"',
                keep=self.made.extend,
            ),
            REVOKE: Work(
                lambda: (form("/o/revoke_token/", self._client, token=token) for token in self.made),
                200,
                once=True,
                over=self.ended,
            ),
        }


def _by(method: str, path: str, token: str) -> Ask:
    return Ask(method, path, {"Authorization": f"Bearer {token}"})


@contextmanager
def start(peer: str, folder: Path, cluster: Cluster | None, database_cpu: Callable[[], float]) -> Iterator[Contender]:
    """On SQLite, or on this PostgreSQL."""
    port, secret, filled = free_port(), secrets.token_urlsafe(32), folder / "filled.json"
    environment = {
        "BENCH_PEER": MODULES[peer],
        "BENCH_DATABASE": json.dumps(_database(peer, folder, cluster)),
        "BENCH_SECRET": secret,
    }
    python = MADE / "django" / "bin"
    told = json.dumps({"owners": OWNERS, "tokens": TOKENS, "secret": secret})
    run([python / "python", SITE / "django_site.py", filled, told], folder, FILL_SECONDS, **environment)
    os.sync()
    command: list[str | Path] = [
        python / "gunicorn",
        f"--bind=127.0.0.1:{port}",
        "--pythonpath",
        SITE,
        *WORKERS,
        "--log-level=warning",
    ]
    url, name = f"http://127.0.0.1:{port}", f"{peer} on {'SQLite' if cluster is None else 'PostgreSQL'}"
    with Running([*command, "django_site"], folder, url, START_SECONDS, environment) as running:
        yield Site(peer, name, url, secret, lambda: running.cpu_seconds() + database_cpu(), filled)


def _database(peer: str, folder: Path, cluster: Cluster | None) -> Any:
    if cluster is None:
        return str(folder / "db.sqlite3")
    name = f"peer_{MODULES[peer]}"
    cluster.ask(f"CREATE DATABASE {name}")
    return {"NAME": name, "HOST": "127.0.0.1", "PORT": str(cluster.port), "USER": "ww"}
