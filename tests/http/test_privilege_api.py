"""Explained privileges, the list of privileges and known actors, over HTTP."""

from typing import Any

import pytest

from tests.support.server import ADMIN, GENERATE, MANAGE_ALL, GraphQLRefused, Server

EXPLAIN = """query ($actor: String!, $privilege: String!) {
  explainPrivilege(input: {actorUrn: $actor, privilege: $privilege}) {
    actorUrn privilege allowed suspended explanation grants { policyUrn policyName via groupUrn privilege } } }"""
PRIVILEGES = "{ listPrivileges { name displayName allows includes } }"
ACTORS = """query ($input: ListActorsInput) { listActors(input: $input) {
  count cursor actors { urn username status changedAt changedBy liveTokenCount groups } } }"""
CREATE_GROUP = "mutation ($input: CreateGroupInput!) { createGroup(input: $input) }"
ADD = "mutation ($group: String!, $users: [String!]!) { addGroupMembers(input: {groupUrn: $group, userUrns: $users}) }"
MANAGE_POLICIES = "MANAGE_POLICIES"


def explain(server: Server, about: str, privilege: str = GENERATE, **who: Any) -> dict[str, Any]:
    found: dict[str, Any] = server.ask(EXPLAIN, {"actor": about, "privilege": privilege}, **(who or {"actor": ADMIN}))[
        "explainPrivilege"
    ]
    return found


def refusal(server: Server, query: str, variables: dict[str, Any], **who: Any) -> dict[str, Any]:
    with pytest.raises(GraphQLRefused) as refused:
        server.ask(query, variables, **who)
    extensions: dict[str, Any] = refused.value.errors[0]["extensions"] | {"message": refused.value.errors[0]["message"]}
    return extensions


class TestExplanation:
    def test_explanation_lists_every_policy_and_every_way(self, server: Server, actor: str) -> None:
        group = server.ask(CREATE_GROUP, {"input": {"name": "g"}}, actor=ADMIN)["createGroup"]
        server.ask(ADD, {"group": group, "users": [actor]}, actor=ADMIN)
        named = server.grant(actor, privileges=(MANAGE_ALL,), groups=[group])
        server.grant(ADMIN)
        found = explain(server, actor)
        assert (found["actorUrn"], found["privilege"]) == (actor, GENERATE)
        assert (found["allowed"], found["suspended"]) == (True, False)
        grant = {"policyUrn": named, "policyName": "test policy", "privilege": MANAGE_ALL}
        assert found["grants"] == [
            {**grant, "via": "USER", "groupUrn": None},
            {**grant, "via": "GROUP", "groupUrn": group},
        ]
        assert found["explanation"].startswith(f"Allowed by 'test policy' ({named}), which names the actor")

    def test_explanation_names_all_users_and_root_policies(self, server: Server, actor: str) -> None:
        (everyone,) = explain(server, actor, "GET_ES_TASK_STATUS_PRIVILEGE")["grants"]
        assert (everyone["via"], everyone["policyName"]) == ("ALL_USERS", "Everyone reads task status")
        (root,) = explain(server, ADMIN, MANAGE_POLICIES)["grants"]
        assert (root["via"], root["policyUrn"]) == ("USER", "urn:li:servicePolicy:root")

    def test_explanation_of_a_denial_is_the_error_of_the_actor(self, server: Server, actor: str) -> None:
        found = explain(server, actor)
        assert (found["allowed"], found["grants"]) == (False, [])
        own = {"input": {"filters": [{"field": "actorUrn", "value": actor}]}}
        query = "query ($input: ListAccessTokensInput) { listAccessTokens(input: $input) { total } }"
        assert found["explanation"] == refusal(server, query, own, actor=actor)["message"]

    def test_explanation_of_a_suspended_actor_says_so(self, server: Server, actor: str) -> None:
        server.grant(actor)
        server.set_status(actor, "SUSPENDED")
        found = explain(server, actor)
        assert (found["allowed"], found["suspended"], len(found["grants"])) == (False, True, 1)
        refused = server.post("{ me { corpUser { urn } } }", actor=actor)
        assert refused.status_code == 401
        assert found["explanation"] in refused.text

    def test_own_explanation_includes_token_scopes(self, server: Server, actor: str) -> None:
        server.grant(actor, privileges=(GENERATE, "VIEW_AUDIT_LOG"))
        token = server.create(actor, scopes=["VIEW_AUDIT_LOG"])["accessToken"]
        assert explain(server, actor, actor=actor)["allowed"]
        assert explain(server, actor, "VIEW_AUDIT_LOG", token=token)["allowed"]
        limited = explain(server, actor, token=token)
        assert (limited["allowed"], limited["grants"]) == (False, [])
        assert "This token is limited to the scopes VIEW_AUDIT_LOG" in limited["explanation"]

    def test_token_without_scopes_learns_nothing_of_policies_and_groups(self, server: Server, actor: str) -> None:
        group = server.ask(CREATE_GROUP, {"input": {"name": "g"}}, actor=ADMIN)["createGroup"]
        server.ask(ADD, {"group": group, "users": [actor]}, actor=ADMIN)
        policy = server.grant(actor, groups=[group])
        token = server.create(actor, scopes=[])["accessToken"]
        for privilege in (GENERATE, MANAGE_POLICIES, "GET_ES_TASK_STATUS_PRIVILEGE"):
            found = explain(server, actor, privilege, token=token)
            assert (found["allowed"], found["grants"]) == (False, [])
            assert policy not in str(found)
            assert group not in str(found)

    def test_explanation_of_others_needs_view_policies(self, server: Server, actor: str) -> None:
        server.grant(actor, privileges=(MANAGE_ALL,))
        for privilege in (GENERATE, "NONSENSE"):
            refused = refusal(server, EXPLAIN, {"actor": ADMIN, "privilege": privilege}, actor=actor)
            assert (refused["code"], refused["privilege"]) == (403, "VIEW_POLICIES")
        refused = refusal(server, EXPLAIN, {"actor": ADMIN, "privilege": "NONSENSE"}, actor=ADMIN)
        assert (refused["code"], refused["field"]) == (400, "privilege")


