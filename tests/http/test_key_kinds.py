"""Kinds of signing keys: from EdDSA to RS256 and back, with both published and every token valid throughout."""

import json
from collections.abc import Callable
from typing import Any

import jwt
import pytest
from joserfc import jwt as joserfc_jwt
from joserfc.jwk import RSAKey

from tests.support import postgres
from tests.support.server import ADMIN, CREATE, Server, watchword
from tests.support.store_file import change_store

JWKS = "/.well-known/jwks.json"
Keys = Callable[..., tuple[int, str]]


@pytest.fixture(params=["sqlite", "postgres"])
def keys(request: pytest.FixtureRequest, make_server: Callable[..., Server]) -> tuple[Server, Keys]:
    """A server, and `watchword key` on its store: the exit code and the output."""
    env: dict[str, str] = {}
    if request.param == "postgres":
        home: postgres.Home = request.getfixturevalue("database")
        env = home.env
    server = make_server("--local-mode", "on", "--workers", "2", env=env)

    def run(*words: str) -> tuple[int, str]:
        done = watchword("key", *words, "--data-dir", str(server.data_dir), env=env)
        return done.returncode, done.stdout + done.stderr

    return server, run


def published(server: Server) -> dict[str, Any]:
    return {key["kid"]: key for key in server.http.get(JWKS).json()["keys"]}


def check_signature(server: Server, token: str) -> str:
    """The algorithm of a token that the published keys verify."""
    header = jwt.get_unverified_header(token)
    key = published(server)[header["kid"]]
    assert key["alg"] == header["alg"]
    claims = jwt.decode(token, jwt.PyJWK(key), [header["alg"]], issuer=server.url, audience=server.url)
    assert claims["sub"] == ADMIN
    return str(header["alg"])


def test_kind_changes_with_both_kinds_published(keys: tuple[Server, Keys]) -> None:
    server, run = keys
    tokens = [server.create(ADMIN)["accessToken"]]
    for kind, key_type in (("rs256", "RSA"), ("eddsa", "OKP")):
        code, said = run("rotate", "--kind", kind)
        assert (code, "It does not sign yet. Run this again after" in said) == (0, True)
        assert {key["kty"] for key in published(server).values()} == {"OKP", "RSA"}
        prepared = said.split()[1]
        assert published(server)[prepared]["kty"] == key_type
        assert jwt.get_unverified_header(server.create(ADMIN)["accessToken"])["kid"] != prepared
        code, said = run("rotate", "--kind", kind)
        assert (code, "To sign with it now: watchword key rotate" in said) == (1, True)
        assert run("rotate")[0] == 0
        for _ in range(4):  # of both workers
            tokens.append(server.create(ADMIN)["accessToken"])
            assert jwt.get_unverified_header(tokens[-1])["kid"] == prepared
        listed = json.loads(run("list", "--json")[1])
        assert (listed[0]["kid"], listed[0]["state"], listed[-1]["state"]) == (prepared, "signs", "next")
        assert listed[0]["kind"].lower() == listed[-1]["kind"].lower() == kind
        assert {server.verify(token).status_code for token in tokens} == {204}
    assert [check_signature(server, token) for token in tokens] == ["EdDSA", *["RS256"] * 4, *["EdDSA"] * 4]


@pytest.fixture
def rsa_server(make_server: Callable[..., Server]) -> Server:
    """One that signs with an RSA key."""
    server = make_server()
    for words in (("--kind", "rs256"), ()):
        assert server.command_line("key", "rotate", *words).returncode == 0
    return server


def test_prepared_key_signs_after_the_cache_time(rsa_server: Server) -> None:
    assert rsa_server.command_line("key", "rotate", "--kind", "eddsa").returncode == 0
    change_store(rsa_server, "UPDATE next_key SET created_at = created_at - 300000")
    done = rsa_server.command_line("key", "rotate", "--kind", "eddsa")
    assert (done.returncode, done.stdout.endswith("(EdDSA) from now on.\n")) == (0, True)
    assert check_signature(rsa_server, rsa_server.create(ADMIN)["accessToken"]) == "EdDSA"


def test_repeated_request_gets_the_same_token_of_an_rsa_key(rsa_server: Server) -> None:
    wanted = {"type": "PERSONAL", "actorUrn": ADMIN, "duration": "ONE_HOUR", "name": "once"}
    made = [
        rsa_server.ask(CREATE, {"input": wanted}, actor=ADMIN, headers={"Idempotency-Key": "one"})["createAccessToken"]
        for _ in range(2)
    ]
    assert made[0] == made[1]
    assert check_signature(rsa_server, made[0]["accessToken"]) == "RS256"
    assert rsa_server.command_line("db", "check").returncode == 0


def test_service_that_knows_only_rsa_accepts_tokens(rsa_server: Server) -> None:
    """As DataHub does with EXTERNAL_OAUTH_*: an RSA key by its id, the issuer, the audience and a subject."""
    audience = "https://datahub.example"
    token = rsa_server.create(ADMIN, audience=[audience])["accessToken"]
    usable = {kid: RSAKey.import_key(key) for kid, key in published(rsa_server).items() if key["kty"] == "RSA"}
    found = joserfc_jwt.decode(token, usable[jwt.get_unverified_header(token)["kid"]], ["RS256"])
    assert (found.claims["iss"], found.claims["sub"]) == (rsa_server.url, ADMIN)
    assert audience in found.claims["aud"]


def test_backup_of_a_store_with_an_rsa_key_can_be_restored(rsa_server: Server) -> None:
    token, backup = rsa_server.create(ADMIN)["accessToken"], rsa_server.folder / "backup.db"
    assert rsa_server.command_line("db", "backup", str(backup)).returncode == 0
    rsa_server.stop()
    done = rsa_server.command_line("db", "restore", str(backup), "--accept-revived-tokens")
    assert done.returncode == 0, done.stderr
    rsa_server.start()
    assert rsa_server.verify(token).status_code == 204
    assert check_signature(rsa_server, token) == check_signature(rsa_server, rsa_server.create(ADMIN)["accessToken"])
