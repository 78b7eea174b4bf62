"""Tokens carried over from DataHub: with its salt as a setting, every address accepts them as ours."""

import json
from collections.abc import Callable, Iterator
from contextlib import closing
from typing import Any

import jwt
import pytest

from tests.support import postgres
from tests.support.browsing import Browser
from tests.support.datahub_tokens import COLUMNS, ISSUER, SALT, DataHubToken, datahub_token
from tests.support.server import ADMIN, GENERATE, Server, watchword
from tests.support.store_file import change_store

VARIABLE = "WATCHWORD_DATAHUB_SALT"
DERIVE = 'mutation { deriveAccessToken(input: {name: "narrow"}) { accessToken } }'
ROTATE = """mutation ($id: String!) {
  rotateAccessToken(tokenId: $id, grace: "PT0S") { accessToken metadata { name } } }"""
INSERT = f"INSERT INTO tokens ({', '.join(COLUMNS)}) VALUES ({{}})"


class Imported:
    """Makes tokens of DataHub whose records are in the store of a server."""

    def __init__(self, server: Server, home: postgres.Home | None) -> None:
        self.server = server
        self._home = home

    def __call__(self, actor: str) -> DataHubToken:
        made = datahub_token(actor)
        if self._home is None:
            change_store(self.server, INSERT.format(",".join("?" * len(COLUMNS))), *made.row)
        else:
            self._home.look(INSERT.format(",".join(["%s"] * len(COLUMNS))), *made.row)
        return made


@pytest.fixture(scope="module", params=["sqlite", "postgres"])
def imported(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Imported]:
    folder = tmp_path_factory.mktemp("datahub")
    if request.param == "sqlite":
        with Server(folder, env={VARIABLE: SALT}) as running:
            yield Imported(running, None)
        return
    with (
        postgres.home(request.getfixturevalue("postgres"), folder) as home,
        Server(folder, "--local-mode", "on", env={**home.env, VARIABLE: SALT}) as running,
    ):
        yield Imported(running, home)


@pytest.fixture
def server(imported: Imported) -> Server:
    return imported.server


def introspect(server: Server, token: str, by: str) -> Any:
    answer = server.http.post("/oauth2/introspect", data={"token": token}, headers={"Authorization": f"Bearer {by}"})
    assert answer.status_code == 200, answer.text
    return answer.json()


def test_token_of_datahub_is_accepted_like_ours(server: Server, imported: Imported, actor: str) -> None:
    server.grant(actor, privileges=(GENERATE, "GET_TIMESERIES_INDEX_SIZES_PRIVILEGE"))
    carried = imported(actor)
    for _ in range(2):
        answer = server.verify(carried.token)
        assert (answer.status_code, answer.headers["X-Auth-Urn"]) == (204, actor)
        assert answer.headers["X-Auth-Token-Id"] == carried.id
    assert server.ask("{ me { corpUser { urn } } }", token=carried.token)["me"]["corpUser"]["urn"] == actor
    assert server.operate("getIndexSizes", token=carried.token).status_code == 200
    found = server.ask(
        "query ($t: String!) { getAccessTokenMetadata(token: $t) { id status } }",
        {"t": carried.token},
        token=carried.token,
    )
    assert found["getAccessTokenMetadata"] == {"id": carried.id, "status": "ACTIVE"}
    with closing(Browser(server)) as browser:
        assert browser.sign_in(token=carried.token).json()["tokenId"] == carried.id
        assert browser.ask() == {"me": {"corpUser": {"urn": actor}}}


def test_forged_token_of_datahub_is_unknown(server: Server, imported: Imported, actor: str) -> None:
    carried = imported(actor)
    for forged in (carried.token[:-2], carried.token + "A", datahub_token(actor).token):
        assert server.verify(forged).status_code == 401


def test_introspection_of_a_datahub_token_has_the_claims_of_its_record(
    server: Server, imported: Imported, actor: str
) -> None:
    carried = imported(actor)
    claims = {
        "active": True,
        "client_id": "watchword",
        "username": actor.rpartition(":")[2],
        "token_type": "Bearer",
        "iat": carried.created_at // 1000,
        "exp": carried.expires_at // 1000,
        "sub": actor,
        "aud": server.url,
        "iss": server.url,
        "jti": carried.id,
        "scope": "",
    }
    asking = server.create(ADMIN)["accessToken"]
    assert introspect(server, carried.token, carried.token) == introspect(server, carried.token, asking) == claims
    assert server.http.post("/oauth2/revoke", data={"token": carried.token}).status_code == 200
    assert introspect(server, carried.token, asking) == {"active": False}
    assert "revoked at" in server.verify(carried.token).headers["WWW-Authenticate"]


