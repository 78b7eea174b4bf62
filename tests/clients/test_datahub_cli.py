"""DataHub's command line, unmodified, with tokens of ours: set up, asked, refused, and cleaning up expired tokens."""

import json
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.support.clients import client_env, surroundings
from tests.support.server import ADMIN, Server
from tests.support.store_file import change_store

ME = "{ me { corpUser { urn } } }"

# Whatever of the garbage collection is not about tokens is off.
RECIPE: dict[str, Any] = {
    "source": {
        "type": "datahub-gc",
        "config": {
            "cleanup_expired_tokens": True,
            "truncate_indices": False,
            "dataprocess_cleanup": {"enabled": False},
            "soft_deleted_entities_cleanup": {"enabled": False},
            "execution_request_cleanup": {"enabled": False},
            "query_cleanup": {"enabled": False},
        },
    },
    "sink": {"type": "console"},
}


def datahub(home: Path, *words: str, **env: str) -> subprocess.CompletedProcess[str]:
    program = client_env("datahub") / "bin/datahub"
    return subprocess.run(
        [program, *words],
        cwd=home,
        env=surroundings(home, **env),
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )


def test_it_keeps_a_token_and_asks_with_it(server: Server, actor: str, tmp_path: Path) -> None:
    token = server.create(ADMIN, of=actor)["accessToken"]
    kept = datahub(tmp_path, "init", "--host", f"{server.url}/gms", DATAHUB_GMS_TOKEN=token)
    assert kept.returncode == 0, kept.stderr
    asked = datahub(tmp_path, "graphql", "--query", ME)
    assert asked.returncode == 0, asked.stderr
    assert json.loads(asked.stdout) == {"me": {"corpUser": {"urn": actor}}}


def test_it_lists_what_our_schema_offers(server: Server, actor: str, tmp_path: Path) -> None:
    token = server.create(ADMIN, of=actor)["accessToken"]
    listed = datahub(
        tmp_path, "graphql", "--list-operations", DATAHUB_GMS_URL=f"{server.url}/gms", DATAHUB_GMS_TOKEN=token
    )
    assert listed.returncode == 0, listed.stderr
    assert "  - createAccessToken: " in listed.stdout
    assert "  - listAccessTokens: " in listed.stdout


@pytest.mark.parametrize(
    ("held", "query", "told"),
    [("not-a-token", ME, "'code': 401"), (None, "{ listAccessTokens { total } }", "'code': 403")],
    ids=["bad token", "missing privilege"],
)
def test_it_calls_a_refusal_a_permission_denied(
    server: Server, actor: str, tmp_path: Path, held: str | None, query: str, told: str
) -> None:
    token = held or server.create(ADMIN, of=actor)["accessToken"]
    asked = datahub(tmp_path, "graphql", "--query", query, DATAHUB_GMS_URL=f"{server.url}/gms", DATAHUB_GMS_TOKEN=token)
    assert asked.returncode == 4
    refused = json.loads(asked.stderr.strip().splitlines()[-1])
    assert refused["error"] == "permission_denied"
    assert told in refused["message"]


def test_its_garbage_collection_revokes_every_expired_token_and_no_other(
    make_server: Callable[..., Server], tmp_path: Path
) -> None:
    server = make_server("--allow-no-expiry", "on")
    alice = "urn:li:corpuser:alice"
    token = server.create(ADMIN)["accessToken"]
    expired = {server.create(ADMIN, of=alice, name=f"expired {n}")["metadata"]["id"] for n in range(23)}
    for token_id in expired:
        change_store(server, "UPDATE tokens SET expires_at = created_at + 1 WHERE id = ?", token_id)
    live = {server.create(ADMIN, of=alice)["metadata"]["id"] for _ in range(3)}
    endless = {server.create(ADMIN, of=alice, duration="NO_EXPIRY")["metadata"]["id"] for _ in range(3)}

    home = tmp_path / "home"
    home.mkdir()
    recipe = RECIPE | {"datahub_api": {"server": f"{server.url}/gms", "token": "${TOKEN}"}}
    (home / "recipe.json").write_text(json.dumps(recipe))
    ran = datahub(home, "ingest", "run", "-c", "recipe.json", "--report-to", "report.json", TOKEN=token)

    assert ran.returncode == 0, ran.stdout + ran.stderr
    report = json.loads((home / "report.json").read_text())["source"]["report"]
    assert report["failures"] == []
    assert report["expired_tokens_revoked"] == len(expired)
    assert ids(server, alice, "REVOKED") == expired
    assert ids(server, alice, "EXPIRED") == set()
    assert ids(server, alice, "ACTIVE") == live | endless


def ids(server: Server, actor: str, status: str) -> set[str]:
    filters = [{"field": "actorUrn", "value": actor}, {"field": "status", "value": status}]
    return {row["id"] for row in server.tokens(filters=filters, count=100)["tokens"]}
