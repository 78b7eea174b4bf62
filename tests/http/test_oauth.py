"""OAuth introspection and revocation (RFC 7662, RFC 7009)."""

from collections.abc import Callable
from typing import Any
from urllib.parse import urlencode

import httpx
import jwt
import pytest

from tests.support.forgeries import forgeries
from tests.support.server import ADMIN, GENERATE, Server
from tests.support.store_file import change_store, locked, look, stored
from tests.support.waiting import until
from tests.support.wire import AS_ADMIN, Answer, send

INTROSPECT = "/oauth2/introspect"
REVOKE = "/oauth2/revoke"
FORM = "Content-Type: application/x-www-form-urlencoded"
REALM = 'Bearer realm="watchword"'
INACTIVE = {"active": False}
EVENTS = "{ listEvents(input: {count: 200}) { events { action actorUrn tokenId target detail } } }"


@pytest.fixture(scope="module")
def gateway(server: Server) -> str:
    """A token that may only introspect."""
    urn = "urn:li:corpuser:oauth-gateway"
    server.grant(urn, privileges=("INTROSPECT_TOKENS",))
    token: str = server.create(ADMIN, of=urn)["accessToken"]
    return token


@pytest.fixture
def made(server: Server, actor: str) -> dict[str, Any]:
    made: dict[str, Any] = server.create(ADMIN, of=actor)
    return made


@pytest.fixture
def token(made: dict[str, Any]) -> str:
    token: str = made["accessToken"]
    return token


def post(server: Server, path: str, form: dict[str, str | bytes], by: str | None = None) -> httpx.Response:
    return server.http.post(path, data=form, headers={"Authorization": f"Bearer {by}"} if by else {})


def introspect(server: Server, token: str | bytes, by: str) -> Any:
    answer = post(server, INTROSPECT, {"token": token}, by)
    assert answer.status_code == 200, answer.text
    return answer.json()


def raw(server: Server, path: str, body: bytes | None, *headers: str, method: str = "POST") -> Answer:
    return send(server, method, path, headers, body)


def oauth_error(answer: httpx.Response | Answer, status: int, word: str) -> str:
    code = answer.status_code if isinstance(answer, httpx.Response) else answer.status
    content = answer.json()
    assert (code, content["error"], set(content)) == (status, word, {"error", "error_description"}), content
    description: str = content["error_description"]
    assert description.endswith(".")
    return description


