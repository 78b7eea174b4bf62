"""Races: tokens are created while their bearer, parent, account or actor is removed. No live orphan is left."""

import random
import secrets
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from dataclasses import dataclass, field
from functools import partial

import httpx
import pytest

from tests.life.holding import DELETE_ACCOUNT, HeldToken, LifecycleClient
from tests.support import postgres as databases
from tests.support.concurrent_load import RETRIABLE, retry_until_done
from tests.support.server import ADMIN, GENERATE, SET_STATUS, GraphQLRefused, Server
from tests.support.store_file import assert_sound
from tests.support.waiting import SECONDS

ROUNDS = 2
MAKERS = 4


@dataclass
class RaceEndpoints:
    """The same store through two servers: creators use both, the revoker uses one."""

    life: LifecycleClient
    servers: list[Server]

    def each(self) -> Iterator[Server]:
        while True:
            yield from self.servers


@pytest.fixture(scope="module", params=["sqlite", "postgres"])
def endpoints(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[RaceEndpoints]:
    folder = tmp_path_factory.mktemp("races")
    quiet = {"WATCHWORD_ACCESS_LOG": "off"}
    with ExitStack() as stack:
        if request.param == "sqlite":
            server = stack.enter_context(Server(folder, "--workers", "2", env=quiet))
            yield RaceEndpoints(LifecycleClient(server), [server])
            assert_sound(server)
            return
        home = stack.enter_context(databases.home(request.getfixturevalue("postgres"), folder))
        servers = [
            stack.enter_context(Server(folder / name, "--local-mode", "on", env=home.env | quiet)) for name in "ab"
        ]
        yield RaceEndpoints(LifecycleClient(servers[0]), servers)
        assert servers[0].command_line("db", "check", env=home.env).returncode == 0


@dataclass
class Race:
    made: list[HeldToken] = field(default_factory=list)
    refusals: list[str] = field(default_factory=list)


def race(
    endpoints: RaceEndpoints,
    make: Callable[[LifecycleClient], HeldToken],
    take_away: Callable[[], object],
    delay: float,
) -> Race:
    """Clients create as fast as they can, through both servers, until rejected."""
    found = Race()

    def keep_creating(server: Server) -> None:
        own = LifecycleClient(Server(server.folder, port=server.port))
        while True:
            try:
                found.made.append(make(own))
            except GraphQLRefused as refusal:
                if refusal.reason in RETRIABLE:
                    continue
                found.refusals.append(refusal.reason)
                break
            except httpx.HTTPError:  # pragma: no cover - said by the assertion on the refusals
                break
        own.server.http.close()

    threads = [
        threading.Thread(target=keep_creating, args=(server,))
        for _, server in zip(range(MAKERS), endpoints.each(), strict=False)
    ]
    for thread in threads:
        thread.start()
    time.sleep(delay)
    retry_until_done(take_away)
    for thread in threads:
        thread.join(2 * SECONDS)
        assert not thread.is_alive(), "making went on"
    assert len(found.refusals) == MAKERS
    return found


def delays() -> Iterator[float]:
    seed = secrets.randbits(32)
    print(f"seed {seed}")
    chance = random.Random(seed)
    return (chance.uniform(0, 0.15) for _ in range(ROUNDS))


def alive(endpoints: RaceEndpoints, race: Race) -> list[HeldToken]:
    return [held for held in race.made if endpoints.life.is_accepted(held)]


MAKE: dict[str, Callable[[HeldToken], Callable[[LifecycleClient], HeldToken]]] = {
    "derive": lambda bearer: lambda life: life.derive(bearer.token),
    "create": lambda bearer: (
        lambda life: life.create(bearer["actorUrn"], token=bearer.token, type=bearer["tokenType"], duration="ONE_HOUR")
    ),
    "rotate": lambda bearer: lambda life: life.rotate(bearer),
}


@pytest.mark.parametrize("how", MAKE)
def test_no_token_survives_the_revocation_of_its_bearer(endpoints: RaceEndpoints, how: str) -> None:
    for delay in delays():
        bearer = endpoints.life.create(endpoints.life.new_actor())
        done = race(endpoints, MAKE[how](bearer), partial(endpoints.life.revoke, bearer, cascade=True), delay)
        assert alive(endpoints, done) == []


def test_no_derived_token_survives_the_revocation_of_its_grandparent(endpoints: RaceEndpoints) -> None:
    for delay in delays():
        first = endpoints.life.create(endpoints.life.new_actor())
        second = endpoints.life.derive(first.token)
        third = endpoints.life.derive(second.token)
        done = race(endpoints, MAKE["derive"](third), partial(endpoints.life.revoke, first), delay)
        assert alive(endpoints, done) == []


@pytest.mark.parametrize("how", ["derive", "rotate"])
def test_no_token_survives_the_bulk_revocation_of_its_bearer(endpoints: RaceEndpoints, how: str) -> None:
    for delay in delays():
        ann = endpoints.life.new_actor()
        bearer = endpoints.life.create(ann)
        chosen = [{"field": "actorUrn", "value": ann}, {"field": "id", "value": bearer.id}]
        done = race(endpoints, MAKE[how](bearer), partial(endpoints.life.revoke_many, filters=chosen), delay)
        assert alive(endpoints, done) == []


@pytest.mark.parametrize("how", MAKE)
def test_no_token_survives_the_deletion_of_its_account(endpoints: RaceEndpoints, how: str) -> None:
    for delay in delays():
        account = endpoints.life.new_account()["urn"]
        endpoints.life.server.grant(account, privileges=(GENERATE,))
        bearer = endpoints.life.create(account, type="SERVICE_ACCOUNT")
        done = race(endpoints, MAKE[how](bearer), partial(endpoints.life.ask, DELETE_ACCOUNT, {"urn": account}), delay)
        assert alive(endpoints, done) == []


def _by_the_admin(account: str, life: LifecycleClient) -> HeldToken:
    return life.create(account, type="SERVICE_ACCOUNT", actor=ADMIN)


def test_no_token_is_created_for_a_deleted_account(endpoints: RaceEndpoints) -> None:
    for delay in delays():
        account = endpoints.life.new_account()["urn"]
        done = race(
            endpoints,
            partial(_by_the_admin, account),
            partial(endpoints.life.ask, DELETE_ACCOUNT, {"urn": account}),
            delay,
        )
        assert set(done.refusals) <= {"account_not_found"}
        assert alive(endpoints, done) == []


@pytest.mark.parametrize("how", MAKE)
def test_no_token_of_a_suspended_actor_works(endpoints: RaceEndpoints, how: str) -> None:
    for delay in delays():
        ann = endpoints.life.new_actor()
        bearer = endpoints.life.create(ann)
        suspend = {"urn": ann, "status": "SUSPENDED"}
        done = race(endpoints, MAKE[how](bearer), partial(endpoints.life.ask, SET_STATUS, suspend), delay)
        assert alive(endpoints, done) == []
