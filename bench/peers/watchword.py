"""Watchword among its peers: as it is shipped, with at least as many tokens, on SQLite or on PostgreSQL."""

import itertools
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

from bench import cases
from bench.contenders import BARE, ON_DATABASE, WATCHWORD
from bench.contenders import Contender as Server
from bench.peers.processes import json_headers
from bench.peers.work import CREATE, LIST, LISTED, REVOKE, TOKENS, VERIFY, Ask, Contender, Work
from bench.population import empty, populate
from bench.postgres import settings_of
from tests.support.postgres import Cluster, Home

SIZE = 2 * TOKENS
"""So that as many as others have are live, and used."""
ON_SQLITE, ON_POSTGRES = f"{WATCHWORD} on SQLite", f"{WATCHWORD} on PostgreSQL"
_PATH = "/api/graphql"


class Watchword(Contender):
    def __init__(self, name: str, server: Server, database_cpu: Callable[[], float]) -> None:
        super().__init__(name, server.url, {}, lambda: server.cpu_seconds() + database_cpu())
        self._callers = server.population.callers
        self._root = server.root.token
        self.works = {
            VERIFY: Work(self._verifications, 204, look=0),
            LIST: Work(self._lists, 200, '"tokens":[{', look=20),
            CREATE: Work(
                self._creations, 200, '"accessToken":"', kept='"id":"([^"]+)"', keep=self.made.extend, once=True
            ),
            REVOKE: Work(self._revocations, 200, '"revokeAccessToken":true', once=True, over=self.ended),
        }

    def _verifications(self) -> Iterator[Ask]:
        return (Ask("GET", "/auth", {"Authorization": f"Bearer {caller.token}"}) for caller in self._callers)

    def _lists(self) -> Iterator[Ask]:
        for caller in self._callers:
            mine = [{"field": "ownerUrn", "value": caller.actor}]
            yield _post(cases.post(caller.token, cases.LIST, input={"start": 0, "count": LISTED, "filters": mine}))

    def _creations(self) -> Iterator[Ask]:
        for number, caller in enumerate(itertools.cycle(self._callers)):
            wanted = {"type": "PERSONAL", "actorUrn": caller.actor, "duration": "ONE_DAY", "name": f"b{number}"}
            yield _post(cases.post(caller.token, cases.CREATE, input=wanted))

    def _revocations(self) -> Iterator[Ask]:
        return (_post(cases.post(self._root, cases.REVOKE, id=token_id)) for token_id in self.made)


def _post(request: cases.Request) -> Ask:
    return Ask("POST", _PATH, json_headers(Authorization=f"Bearer {request.bearer}"), request.body)


@contextmanager
def start(folder: Path, cluster: Cluster | None, database_cpu: Callable[[], float]) -> Iterator[Contender]:
    """On SQLite, or on this PostgreSQL."""
    settings = {} if cluster is None else settings_of(Home(cluster, folder))
    population = populate(folder / "data", SIZE, settings, callers=TOKENS)
    kind, name = (WATCHWORD, ON_SQLITE) if cluster is None else (ON_DATABASE, ON_POSTGRES)
    with Server(kind, folder, population, SIZE, settings) as server:
        yield Watchword(name, server, database_cpu)


@contextmanager
def start_bare(folder: Path) -> Iterator[Contender]:
    """The response of a server that does nothing else, to show what the machine can do."""
    with Server(BARE, folder, empty()) as server:
        contender = Contender(BARE, server.url, {}, server.cpu_seconds)
        contender.tokens = None
        contender.works = {VERIFY: Work(lambda: [Ask("GET", "/0")], 204, look=0)}
        yield contender