class TestIntrospection:
    def test_introspection_returns_signed_claims_and_stored_state(
        self, server: Server, gateway: str, made: dict[str, Any], actor: str
    ) -> None:
        claims = jwt.decode(made["accessToken"], options={"verify_signature": False})
        assert introspect(server, made["accessToken"], gateway) == {
            "active": True,
            "client_id": "watchword",
            "username": actor.removeprefix("urn:li:corpuser:"),
            "token_type": "Bearer",
            "exp": made["metadata"]["expiresAt"] // 1000,
            "iat": made["metadata"]["createdAt"] // 1000,
            "sub": actor,
            "aud": server.url,
            "iss": server.url,
            "jti": claims["jti"],
            "scope": "",
        }

    @pytest.mark.parametrize("urn", ["urn:li:corpuser:x:alice", "urn:okta:alice"])
    def test_username_of_an_actor_is_unique(self, server: Server, urn: str) -> None:
        server.grant(urn)
        token = server.create(urn)["accessToken"]
        assert introspect(server, token, token)["username"] == urn
        me = server.ask("{ me { corpUser { username } } }", token=token)["me"]
        assert me == {"corpUser": {"username": urn}}

    def test_introspection_returns_the_stored_expiry(self, server: Server, gateway: str, made: dict[str, Any]) -> None:
        sooner = made["metadata"]["expiresAt"] - 60_000
        change_store(server, "UPDATE tokens SET expires_at = ? WHERE id = ?", sooner, made["metadata"]["id"])
        assert introspect(server, made["accessToken"], gateway)["exp"] == sooner // 1000

    def test_introspection_of_a_token_without_expiry_has_no_exp(self, make_server: Callable[..., Server]) -> None:
        server = make_server("--allow-no-expiry", "on")
        token = server.create(ADMIN, duration="NO_EXPIRY")["accessToken"]
        assert "exp" not in introspect(server, token, token)

    def test_token_may_introspect_itself_without_privileges(self, server: Server, token: str, actor: str) -> None:
        assert introspect(server, token, token)["sub"] == actor

    def test_introspection_by_another_actor_counts_as_use(self, make_server: Callable[..., Server], actor: str) -> None:
        server = make_server()
        asking = server.create(ADMIN, name="asking")["accessToken"]
        asked, idle = (server.create(ADMIN, of=actor, name=name)["accessToken"] for name in ("asked", "idle"))
        assert introspect(server, asked, asking)["active"]
        assert idle
        server.stop()
        used = dict(look(server, "SELECT name, last_used_at IS NOT NULL FROM tokens"))
        assert used == {"asking": 1, "asked": 1, "idle": 0}

    @pytest.mark.parametrize("hint", ["access_token", "refresh_token", "nonsense", ""])
    def test_introspection_ignores_the_token_type_hint(
        self, server: Server, gateway: str, token: str, hint: str
    ) -> None:
        answer = post(server, INTROSPECT, {"token": token, "token_type_hint": hint, "client_id": "me"}, gateway)
        assert answer.json()["active"] is True

    @pytest.mark.parametrize("prefix", ["/gms", "/api/gms"])
    def test_oauth_endpoints_work_under_gateway_prefixes(
        self, server: Server, gateway: str, token: str, prefix: str
    ) -> None:
        assert post(server, prefix + INTROSPECT, {"token": token}, gateway).json()["active"] is True
        assert post(server, prefix + REVOKE, {"token": token}).status_code == 200
        assert introspect(server, token, gateway) == INACTIVE


class TestIntrospectionCaller:
    def test_introspection_without_credential_is_401(self, server: Server, token: str) -> None:
        answer = post(server, INTROSPECT, {"token": token})
        oauth_error(answer, 401, "invalid_token")
        assert answer.headers["WWW-Authenticate"] == REALM

    def test_introspection_rejects_the_actor_header(self, server: Server, token: str) -> None:
        answer = raw(server, INTROSPECT, urlencode({"token": token}).encode(), FORM, AS_ADMIN)
        oauth_error(answer, 401, "invalid_token")

    @pytest.mark.parametrize("given", ["Basic d2F0Y2h3b3JkOnNlY3JldA==", "Bearer nonsense"])
    def test_introspection_rejects_basic_and_invalid_credentials(self, server: Server, token: str, given: str) -> None:
        answer = raw(server, INTROSPECT, urlencode({"token": token}).encode(), FORM, f"Authorization: {given}")
        oauth_error(answer, 401, "invalid_token")
        assert (answer.header("WWW-Authenticate") or "").startswith(REALM)

    def test_introspection_rejects_two_credentials(self, server: Server, gateway: str, token: str) -> None:
        twice = [f"Authorization: Bearer {gateway}"] * 2
        oauth_error(raw(server, INTROSPECT, urlencode({"token": token}).encode(), FORM, *twice), 400, "invalid_request")

    def test_introspection_denial_does_not_depend_on_the_token(
        self, server: Server, made: dict[str, Any], actor: str
    ) -> None:
        server.grant(actor)
        own, other = made["accessToken"], server.create(ADMIN, name="other")
        dead = server.create(actor)
        server.revoke(dead["metadata"]["id"])
        answers = [
            post(server, INTROSPECT, {"token": asked}, own)
            for asked in (other["accessToken"], server.create(actor)["accessToken"], dead["accessToken"], "nonsense")
        ]
        for answer in answers:
            oauth_error(answer, 403, "insufficient_scope")
            challenge = answer.headers["WWW-Authenticate"]
            assert challenge.startswith(f'{REALM}, error="insufficient_scope", error_description="')
            assert challenge.endswith(', scope="INTROSPECT_TOKENS"')
        assert len({answer.text for answer in answers}) == 1

    def test_denied_introspection_writes_an_event(self, server: Server, token: str, actor: str) -> None:
        post(server, INTROSPECT, {"token": "nonsense"}, token)
        events = server.ask(EVENTS, actor=ADMIN)["listEvents"]["events"]
        (denied,) = (e for e in events if e["actorUrn"] == actor and e["action"] == "access.denied")
        assert denied["target"] == "introspect"
        assert denied["detail"] == {"privilege": "INTROSPECT_TOKENS"}

    def test_deleted_policy_denies_introspection_at_the_next_request(
        self, server: Server, token: str, actor: str
    ) -> None:
        policy = server.grant(actor, privileges=("INTROSPECT_TOKENS",))
        assert introspect(server, "nonsense", token) == INACTIVE
        server.withdraw(policy)
        oauth_error(post(server, INTROSPECT, {"token": "nonsense"}, token), 403, "insufficient_scope")


