"""Bulk revocation: after the response every instance rejects each token at its next request."""

from collections.abc import Callable, Iterator
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from bench.fill import is_revoked
from bench.population import populate, text_of
from tests.life.holding import LifecycleClient
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
        """The numbers of the live tokens whose name has this prefix."""
        return [number for number in range(self.size) if str(number).startswith("1") and not is_revoked(number)]


@pytest.fixture
def fleet(request: pytest.FixtureRequest, postgres: databases.Address, tmp_path: Path) -> Iterator[Fleet]:
    """Three instances on one database with this many tokens."""
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


def revoke_all_and_verify_each(fleet: Fleet, samples: int) -> None:
    meant = fleet.meant
    sample = meant[:: len(meant) // samples][:samples]
    for server in fleet.servers:
        assert statuses(server, sample[:20]) == {204}
    stays = [number for number in range(fleet.size) if not str(number).startswith("1") and not is_revoked(number)]
    chosen = [{"field": "name", "condition": "START_WITH", "value": PREFIX}]
    life = LifecycleClient(fleet.servers[0])
    foretold = retry_on_timeout(lambda: life.revoke_many(dry=True, filters=chosen))
    told = retry_on_timeout(lambda: life.revoke_many(filters=chosen))
    assert foretold["count"] == told["count"] == len(meant) == fleet.size // 2
    for server in fleet.servers:
        assert statuses(server, sample) == {401}
        assert statuses(server, stays[:20]) == {204}
    listing = "query ($input: ListAccessTokensInput) { listAccessTokens(input: $input) { total } }"
    ended = {
        "filters": [{"field": "revokedAt", "value": str(told["revokedAt"])}, {"field": "status", "value": "REVOKED"}]
    }
    assert life.ask(listing, {"input": ended})["listAccessTokens"]["total"] == len(meant)


def retry_on_timeout(ask: Callable[[], Any]) -> Any:
    """A request above five seconds is rejected and changes nothing; a loaded machine needs retries."""
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
    revoke_all_and_verify_each(fleet, 100)


@pytest.mark.soak
@pytest.mark.parametrize("fleet", [200_000], indirect=True)
def test_a_hundred_thousand_revoked_tokens_are_rejected_by_every_instance(fleet: Fleet) -> None:
    revoke_all_and_verify_each(fleet, 1_000)
