"""OAuth endpoints with limited, derived and rotated tokens."""

from typing import Any

import httpx
import pytest

from tests.support.server import ADMIN, Server
from tests.support.store_file import look
from tests.support.waiting import until

INTROSPECT = "/oauth2/introspect"
REVOKE = "/oauth2/revoke"
ELSEWHERE = ["192.0.2.0/24"]
ROTATE = """mutation ($id: String!) {
  rotateAccessToken(tokenId: $id, overlap: "PT10M", grace: "PT1M") { accessToken metadata { id expiresAt } } }"""
DERIVE = """mutation { deriveAccessToken(input: {duration: ONE_HOUR, name: "derived"}) { accessToken } }"""


@pytest.fixture(scope="module")
def gateway(server: Server) -> str:
    urn = "urn:li:corpuser:oauth-limits-gateway"
    server.grant(urn, privileges=("INTROSPECT_TOKENS",))
    token: str = server.create(ADMIN, of=urn)["accessToken"]
    return token


def ask(server: Server, token: str, by: str) -> httpx.Response:
    return server.http.post(INTROSPECT, data={"token": token}, headers={"Authorization": f"Bearer {by}"})


def introspect(server: Server, token: str, by: str) -> Any:
    answer = ask(server, token, by)
    assert answer.status_code == 200, answer.text
    return answer.json()


def test_introspection_returns_scopes_and_audience(server: Server, gateway: str, actor: str) -> None:
    limits: dict[str, Any] = {
        "scopes": ["read:orders", "VIEW_AUDIT_LOG"],
        "audience": ["https://orders.example", "billing"],
    }
    policy = server.grant(actor, privileges=("VIEW_AUDIT_LOG",), scopes=("read:*",))
    token = server.create(ADMIN, of=actor, **limits)["accessToken"]
    content = introspect(server, token, gateway)
    assert set(content["scope"].split(" ")) == set(limits["scopes"])
    assert set(content["aud"]) == set(limits["audience"])
    server.withdraw(policy)
    assert introspect(server, token, gateway)["scope"] == ""


def test_introspection_of_an_unlimited_token_returns_what_its_actor_is_granted(
    server: Server, gateway: str, actor: str
) -> None:
    server.grant(actor, scopes=("read:*",))
    contents = [introspect(server, server.create(ADMIN, of=actor, **limits)["accessToken"], gateway) for limits in NONE]
    assert [content["active"] for content in contents] == [True, True]
    assert [content["scope"] for content in contents] == ["read:*", ""]


NONE: list[dict[str, Any]] = [{}, {"scopes": []}]


def test_introspection_leaves_networks_to_the_caller(server: Server, gateway: str, actor: str) -> None:
    token = server.create(ADMIN, of=actor, allowedNetworks=ELSEWHERE)["accessToken"]
    assert server.verify(token).status_code == 401
    assert introspect(server, token, gateway)["sub"] == actor
    assert ask(server, token, token).status_code == 401, "here it is the bearer itself that comes from elsewhere"


def test_scoped_token_without_introspection_scope_is_denied(server: Server, actor: str) -> None:
    server.grant(actor, privileges=("INTROSPECT_TOKENS",))
    limited = server.create(ADMIN, of=actor, scopes=["GET_ES_TASK_STATUS_PRIVILEGE"])["accessToken"]
    allowed = server.create(ADMIN, of=actor, scopes=["INTROSPECT_TOKENS"])["accessToken"]
    refused = ask(server, allowed, limited)
    assert (refused.status_code, refused.json()["error"]) == (403, "insufficient_scope")
    assert introspect(server, limited, allowed)["active"] is True


def test_token_for_another_audience_may_introspect_only_itself(server: Server, actor: str) -> None:
    server.grant(actor, privileges=("INTROSPECT_TOKENS",))
    foreign = server.create(ADMIN, of=actor, audience=["https://orders.example"])["accessToken"]
    assert introspect(server, foreign, foreign)["aud"] == ["https://orders.example"]
    for other in (server.create(ADMIN, of=actor)["accessToken"], "nonsense"):
        refused = ask(server, other, foreign)
        assert (refused.status_code, refused.json()["error"]) == (403, "insufficient_scope")


def test_holder_revokes_a_token_limited_to_another_audience(server: Server, gateway: str, actor: str) -> None:
    limits: dict[str, Any] = {"allowedNetworks": ELSEWHERE, "audience": ["https://orders.example"], "scopes": []}
    token = server.create(ADMIN, of=actor, **limits)["accessToken"]
    assert server.http.post(REVOKE, data={"token": token}).status_code == 200
    assert introspect(server, token, gateway) == {"active": False}


def test_derived_token_is_inactive_after_its_parent_is_revoked(server: Server, gateway: str, actor: str) -> None:
    server.grant(actor)
    parent = server.create(ADMIN, of=actor, duration="ONE_DAY")["accessToken"]
    child = server.ask(DERIVE, token=parent)["deriveAccessToken"]["accessToken"]
    assert introspect(server, child, gateway)["active"] is True
    server.http.post(REVOKE, data={"token": parent})
    assert introspect(server, child, gateway) == {"active": False}


class TestSuccessor:
    def rotated(self, server: Server, actor: str) -> tuple[Any, Any]:
        server.grant(actor)
        old = server.create(ADMIN, of=actor)
        return old, server.ask(ROTATE, {"id": old["metadata"]["id"]}, token=old["accessToken"])["rotateAccessToken"]

    def test_introspection_is_the_first_use_of_a_successor(self, server: Server, gateway: str, actor: str) -> None:
        old, new = self.rotated(server, actor)
        content = introspect(server, new["accessToken"], gateway)
        ((end,),) = look(server, "SELECT expires_at FROM tokens WHERE id = ?", new["metadata"]["id"])
        assert content["exp"] == end // 1000 > new["metadata"]["expiresAt"] // 1000
        asked = "SELECT expires_at, expires_at - replaced_at FROM tokens WHERE id = ?"
        ((end, grace),) = look(server, asked, old["metadata"]["id"])
        assert grace == 60_000
        assert introspect(server, old["accessToken"], gateway)["exp"] == end // 1000

    def test_introspection_by_its_own_actor_is_no_use_of_a_token(
        self, server: Server, gateway: str, actor: str
    ) -> None:
        server.grant(actor, privileges=("INTROSPECT_TOKENS",))
        old, new = self.rotated(server, actor)
        content = introspect(server, new["accessToken"], old["accessToken"])
        assert (content["active"], content["exp"]) == (True, new["metadata"]["expiresAt"] // 1000)
        replaced = "SELECT replaced_at FROM tokens WHERE id = ?"
        assert look(server, replaced, old["metadata"]["id"]) == [(None,)], "the successor waits for its first use"
        uses = "SELECT coalesce(sum(uses), 0) FROM token_uses WHERE token_id = ?"
        introspect(server, new["accessToken"], gateway)
        assert look(server, replaced, old["metadata"]["id"]) != [(None,)]
        until(lambda: look(server, uses, new["metadata"]["id"]) != [(0,)], "the use is written")
        assert look(server, uses, new["metadata"]["id"]) == [(1,)]

    def test_revoking_a_token_by_possession_revokes_its_unused_successor(
        self, server: Server, gateway: str, actor: str
    ) -> None:
        old, new = self.rotated(server, actor)
        server.http.post(REVOKE, data={"token": new["accessToken"]})
        assert introspect(server, old["accessToken"], gateway) == {"active": False}
        assert introspect(server, new["accessToken"], gateway) == {"active": False}