@pytest.fixture(scope="module")
def foreign_token(tmp_path_factory: pytest.TempPathFactory) -> str:
    """A token of another instance."""
    with Server(tmp_path_factory.mktemp("stranger")) as other:
        token: str = other.create(ADMIN)["accessToken"]
        return token


class TestInvalidTokens:
    def test_invalid_token_is_inactive_without_details(
        self, server: Server, gateway: str, made: dict[str, Any], foreign_token: str
    ) -> None:
        before = stored(server)
        forged = forgeries(server, made["accessToken"], foreign_token)
        answers = {what: post(server, INTROSPECT, {"token": text}, gateway) for what, text in forged.items()}
        assert {what: answer.json() for what, answer in answers.items()} == dict.fromkeys(forged, INACTIVE)
        assert {answer.headers["Cache-Control"] for answer in answers.values()} == {"no-store"}
        assert stored(server) == before

    def test_revoking_an_invalid_token_returns_200_and_changes_nothing(
        self, server: Server, made: dict[str, Any], foreign_token: str
    ) -> None:
        before = stored(server)
        for text in forgeries(server, made["accessToken"], foreign_token).values():
            answer = post(server, REVOKE, {"token": text})
            assert (answer.status_code, answer.content) == (200, b"")
        assert stored(server) == before
        assert server.verify(made["accessToken"]).status_code == 204

    @pytest.mark.parametrize("address", ["/auth", "/api/graphql"])
    def test_forged_bearer_is_rejected_and_changes_nothing(
        self, server: Server, made: dict[str, Any], foreign_token: str, address: str
    ) -> None:
        before = stored(server)
        for what, text in forgeries(server, made["accessToken"], foreign_token).items():
            sent = text if isinstance(text, bytes) else text.encode()
            if what in ("trailing blank", "leading blank", "trailing line") or b"\0" in sent:
                continue  # HTTP strips spaces around a header value and rejects NUL
            bearer = b"Authorization: Bearer " + sent
            answer = send(server, headers=[bearer, "Content-Type: application/json"], target=address)
            assert answer.status == (400 if len(sent) > 8_192 else 401), what
        assert stored(server) == before

    def test_revoked_expired_and_suspended_tokens_are_inactive(
        self, server: Server, gateway: str, made: dict[str, Any], actor: str
    ) -> None:
        revoked, expired = server.create(ADMIN, of=actor), server.create(ADMIN, of=actor)
        server.revoke(revoked["metadata"]["id"])
        change_store(
            server, "UPDATE tokens SET expires_at = ? WHERE id = ?", 1_700_000_000_123, expired["metadata"]["id"]
        )
        assert introspect(server, revoked["accessToken"], gateway) == INACTIVE
        assert introspect(server, expired["accessToken"], gateway) == INACTIVE
        server.set_status(actor, "SUSPENDED")
        assert introspect(server, made["accessToken"], gateway) == INACTIVE
        server.set_status(actor, "ACTIVE")
        assert introspect(server, made["accessToken"], gateway)["active"] is True

    def test_introspection_of_a_revoked_token_writes_an_event(
        self, make_server: Callable[..., Server], actor: str
    ) -> None:
        server = make_server()
        made, gateway = server.create(ADMIN, of=actor), server.create(ADMIN)["accessToken"]
        server.revoke(made["metadata"]["id"])
        introspect(server, made["accessToken"], gateway)
        events = server.ask(EVENTS, actor=ADMIN)["listEvents"]["events"]
        (failed,) = (e for e in events if e["actorUrn"] == actor and e["action"] == "authentication.failed")
        assert failed["target"] == INTROSPECT
        assert failed["tokenId"] == made["metadata"]["id"]
        assert failed["detail"] == {"reason": "token_revoked"}


