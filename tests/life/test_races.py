"""Races: a token is made while what it rests on is taken away. Whatever comes first, no live orphan is left."""

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

from tests.life.holding import DELETE_ACCOUNT, Held, Life
from tests.support import postgres as databases
from tests.support.server import ADMIN, GENERATE, SET_STATUS, GraphQLRefused, Server
from tests.support.store_file import assert_sound
from tests.support.storm import COME_AGAIN, insist
from tests.support.waiting import SECONDS

ROUNDS = 2
MAKERS = 4


@dataclass
class Doors:
    """The same store behind two doors: makers use both, and who takes away uses one."""

    life: Life
    servers: list[Server]

    def each(self) -> Iterator[Server]:
        while True:
            yield from self.servers


@pytest.fixture(scope="module", params=["sqlite", "postgres"])
def doors(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Doors]:
    folder = tmp_path_factory.mktemp("races")
    quiet = {"WATCHWORD_ACCESS_LOG": "off"}
    with ExitStack() as stack:
        if request.param == "sqlite":
            server = stack.enter_context(Server(folder, "--workers", "2", env=quiet))
            yield Doors(Life(server), [server])
            assert_sound(server)
            return
        home = stack.enter_context(databases.home(request.getfixturevalue("postgres"), folder))
        servers = [
            stack.enter_context(Server(folder / name, "--local-mode", "on", env=home.env | quiet)) for name in "ab"
        ]
        yield Doors(Life(servers[0]), servers)
        assert servers[0].command_line("db", "check", env=home.env).returncode == 0


@dataclass
class Race:
    made: list[Held] = field(default_factory=list)
    refusals: list[str] = field(default_factory=list)


def race(doors: Doors, make: Callable[[Life], Held], take_away: Callable[[], object], delay: float) -> Race:
    """Makers make as fast as they can, through both doors, until they are refused."""
    found = Race()

    def keep_making(server: Server) -> None:
        own = Life(Server(server.folder, port=server.port))
        while True:
            try:
                found.made.append(make(own))
            except GraphQLRefused as refusal:
                if refusal.reason in COME_AGAIN:
                    continue
                found.refusals.append(refusal.reason)
                break
            except httpx.HTTPError:  # pragma: no cover - said by the assertion on the refusals
                break
        own.server.http.close()

    threads = [
        threading.Thread(target=keep_making, args=(server,))
        for _, server in zip(range(MAKERS), doors.each(), strict=False)
    ]
    for thread in threads:
        thread.start()
    time.sleep(delay)
    insist(take_away)
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


def alive(doors: Doors, race: Race) -> list[Held]:
    return [held for held in race.made if doors.life.lives(held)]


MAKE: dict[str, Callable[[Held], Callable[[Life], Held]]] = {
    "derive": lambda bearer: lambda life: life.derive(bearer.token),
    "create": lambda bearer: (
        lambda life: life.create(bearer["actorUrn"], token=bearer.token, type=bearer["tokenType"], duration="ONE_HOUR")
    ),
    "rotate": lambda bearer: lambda life: life.rotate(bearer),
}


@pytest.mark.parametrize("how", MAKE)
def test_no_token_survives_the_revocation_of_its_bearer(doors: Doors, how: str) -> None:
    for delay in delays():
        bearer = doors.life.create(doors.life.new_actor())
        done = race(doors, MAKE[how](bearer), partial(doors.life.revoke, bearer, cascade=True), delay)
        assert alive(doors, done) == []


def test_no_derived_token_survives_the_revocation_of_its_grandparent(doors: Doors) -> None:
    for delay in delays():
        first = doors.life.create(doors.life.new_actor())
        second = doors.life.derive(first.token)
        third = doors.life.derive(second.token)
        done = race(doors, MAKE["derive"](third), partial(doors.life.revoke, first), delay)
        assert alive(doors, done) == []


@pytest.mark.parametrize("how", ["derive", "rotate"])
def test_no_token_survives_the_bulk_revocation_of_its_bearer(doors: Doors, how: str) -> None:
    for delay in delays():
        ann = doors.life.new_actor()
        bearer = doors.life.create(ann)
        chosen = [{"field": "actorUrn", "value": ann}, {"field": "id", "value": bearer.id}]
        done = race(doors, MAKE[how](bearer), partial(doors.life.revoke_many, filters=chosen), delay)
        assert alive(doors, done) == []


@pytest.mark.parametrize("how", MAKE)
def test_no_token_survives_the_deletion_of_its_account(doors: Doors, how: str) -> None:
    for delay in delays():
        account = doors.life.new_account()["urn"]
        doors.life.server.grant(account, privileges=(GENERATE,))
        bearer = doors.life.create(account, type="SERVICE_ACCOUNT")
        done = race(doors, MAKE[how](bearer), partial(doors.life.ask, DELETE_ACCOUNT, {"urn": account}), delay)
        assert alive(doors, done) == []


def _by_the_admin(account: str, life: Life) -> Held:
    return life.create(account, type="SERVICE_ACCOUNT", actor=ADMIN)


def test_nothing_is_made_for_an_account_that_is_deleted(doors: Doors) -> None:
    for delay in delays():
        account = doors.life.new_account()["urn"]
        done = race(
            doors,
            partial(_by_the_admin, account),
            partial(doors.life.ask, DELETE_ACCOUNT, {"urn": account}),
            delay,
        )
        assert set(done.refusals) <= {"account_not_found"}
        assert alive(doors, done) == []


@pytest.mark.parametrize("how", MAKE)
def test_no_token_of_a_suspended_actor_works(doors: Doors, how: str) -> None:
    for delay in delays():
        ann = doors.life.new_actor()
        bearer = doors.life.create(ann)
        suspend = {"urn": ann, "status": "SUSPENDED"}
        done = race(doors, MAKE[how](bearer), partial(doors.life.ask, SET_STATUS, suspend), delay)
        assert alive(doors, done) == []