def test_every_privilege_is_described(server: Server, actor: str) -> None:
    described = server.ask(PRIVILEGES, actor=actor)["listPrivileges"]
    names = [one["name"] for one in described]
    granted = '{ getGrantedPrivileges(input: {actorUrn: "%s"}) { privileges } }' % ADMIN  # noqa: UP031 - braces
    assert names == server.ask(granted, actor=ADMIN)["getGrantedPrivileges"]["privileges"]
    assert all(one["displayName"] and one["allows"].endswith(".") for one in described)
    (manager,) = [one for one in described if one["name"] == MANAGE_ALL]
    assert manager["includes"] == [GENERATE]


class TestKnownActors:
    def test_known_actors_have_status_live_tokens_and_groups(self, server: Server, actor: str) -> None:
        group = server.ask(CREATE_GROUP, {"input": {"name": "g"}}, actor=ADMIN)["createGroup"]
        server.ask(ADD, {"group": group, "users": [actor]}, actor=ADMIN)
        server.create(ADMIN, of=actor)
        (found,) = server.ask(ACTORS, {"input": {"prefix": actor}}, actor=ADMIN)["listActors"]["actors"]
        assert found["liveTokenCount"] == 1
        server.set_status(actor, "SUSPENDED")
        (found,) = server.ask(ACTORS, {"input": {"prefix": actor}}, actor=ADMIN)["listActors"]["actors"]
        assert found.pop("changedAt") > 0
        assert found == {
            "urn": actor, "username": actor.rpartition(":")[2], "status": "SUSPENDED", "changedBy": ADMIN,
            "liveTokenCount": 0, "groups": [group],
        }  # fmt: skip

    def test_known_actors_are_found_by_prefix_and_paged(self, server: Server, actor: str) -> None:
        name = actor.rpartition(":")[2]
        users = [f"{actor}-{letter}" for letter in "abc"]
        server.grant(*users)
        for prefix in (name, actor):
            page = server.ask(ACTORS, {"input": {"prefix": f"{prefix}-", "count": 2}}, actor=ADMIN)["listActors"]
            assert ([one["urn"] for one in page["actors"]], page["count"]) == (users[:2], 2)
            rest = {"prefix": f"{prefix}-", "count": 2, "cursor": page["cursor"]}
            page = server.ask(ACTORS, {"input": rest}, actor=ADMIN)["listActors"]
            assert ([one["urn"] for one in page["actors"]], page["cursor"]) == (users[2:], None)
        server.set_status(users[1], "SUSPENDED")
        only = server.ask(ACTORS, {"input": {"prefix": actor, "onlySuspended": True}}, actor=ADMIN)["listActors"]
        assert [one["urn"] for one in only["actors"]] == users[1:2]

    @pytest.mark.parametrize("privilege", [MANAGE_POLICIES, MANAGE_ALL])
    def test_known_actors_need_manage_policies_or_manage_all(self, server: Server, actor: str, privilege: str) -> None:
        server.grant(actor, privileges=(GENERATE, "MANAGE_SERVICE_ACCOUNTS", "VIEW_AUDIT_LOG"))
        refused = refusal(server, ACTORS, {"input": {"count": 0}}, actor=actor)
        assert (refused["code"], refused["privilege"]) == (403, MANAGE_POLICIES)
        server.grant(actor, privileges=(privilege,))
        assert server.ask(ACTORS, {"input": {"prefix": actor}}, actor=actor)["listActors"]["actors"]
        for count in (0, 1_001):
            refused = refusal(server, ACTORS, {"input": {"count": count}}, actor=actor)
            assert (refused["code"], refused["field"]) == (400, "count")