class TestRevocationByPossession:
    def test_holder_revokes_a_token_with_the_token_only(self, server: Server, gateway: str, token: str) -> None:
        answer = post(server, REVOKE, {"token": token})
        assert (answer.status_code, answer.content) == (200, b"")
        assert answer.headers["Cache-Control"] == "no-store"
        assert server.verify(token).json()["error"]["reason"] == "token_revoked"
        assert introspect(server, token, gateway) == INACTIVE

    def test_revocation_by_possession_writes_an_event(self, server: Server, made: dict[str, Any], actor: str) -> None:
        post(server, REVOKE, {"token": made["accessToken"]})
        events = server.ask(EVENTS, actor=ADMIN)["listEvents"]["events"]
        (event,) = (e for e in events if e["action"] == "token.revoked" and e["target"] == made["metadata"]["id"])
        assert (event["actorUrn"], event["tokenId"]) == (actor, made["metadata"]["id"])
        assert event["detail"].items() >= {"actorUrn": actor, "byPossession": True}.items()

    def test_second_revocation_returns_200_and_changes_nothing(self, server: Server, token: str) -> None:
        post(server, REVOKE, {"token": token})
        before = stored(server)
        again = post(server, REVOKE, {"token": token})
        assert (again.status_code, again.content) == (200, b"")
        assert stored(server) == before

    def test_revoking_an_expired_token_changes_nothing(self, server: Server, made: dict[str, Any]) -> None:
        change_store(server, "UPDATE tokens SET expires_at = ? WHERE id = ?", 1_700_000_000_123, made["metadata"]["id"])
        before = stored(server)
        assert post(server, REVOKE, {"token": made["accessToken"]}).status_code == 200
        assert stored(server) == before

    def test_holder_revokes_the_token_of_a_suspended_actor(self, server: Server, token: str, actor: str) -> None:
        server.set_status(actor, "SUSPENDED")
        assert post(server, REVOKE, {"token": token}).status_code == 200
        server.set_status(actor, "ACTIVE")
        assert server.verify(token).json()["error"]["reason"] == "token_revoked"

    @pytest.mark.parametrize("authorization", ["Basic YTpi", "Bearer nonsense"])
    def test_revocation_ignores_other_credentials(self, server: Server, token: str, authorization: str) -> None:
        answer = server.http.post(REVOKE, data={"token": token}, headers={"Authorization": authorization})
        assert answer.status_code == 200
        assert server.verify(token).status_code == 401

    def test_revocation_gets_503_while_the_store_cannot_be_written(self, server: Server, token: str) -> None:
        with locked(server):
            refused = post(server, REVOKE, {"token": token})
        oauth_error(refused, 503, "temporarily_unavailable")
        assert int(refused.headers["Retry-After"]) > 0
        assert server.verify(token).status_code == 204
        assert post(server, REVOKE, {"token": token}).status_code == 200


