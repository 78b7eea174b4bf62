"""Bearer tokens: which are accepted, and the errors for the others."""

import re
from collections.abc import Callable
from datetime import UTC, datetime

import jwt
import pytest
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

from tests.support.server import ADMIN, Server
from tests.support.store_file import change_store
from tests.support.wire import AS_ADMIN, JSON_TYPE, Answer, send

REALM = 'Bearer realm="watchword"'
INVALID_TOKEN_CHALLENGE = (
    f'{REALM}, error="invalid_token", error_description="The credential is not one this service accepts."'
)
ADDRESSES = [("GET", "/auth"), ("POST", "/api/graphql"), ("GET", "/api/nothing"), ("POST", "/operations?action=x")]


def send_bearer(
    server: Server, authorization: str | None, method: str = "POST", target: str = "/api/graphql"
) -> Answer:
    given = [] if authorization is None else [f"Authorization: {authorization}"]
    return send(server, method, target, [*given, JSON_TYPE])


def reason(answer: Answer) -> str:
    content = answer.json()
    word: str = content["errors"][0]["extensions"]["reason"] if "errors" in content else content["error"]["reason"]
    return word


@pytest.fixture
def holder(server: Server, actor: str) -> str:
    server.grant(actor)
    return actor


@pytest.mark.parametrize(("method", "target"), ADDRESSES)
class TestProtectedAddresses:
    def test_missing_credential_is_401_without_error_code(self, server: Server, method: str, target: str) -> None:
        answer = send_bearer(server, None, method, target)
        assert answer.status == 401
        assert answer.header("WWW-Authenticate") == REALM
        assert reason(answer) == "missing_credential"

    @pytest.mark.parametrize("given", ["Basic YTpi", "Digest a", "Token abc", "Bearerabc", "abc", "", "Basic"])
    def test_unknown_scheme_counts_as_missing_credential(
        self, server: Server, method: str, target: str, given: str
    ) -> None:
        answer = send_bearer(server, given, method, target)
        assert answer.status == 401
        assert answer.header("WWW-Authenticate") == REALM

    def test_invalid_token_is_401_with_error_code(self, server: Server, method: str, target: str) -> None:
        answer = send_bearer(server, "Bearer nonsense", method, target)
        assert answer.status == 401
        assert answer.header("WWW-Authenticate") == INVALID_TOKEN_CHALLENGE
        assert reason(answer) == "invalid_token"

    def test_revoked_token_gets_401_with_the_time(self, server: Server, holder: str, method: str, target: str) -> None:
        made = server.create(holder)
        server.revoke(made["metadata"]["id"])
        answer = send_bearer(server, f"Bearer {made['accessToken']}", method, target)
        assert answer.status == 401
        assert reason(answer) == "token_revoked"
        told = answer.header("WWW-Authenticate") or ""
        assert told.startswith(f'{REALM}, error="invalid_token", error_description="The token was revoked at 20')

    def test_expired_token_gets_401_with_the_time(self, server: Server, holder: str, method: str, target: str) -> None:
        made = server.create(holder)
        change_store(server, "UPDATE tokens SET expires_at = ? WHERE id = ?", 1_700_000_000_123, made["metadata"]["id"])
        answer = send_bearer(server, f"Bearer {made['accessToken']}", method, target)
        assert answer.status == 401
        assert reason(answer) == "token_expired"
        assert (answer.header("WWW-Authenticate") or "").endswith(
            'error_description="The token expired at 2023-11-14T22:13:20.123Z."'
        )

    def test_token_of_a_suspended_actor_is_rejected_until_reactivation(
        self, server: Server, holder: str, method: str, target: str
    ) -> None:
        bearer = f"Bearer {server.create(holder)['accessToken']}"
        before = send_bearer(server, bearer, method, target).status
        server.set_status(holder, "SUSPENDED")
        refused = send_bearer(server, bearer, method, target)
        assert (refused.status, refused.header("WWW-Authenticate")) == (401, INVALID_TOKEN_CHALLENGE)
        server.set_status(holder, "ACTIVE")
        assert send_bearer(server, bearer, method, target).status == before != 401