def test_token_of_datahub_is_named_by_its_urn_there(server: Server, imported: Imported, actor: str) -> None:
    server.grant(actor)
    carried, by_urn = imported(actor), "query ($urn: String!) { getAccessToken(id: $urn) { id urn } }"
    ours = f"urn:li:serviceAccessToken:{carried.id}"
    found = server.ask(by_urn, {"urn": carried.urn}, token=carried.token)["getAccessToken"]
    assert found == {"id": carried.id, "urn": ours}
    for urn, condition in ((carried.urn, "EQUAL"), (ours, "EQUAL"), (carried.urn[:-5], "START_WITH")):
        listed = server.tokens(ADMIN, [{"field": "urn", "values": [urn], "condition": condition}])
        assert [token["id"] for token in listed["tokens"]] == [carried.id]
    caller = ("--url", server.url, "--as", ADMIN)
    assert json.loads(watchword("token", "show", carried.urn, "--json", *caller).stdout)["id"] == carried.id
    assert watchword("token", "revoke", carried.urn, "--yes", *caller).returncode == 0
    assert server.verify(carried.token).status_code == 401
    other = imported(actor)
    assert server.revoke(other.urn, token=other.token)
    assert server.verify(other.token).status_code == 401


def test_derived_tokens_and_successors_of_a_datahub_token_are_ours(
    server: Server, imported: Imported, actor: str
) -> None:
    server.grant(actor)
    carried = imported(actor)
    derived = server.ask(DERIVE, token=carried.token)["deriveAccessToken"]["accessToken"]
    rotated = server.ask(ROTATE, {"id": carried.urn}, token=carried.token)["rotateAccessToken"]
    successor = rotated["accessToken"]
    assert {jwt.get_unverified_header(token)["typ"] for token in (derived, successor)} == {"at+jwt"}
    assert rotated["metadata"]["name"] == "from DataHub"
    assert [server.verify(token).status_code for token in (derived, carried.token)] == [204, 204]
    assert server.verify(successor).headers["X-Auth-Urn"] == actor  # its first use; there is no grace
    assert server.verify(carried.token).status_code == 401


def test_scan_finds_tokens_of_datahub(server: Server, imported: Imported, actor: str) -> None:
    carried, unknown = imported(actor), datahub_token(actor)
    caller = ("--json", "--url", server.url, "--as", ADMIN)
    found = watchword("token", "scan", "-", *caller, stdin=f"{carried.token}\n{unknown.token}")
    assert found.returncode == 1
    shown = [(hit["status"], hit["id"], hit["actorUrn"], hit["issuer"]) for hit in json.loads(found.stdout)]
    assert shown == [("ACTIVE", carried.id, actor, ISSUER), ("FOREIGN", None, actor, ISSUER)]
    assert server.verify(carried.token).status_code == 204
    ended = watchword("token", "scan", "-", "--revoke", "--yes", *caller, stdin=carried.token)
    assert (ended.returncode, json.loads(ended.stdout)[0]["status"]) == (0, "REVOKED")


def test_scan_sends_tokens_of_datahub_only_where_they_are_accepted(make_server: Callable[..., Server]) -> None:
    server, carried = make_server("--access-log", "all"), datahub_token(ADMIN)
    done = watchword("token", "scan", "-", "--json", "--url", server.url, "--as", ADMIN, stdin=carried.token)
    assert (done.returncode, json.loads(done.stdout)[0]["status"]) == (1, "FOREIGN")
    assert "/api/graphql" not in server.err.read_text()


def test_token_of_datahub_is_unknown_without_its_salt(make_server: Callable[..., Server], actor: str) -> None:
    server = make_server()
    assert server.verify(Imported(server, None)(actor).token).status_code == 401


def test_salt_is_set_or_absent_but_never_empty() -> None:
    done = watchword("serve", env={VARIABLE: " "})
    assert done.returncode == 2
    assert f"{VARIABLE} must not be empty. Unset it to accept no tokens of DataHub." in done.stderr