BODIES = {
    "nothing": b"",
    "no token": b"token_type_hint=access_token",
    "an empty token": b"token=",
    "the token twice": b"token=a&token=a",
    "a hint twice": b"token=a&token_type_hint=x&token_type_hint=y",
    "too many parameters": b"token=a&" + b"&".join(b"p%d=1" % number for number in range(30)),
    "JSON in a form": b'{"token": "a"}',
}


@pytest.mark.parametrize("path", [INTROSPECT, REVOKE])
class TestForms:
    @pytest.mark.parametrize("body", BODIES.values(), ids=BODIES)
    def test_form_without_exactly_one_token_is_an_invalid_request(
        self, server: Server, gateway: str, path: str, body: bytes
    ) -> None:
        oauth_error(raw(server, path, body, FORM, f"Authorization: Bearer {gateway}"), 400, "invalid_request")

    @pytest.mark.parametrize(
        "kind",
        ["application/json", "multipart/form-data; boundary=x", "text/plain", "application/x-www-form-urlencodedx", ""],
    )
    def test_other_content_type_is_an_invalid_request(self, server: Server, gateway: str, path: str, kind: str) -> None:
        answer = raw(server, path, b"token=a", f"Content-Type: {kind}", f"Authorization: Bearer {gateway}")
        assert "x-www-form-urlencoded" in oauth_error(answer, 400, "invalid_request")

    def test_compressed_form_is_an_invalid_request(self, server: Server, gateway: str, path: str) -> None:
        headers = [FORM, "Content-Encoding: gzip", f"Authorization: Bearer {gateway}"]
        oauth_error(raw(server, path, b"token=a", *headers), 400, "invalid_request")

    def test_form_with_charset_is_accepted(self, server: Server, gateway: str, path: str) -> None:
        kind = f"{FORM}; charset=UTF-8"
        assert raw(server, path, b"token=a", kind, f"Authorization: Bearer {gateway}").status == 200

    def test_form_over_64_kib_is_rejected(self, server: Server, gateway: str, path: str) -> None:
        sent = b"token=" + b"a" * 65_536
        oauth_error(raw(server, path, sent, FORM, f"Authorization: Bearer {gateway}"), 413, "invalid_request")
        assert raw(server, path, sent[:65_536], FORM, f"Authorization: Bearer {gateway}").status == 200

    def test_token_in_the_query_is_ignored(self, server: Server, gateway: str, token: str, path: str) -> None:
        asked = f"{path}?{urlencode({'token': token})}"
        oauth_error(raw(server, asked, b"", FORM, f"Authorization: Bearer {gateway}"), 400, "invalid_request")
        assert server.verify(token).status_code == 204

    @pytest.mark.parametrize("method", ["GET", "PUT", "DELETE", "OPTIONS"])
    def test_form_endpoints_accept_only_post(self, server: Server, path: str, method: str) -> None:
        answer = raw(server, path, None, method=method)
        oauth_error(answer, 405, "invalid_request")
        assert answer.header("Allow") == "POST"


def test_metrics_count_oauth_requests_by_route(server: Server, gateway: str) -> None:
    introspect(server, "nonsense", gateway)
    post(server, REVOKE, {"token": "nonsense"})
    wanted = [f'watchword_http_requests_total{{route="{route}",status="200"}}' for route in (INTROSPECT, REVOKE)]
    # A request is counted when its response is being sent.
    until(lambda: all(line in server.http.get("/metrics").text for line in wanted), "both are counted")


def test_metrics_count_revocation_by_possession(make_server: Callable[..., Server]) -> None:
    server = make_server()
    token = server.create(ADMIN)["accessToken"]
    for _ in range(2):
        post(server, REVOKE, {"token": token})
    until(lambda: "watchword_tokens_revoked_total 1.0" in server.http.get("/metrics").text, "it is counted")


def test_introspection_privilege_allows_nothing_else(server: Server, gateway: str) -> None:
    answer = server.post("{ listAccessTokens { total } }", token=gateway).json()
    assert answer["errors"][0]["extensions"]["privilege"] == GENERATE