def test_all_other_invalid_credentials_get_the_same_response(
    server: Server, holder: str, make_server: Callable[..., Server]
) -> None:
    """Foreign, forged, cut or altered tokens and those of suspended actors get the same response."""
    made = server.create(holder)
    server.revoke(made["metadata"]["id"])
    token = made["accessToken"]
    other = make_server().create(ADMIN)["accessToken"]
    live = server.create(holder)["accessToken"]
    claims = jwt.decode(token, options={"verify_signature": False})
    forged = jwt.encode(claims, Ed25519PrivateKey.generate(), "EdDSA", headers=jwt.get_unverified_header(token))
    nobody = jwt.encode({**claims, "sub": "urn:li:corpuser:x"}, "k" * 32, "HS256")
    flipped = token[:-5] + ("A" if token[-5] != "A" else "B") + token[-4:]
    head, payload, signature = token.split(".")
    none = jwt.encode(claims, "", algorithm="none")
    bad = [other, forged, nobody, none, flipped, token[:-1], token + "A", f"{head}.{payload}.", payload, signature, "",
           f"{live}.", f"{live} {live}", live.upper(), made["metadata"]["id"], "a" * 8_000, "....", "null"]  # fmt: skip
    answers = [send_bearer(server, f"Bearer {one}") for one in bad]
    server.set_status(holder, "SUSPENDED")
    answers.append(send_bearer(server, f"Bearer {live}"))
    assert {(a.status, a.header("WWW-Authenticate"), a.body) for a in answers} == {
        (401, INVALID_TOKEN_CHALLENGE, answers[0].body)
    }
    assert reason(answers[0]) == "invalid_token"


@pytest.mark.parametrize("scheme", ["Bearer", "bearer", "BEARER", "bEaReR", "Bearer  "])
def test_bearer_scheme_is_case_insensitive(server: Server, holder: str, scheme: str) -> None:
    token = server.create(holder)["accessToken"]
    assert send_bearer(server, f"{scheme} {token}", "GET", "/auth").header("X-Auth-Urn") == holder


def test_accepted_bearer_gets_actor_and_token_id(server: Server, holder: str) -> None:
    made = server.create(holder)
    answer = send_bearer(server, f"Bearer {made['accessToken']}", "GET", "/auth")
    assert answer.status == 204
    assert answer.header("X-Auth-Urn") == holder
    assert answer.header("X-Auth-Token-Id") == made["metadata"]["id"]
    assert answer.header("X-Auth-Scopes") == ""


def test_revocation_time_in_the_error_matches_the_list(server: Server, holder: str) -> None:
    made = server.create(holder)
    token_id = made["metadata"]["id"]
    server.revoke(token_id)
    query = '{ listAccessTokens(input: {filters: [{field: "id", value: "%s"}, {field: "status", value: "REVOKED"}]})'
    (shown,) = server.ask(query % token_id + " { tokens { revokedAt } } }", actor=ADMIN)["listAccessTokens"]["tokens"]
    error = send_bearer(server, f"Bearer {made['accessToken']}").json()["errors"][0]
    assert error["extensions"]["revokedAt"] == shown["revokedAt"]
    told = re.search(r"revoked at (\S+)Z\.", error["message"])
    assert told is not None
    assert datetime.fromisoformat(told[1]).replace(tzinfo=UTC).timestamp() * 1000 == pytest.approx(shown["revokedAt"])


def test_any_authorization_header_overrides_the_actor_header(server: Server, holder: str) -> None:
    token = server.create(holder)["accessToken"]
    for given, status in (("Basic YTpi", 401), ("Bearer bad", 401), ("", 401), (f"Bearer {token}", 200)):
        answer = send(server, headers=[AS_ADMIN, JSON_TYPE, f"Authorization: {given}"])
        assert answer.status == status
    assert answer.json()["data"]["me"]["corpUser"]["urn"] == holder


def test_suspended_actor_is_rejected_by_actor_header(server: Server, holder: str) -> None:
    headers = [f"X-Service-Actor: {holder}", JSON_TYPE]
    assert send(server, headers=headers).status == 200
    server.set_status(holder, "SUSPENDED")
    refused = send(server, headers=headers)
    assert (refused.status, refused.header("WWW-Authenticate")) == (401, INVALID_TOKEN_CHALLENGE)
    server.set_status(holder, "ACTIVE")
    assert send(server, headers=headers).status == 200


@pytest.mark.parametrize("accept", ["application/json", "application/graphql-response+json", "*/*"])
def test_invalid_bearer_on_graphql_is_401_for_every_media_type(server: Server, accept: str) -> None:
    answer = send(server, headers=["Authorization: Bearer bad", JSON_TYPE, f"Accept: {accept}"])
    assert answer.status == 401
    assert answer.json()["errors"][0]["extensions"]["type"] == "UNAUTHENTICATED"
