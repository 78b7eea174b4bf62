"""Scopes of other services: granted by policies, named by tokens, effective while both hold."""

from typing import Any

import pytest

from tests.life.holding import HeldToken, LifecycleClient, reason_of
from tests.support.server import ADMIN, GENERATE, GraphQLRefused

EXPLAIN = """query ($actor: String!, $scope: String!) { explainPrivilege(input: {actorUrn: $actor, privilege: $scope}) {
  privilege allowed explanation grants { policyUrn via groupUrn privilege } } }"""
GRANTED = "query ($of: String!) { getGrantedPrivileges(input: {actorUrn: $of}) { scopes } }"
DENIALS = """query ($of: [String!]) { listEvents(input: {actorUrns: $of, actions: ["access.denied"]}) {
  events { detail } } }"""


def refusal(ask: Any) -> dict[str, Any]:
    with pytest.raises(GraphQLRefused) as refused:
        ask()
    told: dict[str, Any] = refused.value.errors[0]
    return told


def scopes_at_auth(life: LifecycleClient, held: HeldToken) -> list[str]:
    answer = life.auth(held)
    assert answer.status_code == 204
    return answer.headers["x-auth-scopes"].split()


def test_only_granted_scopes_can_be_named(lives: LifecycleClient) -> None:
    ann = lives.new_actor(GENERATE, "reports:read", "orders:*")
    assert lives.create(ann, actor=ann, scopes=["orders:eu:*", "reports:read"])["scopes"] == [
        "orders:eu:*",
        "reports:read",
    ]
    whole = lives.create(ann, actor=ann)
    for asks in (
        lambda scope: lives.create(ann, actor=ann, scopes=["reports:read", scope]),
        lambda scope: lives.create(ann, scopes=[scope]),
        lambda scope: lives.derive(whole.token, scopes=[scope]),
    ):
        for scope in ("reports:write", "reports:*", "orders", "*", "VIEW_AUDIT_LOG"):
            told = refusal(lambda asks=asks, scope=scope: asks(scope))
            assert (told["extensions"]["code"], told["extensions"]["reason"]) == (403, "missing_scope")
            assert told["extensions"]["scope"] == scope
            assert f"the scope {scope} to {ann}" in told["message"]


def test_withdrawn_scope_is_gone_from_the_next_request_on(lives: LifecycleClient) -> None:
    ann = lives.new_actor()
    server = lives.server
    policy = server.grant(ann, privileges=(), scopes=("reports:read", "orders:*"))
    whole, limited = lives.create(ann), lives.create(ann, scopes=["orders:read", "reports:read"])
    assert scopes_at_auth(lives, whole) == ["orders:*", "reports:read"]
    assert scopes_at_auth(lives, limited) == ["orders:read", "reports:read"]
    for held in (whole, limited):
        assert lives.auth(held, "?watchword.scope=orders:read&watchword.scope=reports:read").status_code == 204
    server.withdraw(policy)
    for held in (whole, limited, lives.rotate(limited, token=server.create(ADMIN)["accessToken"])):
        assert scopes_at_auth(lives, held) == []
        answer = lives.auth(held, "?watchword.scope=reports:read")
        assert (answer.status_code, answer.json()["error"]["scope"]) == (403, "reports:read")
    server.grant(ann, privileges=(), scopes=("*",))
    assert scopes_at_auth(lives, whole) == ["*"]
    assert scopes_at_auth(lives, limited) == ["orders:read", "reports:read"]
    assert lives.auth(whole, "?watchword.scope=any:thing").status_code == 204
    for word in ("", "Reports", "a b"):
        assert lives.auth(whole, f"?watchword.scope={word}").status_code == 403


def test_group_grants_its_scopes_to_members(life: LifecycleClient) -> None:
    ann = life.new_actor()
    group = life.ask('mutation { createGroup(input: {name: "team"}) }')["createGroup"]
    life.server.grant(privileges=(), scopes=("reports:*",), groups=[group])
    held = life.create(ann)
    assert scopes_at_auth(life, held) == []
    members = {"group": group, "users": [ann]}
    change = "mutation ($group: String!, $users: [String!]!) { %s(input: {groupUrn: $group, userUrns: $users}) }"
    life.ask(change % "addGroupMembers", members)
    assert scopes_at_auth(life, held) == ["reports:*"]
    assert life.ask(GRANTED, {"of": ann})["getGrantedPrivileges"]["scopes"] == ["reports:*"]
    told = life.ask(EXPLAIN, {"actor": ann, "scope": "reports:read"})["explainPrivilege"]
    assert (told["privilege"], told["allowed"]) == ("reports:read", True)
    assert [(one["via"], one["groupUrn"], one["privilege"]) for one in told["grants"]] == [
        ("GROUP", group, "reports:*")
    ]
    life.ask(change % "removeGroupMembers", members)
    assert scopes_at_auth(life, held) == []


def test_explanation_of_a_missing_scope_is_the_error(life: LifecycleClient) -> None:
    ann = life.new_actor(GENERATE, "reports:read", "orders:read")
    limited = life.create(ann, scopes=["orders:read"])
    told = [
        life.ask(EXPLAIN, {"actor": ann, "scope": scope}, **how)["explainPrivilege"]
        for scope, how in (("reports:write", {}), ("reports:read", {"token": limited.token}))
    ]
    assert [one["allowed"] for one in told] == [False, False]
    assert told[0]["explanation"] == "You lack the scope reports:write. Ask someone who manages policies."
    assert told[1]["explanation"].startswith("This token is limited to the scopes orders:read, without reports:read")
    with pytest.raises(GraphQLRefused) as refused:
        life.ask(EXPLAIN, {"actor": ann, "scope": "Nonsense"})
    assert reason_of(refused.value) == (400, "invalid_field", "privilege")


def test_denied_scope_is_in_the_audit_log(life: LifecycleClient) -> None:
    ann = life.new_actor()
    refusal(lambda: life.create(ann, actor=ann, scopes=["reports:read"]))
    life.auth(life.create(ann), "?watchword.scope=orders:read")
    events = life.ask(DENIALS, {"of": [ann]})["listEvents"]["events"]
    assert [event["detail"] for event in events] == [{"scope": "orders:read"}, {"scope": "reports:read"}]


def test_long_list_of_scopes_is_shortened_in_the_header_only(life: LifecycleClient) -> None:
    words = [f"{n:02}:{'x' * 90}" for n in range(99)]
    held = life.create(life.new_actor(GENERATE, *words))
    shown = scopes_at_auth(life, held)
    assert shown == words[: len(shown)]
    assert 0 < len(" ".join(shown)) <= 3_000
    assert life.auth(held, f"?watchword.scope={words[-1]}").status_code == 204


@pytest.mark.parametrize(
    ("privileges", "scopes", "field"),
    [([], [], "privileges"), ([], ["Reports"], "scopes"), ([GENERATE], ["a", "MANAGE_POLICIES"], "scopes")],
)
def test_policy_with_invalid_scopes_is_rejected(
    life: LifecycleClient, privileges: list[str], scopes: list[str], field: str
) -> None:
    with pytest.raises(GraphQLRefused) as refused:
        life.server.grant(ADMIN, privileges=tuple(privileges), scopes=tuple(scopes))
    assert reason_of(refused.value) == (400, "invalid_field", field)
