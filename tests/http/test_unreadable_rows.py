"""A stored token that this version cannot read, such as one with a limit of a newer version, on both databases."""

from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from typing import Any

import pytest

from tests.support.postgres import Address, home
from tests.support.server import ADMIN, Server, plain_client
from tests.support.store_file import change_store
from tests.support.waiting import until

LIMITS = """query ($id: String!) { listAccessTokens(input: {filters: [{field: "id", values: [$id]}]}) {
  tokens { id scopes audience allowedNetworks } } }"""
REVOKE = "mutation ($id: String!) { revokeAccessToken(tokenId: $id) }"
ROTATE = "mutation ($id: String!) { rotateAccessToken(tokenId: $id) { accessToken } }"
UNREADABLE = ('{"regions":["eu"]}', '{"scopes":7}', "[]", "no JSON")
ROUNDS = 10
LOCAL = ("--local-mode", "on")

Change = Callable[[str], None]


@pytest.fixture(scope="module", params=["sqlite", "postgres"])
def changeable(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[tuple[Server, Change]]:
    """A server, and a function that changes its store directly."""
    folder = tmp_path_factory.mktemp("unreadable")
    if request.param == "sqlite":
        with Server(folder, *LOCAL) as server:
            yield server, lambda statement: change_store(server, statement)
        return
    postgres: Address = request.getfixturevalue("postgres")
    with home(postgres, folder) as place, Server(folder, *LOCAL, env=place.env) as server:

        def change(statement: str) -> None:
            with place.connect() as connection:
                connection.execute(statement.encode())

        yield server, change


def spoil(changeable: tuple[Server, Change], limits: str) -> Any:
    server, change = changeable
    made = server.create(ADMIN, name="of a newer version")
    change(f"UPDATE tokens SET limits = '{limits}' WHERE id = '{made['metadata']['id']}'")
    return made


@pytest.mark.parametrize("limits", UNREADABLE)
def test_unreadable_token_fails_for_its_own_callers_alone(changeable: tuple[Server, Change], limits: str) -> None:
    server, _ = changeable
    bad = spoil(changeable, limits)
    texts = [bad["accessToken"], *(server.create(ADMIN, name="good")["accessToken"] for _ in range(7))]

    def verify(text: str) -> list[int]:
        with closing(plain_client(server.url)) as client:
            return [server.verify(text, client).status_code for _ in range(ROUNDS)]

    with ThreadPoolExecutor(len(texts)) as threads:
        assert list(threads.map(verify, texts)) == [[500] * ROUNDS] + [[204] * ROUNDS] * 7
    named = f"The limits of the token {bad['metadata']['id']} cannot be read"
    until(lambda: named in server.err.read_text(), "the log names the token")
    assert bad["accessToken"] not in server.err.read_text()


def test_unreadable_token_is_listed_without_any_right_and_can_be_revoked(changeable: tuple[Server, Change]) -> None:
    server, _ = changeable
    bad = spoil(changeable, UNREADABLE[0])
    found = server.ask(LIMITS, {"id": bad["metadata"]["id"]}, actor=ADMIN)["listAccessTokens"]["tokens"]
    assert found == [{"id": bad["metadata"]["id"], "scopes": [], "audience": [], "allowedNetworks": []}]
    refused = server.post(ROTATE, {"id": bad["metadata"]["id"]}, actor=ADMIN).json()["errors"]
    assert [error["extensions"]["reason"] for error in refused] == ["internal"]
    assert server.revoke(bad["metadata"]["id"])
    assert server.verify(bad["accessToken"]).status_code == 500


def test_holder_can_revoke_an_unreadable_token(changeable: tuple[Server, Change]) -> None:
    server, _ = changeable
    bad = spoil(changeable, UNREADABLE[0])
    with closing(plain_client(server.url)) as client:
        assert client.post("/oauth2/revoke", data={"token": bad["accessToken"]}).status_code == 200
    refused = server.post(REVOKE, {"id": bad["metadata"]["id"]}, actor=ADMIN).json()["errors"]
    assert [error["extensions"]["reason"] for error in refused] == ["already_revoked"]
