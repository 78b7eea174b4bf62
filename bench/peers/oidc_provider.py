"""oidc-provider on Node: tokens without content, kept in the memory of the one process."""

import itertools
import secrets
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from bench.peers.processes import MADE, Running, free_port, had, program, run
from bench.peers.work import CREATE, FILLED, LIST, REVOKE, VERIFY, Ask, Contender, Work, basic, form, gather

PACKAGE = "oidc-provider@9"
SITE = Path(__file__).parent / "site" / "oidc.mjs"
INSTALL_SECONDS, START_SECONDS, FILL_SECONDS = 120.0, 30.0, 60

NAME = "oidc-provider"
DIFFERS = {
    "": "keeps everything in the memory of one process: nothing is durable, and a restart forgets every token",
    VERIFY: "introspection (RFC 7662) by one confidential client",
    LIST: "it has no list",
    CREATE: "the client-credentials grant, in memory; the token is no JWT and nothing is signed",
    REVOKE: "RFC 7009 by the client that was given the token, in memory",
}


def need() -> str:
    """Returns what was installed."""
    npm = program("npm", "npm")
    words = ["install", "--ignore-scripts", "--no-audit", "--no-fund", "--loglevel=error", PACKAGE]

    def install(folder: Path) -> None:
        (folder / "package.json").write_text('{"private": true}\n')
        run([npm, *words], folder, INSTALL_SECONDS)

    folder = had("node", install)
    return run(["node", "-p", "require('oidc-provider/package.json').version"], folder, INSTALL_SECONDS).strip()


class Oidc(Contender):
    def __init__(self, url: str, client: dict[str, str], running: Running) -> None:
        super().__init__(NAME, url, DIFFERS, running.cpu_seconds)
        self._client = client
        create = Work(self._creations, 200, '"access_token":"', kept='"access_token":"([^"]+)"', keep=self.made.extend)
        wanted = Work(lambda: [self._creation()] * FILLED, 200, create.words, kept=create.kept, once=True)
        self._live = gather(url, wanted, FILL_SECONDS)
        self.works = {
            VERIFY: Work(self._verifications, 200, '"active":true', look=20),
            CREATE: create,
            REVOKE: Work(self._revocations, 200, once=True, over=self.ended),
        }

    def _creation(self) -> Ask:
        return form("/token", self._client, grant_type="client_credentials")

    def _creations(self) -> Iterator[Ask]:
        return itertools.repeat(self._creation())

    def _verifications(self) -> Iterator[Ask]:
        return (form("/token/introspection", self._client, token=token) for token in self._live)

    def _revocations(self) -> Iterator[Ask]:
        return (form("/token/revocation", self._client, token=token) for token in self.made)


@contextmanager
def start(folder: Path) -> Iterator[Contender]:
    port, secret = free_port(), secrets.token_urlsafe(32)
    url = f"http://127.0.0.1:{port}"
    # A module finds its packages by where it lies.
    site = MADE / "node" / "bench.mjs"
    site.write_text(SITE.read_text())
    environment = {"NODE_ENV": "production", "BENCH_PORT": str(port), "BENCH_SECRET": secret}
    with Running(["node", site], folder, url, START_SECONDS, environment) as running:
        yield Oidc(url, basic("bench", secret), running)
