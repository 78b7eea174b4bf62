"""DataHub's command line, unmodified, with our tokens."""

import json
from pathlib import Path

import pytest

from tests.support.clients import datahub
from tests.support.server import ADMIN, Server

ME = "{ me { corpUser { urn } } }"


def test_datahub_cli_stores_and_uses_a_token(server: Server, actor: str, tmp_path: Path) -> None:
    token = server.create(ADMIN, of=actor)["accessToken"]
    kept = datahub(tmp_path, "init", "--host", f"{server.url}/gms", DATAHUB_GMS_TOKEN=token)
    assert kept.returncode == 0, kept.stderr
    asked = datahub(tmp_path, "graphql", "--query", ME)
    assert asked.returncode == 0, asked.stderr
    assert json.loads(asked.stdout) == {"me": {"corpUser": {"urn": actor}}}


def test_datahub_cli_knows_the_fields_of_me_and_of_users(server: Server, actor: str, tmp_path: Path) -> None:
    person = {"urn": actor, "displayName": "Ann", "email": "ann@example.com"}
    server.ask("mutation ($input: SetActorInput!) { setActor(input: $input) }", {"input": person}, actor=ADMIN)
    server.grant(actor, privileges=("MANAGE_POLICIES",))
    connection = {
        "DATAHUB_GMS_URL": f"{server.url}/gms",
        "DATAHUB_GMS_TOKEN": server.create(ADMIN, of=actor)["accessToken"],
    }
    asked = datahub(tmp_path, "graphql", "--operation", "me", **connection)
    assert asked.returncode == 0, asked.stderr
    known = {"displayName": "Ann", "email": "ann@example.com"}
    more = dict.fromkeys(["firstName", "lastName", "title"])
    name = actor.rpartition(":")[2]
    assert json.loads(asked.stdout) == {
        "me": {"corpUser": {"urn": actor, "username": name, "properties": known | more}}
    }
    asked = datahub(tmp_path, "graphql", "--operation", "listUsers", **connection)
    assert asked.returncode == 0, asked.stderr
    assert json.loads(asked.stdout)["listUsers"]["total"] > 0


def test_datahub_cli_lists_our_schema(server: Server, actor: str, tmp_path: Path) -> None:
    token = server.create(ADMIN, of=actor)["accessToken"]
    listed = datahub(
        tmp_path, "graphql", "--list-operations", DATAHUB_GMS_URL=f"{server.url}/gms", DATAHUB_GMS_TOKEN=token
    )
    assert listed.returncode == 0, listed.stderr
    assert "  - createAccessToken: " in listed.stdout
    assert "  - listAccessTokens: " in listed.stdout


def test_datahub_cli_says_whether_an_actor_exists(server: Server, actor: str, tmp_path: Path) -> None:
    token = server.create(ADMIN, of=actor)["accessToken"]
    for held, urn, code, told in (
        (token, actor, 0, "true"),
        (token, f"{actor}-nobody", 0, "false"),
        ("not-a-token", actor, 1, ""),
    ):
        asked = datahub(tmp_path, "exists", "--urn", urn, DATAHUB_GMS_URL=f"{server.url}/gms", DATAHUB_GMS_TOKEN=held)
        assert (asked.returncode, asked.stdout.strip()) == (code, told), asked.stderr
    assert "401" in asked.stderr


@pytest.mark.parametrize(
    ("held", "query", "told"),
    [("not-a-token", ME, "'code': 401"), (None, "{ listAccessTokens { total } }", "'code': 403")],
    ids=["bad token", "missing privilege"],
)
def test_datahub_cli_reports_a_denial(
    server: Server, actor: str, tmp_path: Path, held: str | None, query: str, told: str
) -> None:
    token = held or server.create(ADMIN, of=actor)["accessToken"]
    asked = datahub(tmp_path, "graphql", "--query", query, DATAHUB_GMS_URL=f"{server.url}/gms", DATAHUB_GMS_TOKEN=token)
    assert asked.returncode == 4
    refused = json.loads(asked.stderr.strip().splitlines()[-1])
    assert refused["error"] == "permission_denied"
    assert told in refused["message"]
