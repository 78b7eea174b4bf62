"""Many tokens ended by one call: from its answer on every instance refuses each of them at its next request."""

from collections.abc import Callable, Iterator
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from bench.fill import is_revoked
from bench.population import populate, text_of
from tests.life.holding import Life
from tests.support import postgres as databases
from tests.support.server import GraphQLRefused, Server, plain_client
from tests.support.waiting import until

INSTANCES = 3
PREFIX = "token 1"
"""Begins the names of as many live ones as half the size, when that is a power of ten."""


@dataclass(frozen=True, slots=True)
class Fleet:
    servers: list[Server]
    size: int

    @property
    def meant(self) -> list[int]:
        """The numbers of the live tokens whose name begins so."""
        return [number for number in range(self.size) if str(number).startswith("1") and not is_revoked(number)]


@pytest.fixture
def fleet(request: pytest.FixtureRequest, postgres: databases.Address, tmp_path: Path) -> Iterator[Fleet]:
    """Three instances on one database with so many tokens."""
    size: int = request.param
    with databases.home(postgres, tmp_path) as home, ExitStack() as stack:
        told = {name.removeprefix("WATCHWORD_").lower(): value for name, value in home.env.items()}
        populate(tmp_path / "data", size, told)
        servers = [
            stack.enter_context(Server(tmp_path / str(number), "--local-mode", "on", env=home.env))
            for number in range(INSTANCES)
        ]
        yield Fleet(servers, size)
        assert servers[0].command_line("db", "check", env=home.env).returncode == 0


def end_all_and_ask_each(fleet: Fleet, samples: int) -> None:
    meant = fleet.meant
    sample = meant[:: len(meant) // samples][:samples]
    for server in fleet.servers:
        assert statuses(server, sample[:20]) == {204}
    stays = [number for number in range(fleet.size) if not str(number).startswith("1") and not is_revoked(number)]
    chosen = [{"field": "name", "condition": "START_WITH", "value": PREFIX}]
    life = Life(fleet.servers[0])
    foretold = once_there_is_time(lambda: life.revoke_many(dry=True, filters=chosen))
    told = once_there_is_time(lambda: life.revoke_many(filters=chosen))
    assert foretold["count"] == told["count"] == len(meant) == fleet.size // 2
    for server in fleet.servers:
        assert statuses(server, sample) == {401}
        assert statuses(server, stays[:20]) == {204}
    listing = "query ($input: ListAccessTokensInput) { listAccessTokens(input: $input) { total } }"
    ended = {
        "filters": [{"field": "revokedAt", "value": str(told["revokedAt"])}, {"field": "status", "value": "REVOKED"}]
    }
    assert life.ask(listing, {"input": ended})["listAccessTokens"]["total"] == len(meant)


def once_there_is_time(ask: Callable[[], Any]) -> Any:
    """What takes longer than five seconds is refused and changes nothing; on a busy machine it is asked for again."""
    answers: list[Any] = []

    def is_answered() -> bool:
        try:
            answers.append(ask())
        except GraphQLRefused as refusal:
            if refusal.reason != "deadline":
                raise
        return bool(answers)

    until(is_answered, "it is done in time")
    return answers[0]


def statuses(server: Server, numbers: list[int]) -> set[int]:
    with plain_client(server.url) as client:
        return {
            client.get("/auth", headers={"Authorization": f"Bearer {text_of(number)}"}).status_code
            for number in numbers
        }


@pytest.mark.parametrize("fleet", [20_000], indirect=True)
def test_ten_thousand_revoked_tokens_are_rejected_by_every_instance(fleet: Fleet) -> None:
    end_all_and_ask_each(fleet, 100)


@pytest.mark.soak
@pytest.mark.parametrize("fleet", [200_000], indirect=True)
def test_a_hundred_thousand_revoked_tokens_are_rejected_by_every_instance(fleet: Fleet) -> None:
    end_all_and_ask_each(fleet, 1_000)
