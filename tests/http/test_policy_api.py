"""Policies, groups, actor status and `me` over HTTP: changes apply to the next request."""

from typing import Any

import pytest

from tests.support.server import ADMIN, CREATE_POLICY, GENERATE, LIST, MANAGE_ALL, GraphQLRefused, Server

ROOT_POLICY = "urn:li:servicePolicy:root"
UPDATE = "mutation ($urn: String!, $input: PolicyUpdateInput!) { updatePolicy(urn: $urn, input: $input) }"
DELETE = "mutation ($urn: String!) { deletePolicy(urn: $urn) }"
POLICIES = """query ($input: ListPoliciesInput!) { listPolicies(input: $input) { start count total policies {
  urn type name state description privileges editable
  actors { users groups roles allUsers allGroups resourceOwners } } } }"""
ME = """{ me { corpUser { urn username exists } platformPrivileges {
  generatePersonalAccessTokens manageTokens managePolicies getTaskStatus viewAuditLog } } }"""
GRANTED = "query ($urn: String!) { getGrantedPrivileges(input: {actorUrn: $urn}) { privileges } }"
CREATE_GROUP = "mutation ($input: CreateGroupInput!) { createGroup(input: $input) }"
REMOVE_GROUP = "mutation ($urn: String!) { removeGroup(urn: $urn) }"
ADD = "mutation ($group: String!, $users: [String!]!) { addGroupMembers(input: {groupUrn: $group, userUrns: $users}) }"
REMOVE = ADD.replace("addGroupMembers", "removeGroupMembers")
MEMBERS = "query ($group: String!) { listGroupMembers(input: {groupUrn: $group}) { total members { urn username } } }"
GROUPS = "{ listGroups(input: {count: 1000}) { total groups { urn name description memberCount type } } }"
ACTOR = "query ($urn: String!) { getActor(urn: $urn) { urn status changedAt changedBy } }"


def policy(*users: str, **fields: Any) -> dict[str, Any]:
    actors = {"users": list(users), **fields.pop("actors", {})}
    return {"type": "PLATFORM", "name": "p", "state": "ACTIVE", "privileges": [GENERATE], "actors": actors, **fields}


def may_list_tokens(server: Server, actor: str) -> bool:
    """Return whether the actor may use the token API, by using it."""
    own = {"filters": [{"field": "actorUrn", "value": actor}]}
    answer = server.post(LIST, {"input": own}, actor=actor).json()
    assert [error["extensions"]["code"] for error in answer.get("errors", [])] in ([], [403])
    return "errors" not in answer


def find_policy(server: Server, urn: str) -> dict[str, Any]:
    everything = server.ask(POLICIES, {"input": {"count": 1000}}, actor=ADMIN)["listPolicies"]["policies"]
    (found,) = [one for one in everything if one["urn"] == urn]
    result: dict[str, Any] = found
    return result


@pytest.fixture
def group(server: Server) -> str:
    urn: str = server.ask(CREATE_GROUP, {"input": {"name": "a group", "description": "of some"}}, actor=ADMIN)[
        "createGroup"
    ]
    return urn


class TestPolicies:
    def test_policy_grants_until_it_is_deleted(self, server: Server, actor: str) -> None:
        assert not may_list_tokens(server, actor)
        urn = server.grant(actor)
        assert may_list_tokens(server, actor)
        assert server.ask(DELETE, {"urn": urn}, actor=ADMIN)["deletePolicy"] == urn
        assert not may_list_tokens(server, actor)

    def test_policy_grants_only_while_active(self, server: Server, actor: str) -> None:
        urn = server.ask(CREATE_POLICY, {"input": policy(actor, state="INACTIVE")}, actor=ADMIN)["createPolicy"]
        for state, allowed in (("INACTIVE", False), ("ACTIVE", True), ("INACTIVE", False)):
            assert (
                server.ask(UPDATE, {"urn": urn, "input": policy(actor, state=state)}, actor=ADMIN)["updatePolicy"]
                == urn
            )
            assert may_list_tokens(server, actor) is allowed

    def test_update_replaces_the_whole_policy(self, server: Server, actor: str, group: str) -> None:
        urn = server.grant(actor, privileges=(GENERATE, MANAGE_ALL))
        given = policy(name="other", description="d", privileges=["VIEW_AUDIT_LOG"], actors={"groups": [group]})
        server.ask(UPDATE, {"urn": urn, "input": given}, actor=ADMIN)
        assert find_policy(server, urn) == {
            "urn": urn, "type": "PLATFORM", "name": "other", "state": "ACTIVE", "description": "d", "editable": True,
            "privileges": ["VIEW_AUDIT_LOG"],
            "actors": {
                "users": [], "groups": [group], "roles": [], "allUsers": False, "allGroups": False,
                "resourceOwners": False,
            },
        }  # fmt: skip
        assert not may_list_tokens(server, actor)

    def test_policy_with_every_datahub_field_is_accepted(self, server: Server, actor: str) -> None:
        actors = {"users": [actor], "groups": [], "roles": [], "allUsers": False, "allGroups": False,
                  "resourceOwners": False}  # fmt: skip
        given = policy(description=None) | {"actors": actors}
        urn = server.ask(CREATE_POLICY, {"input": given}, actor=ADMIN)["createPolicy"]
        assert find_policy(server, urn)["actors"] == actors
        assert may_list_tokens(server, actor)

    def test_manage_all_includes_generate(self, server: Server, actor: str) -> None:
        server.grant(actor, privileges=(MANAGE_ALL,))
        assert server.tokens(actor)["total"] >= 0
        assert server.create(actor, of="urn:li:corpuser:somebody")["metadata"]["ownerUrn"] == actor

    def test_root_policy_is_read_only(self, server: Server) -> None:
        assert find_policy(server, ROOT_POLICY)["editable"] is False
        for query, variables in ((DELETE, {}), (UPDATE, {"input": policy(ADMIN)})):
            (error,) = server.post(query, {"urn": ROOT_POLICY, **variables}, actor=ADMIN).json()["errors"]
            assert (error["extensions"]["code"], error["extensions"]["reason"]) == (409, "not_editable")

    def test_unknown_policy_is_404(self, server: Server) -> None:
        for query, variables in ((DELETE, {}), (UPDATE, {"input": policy(ADMIN)})):
            urn = "urn:li:servicePolicy:nothing"
            (error,) = server.post(query, {"urn": urn, **variables}, actor=ADMIN).json()["errors"]
            assert (error["extensions"]["code"], error["extensions"]["reason"]) == (404, "policy_not_found")

    def test_policies_are_sorted_searched_and_paged(self, server: Server, actor: str) -> None:
        word = actor.rsplit(":", 1)[1]
        for name in ("c", "a", "b"):
            server.ask(CREATE_POLICY, {"input": policy(actor, name=f"{name} {word}")}, actor=ADMIN)
        server.ask(CREATE_POLICY, {"input": policy(actor, name="z", description=f"about {word.upper()}")}, actor=ADMIN)
        found = server.ask(POLICIES, {"input": {"query": word}}, actor=ADMIN)["listPolicies"]
        assert [one["name"].split(" ")[0] for one in found["policies"]] == ["a", "b", "c", "z"]
        page = server.ask(POLICIES, {"input": {"query": word, "start": 1, "count": 2}}, actor=ADMIN)["listPolicies"]
        assert (page["start"], page["count"], page["total"]) == (1, 2, 4)
        assert page["policies"] == found["policies"][1:3]


class TestGroups:
    def test_group_members_have_the_privileges_of_the_group(self, server: Server, actor: str, group: str) -> None:
        server.grant(groups=[group])
        for _ in range(3):
            assert not may_list_tokens(server, actor)
            assert server.ask(ADD, {"group": group, "users": [actor]}, actor=ADMIN)["addGroupMembers"] is True
            assert may_list_tokens(server, actor)
            assert server.ask(REMOVE, {"group": group, "users": [actor]}, actor=ADMIN)["removeGroupMembers"] is True

    def test_removed_group_grants_nothing(self, server: Server, actor: str, group: str) -> None:
        server.grant(groups=[group])
        server.ask(ADD, {"group": group, "users": [actor]}, actor=ADMIN)
        token = server.create(actor)["accessToken"]
        assert server.ask(REMOVE_GROUP, {"urn": group}, actor=ADMIN)["removeGroup"] is True
        assert not may_list_tokens(server, actor)
        (error,) = server.post("{ listAccessTokens { total } }", token=token).json()["errors"]
        assert error["extensions"]["code"] == 403
        assert server.verify(token).status_code == 204

    def test_group_members_are_listed_once_and_sorted(self, server: Server, group: str) -> None:
        users = [f"urn:li:corpuser:{name}" for name in ("zoe", "adam", "mia")]
        for _ in range(2):
            server.ask(ADD, {"group": group, "users": users}, actor=ADMIN)
        listed = server.ask(MEMBERS, {"group": group}, actor=ADMIN)["listGroupMembers"]
        assert listed["total"] == 3
        assert [one["username"] for one in listed["members"]] == ["adam", "mia", "zoe"]
        (mine,) = [one for one in server.ask(GROUPS, actor=ADMIN)["listGroups"]["groups"] if one["urn"] == group]
        assert mine == {
            "urn": group, "name": "a group", "description": "of some", "memberCount": 3, "type": "CORP_GROUP",
        }  # fmt: skip

    def test_taken_group_id_is_a_conflict_and_unknown_one_is_404(self, server: Server, actor: str) -> None:
        given = {"input": {"name": "g", "id": actor.rsplit("-", 1)[1] + "-taken"}}
        urn = server.ask(CREATE_GROUP, given, actor=ADMIN)["createGroup"]
        assert urn == "urn:li:corpGroup:" + given["input"]["id"]
        (error,) = server.post(CREATE_GROUP, given, actor=ADMIN).json()["errors"]
        assert (error["extensions"]["code"], error["extensions"]["reason"]) == (409, "already_exists")
        nothing = "urn:li:corpGroup:nothing"
        for query, variables in (
            (REMOVE_GROUP, {"urn": nothing}),
            (ADD, {"group": nothing, "users": [actor]}),
            (REMOVE, {"group": nothing, "users": [actor]}),
            (MEMBERS, {"group": nothing}),
        ):
            (error,) = server.post(query, variables, actor=ADMIN).json()["errors"]
            assert (error["extensions"]["code"], error["extensions"]["reason"]) == (404, "group_not_found")


class TestActors:
    def test_actor_status_has_time_and_actor_of_its_change(self, server: Server, actor: str) -> None:
        assert server.ask(ACTOR, {"urn": actor}, actor=ADMIN)["getActor"] == {
            "urn": actor, "status": "ACTIVE", "changedAt": None, "changedBy": None,
        }  # fmt: skip
        server.set_status(actor, "SUSPENDED")
        state = server.ask(ACTOR, {"urn": actor}, actor=ADMIN)["getActor"]
        assert (state["status"], state["changedBy"]) == ("SUSPENDED", ADMIN)
        server.set_status(actor, "ACTIVE")
        assert server.ask(ACTOR, {"urn": actor}, actor=ADMIN)["getActor"]["changedAt"] >= state["changedAt"]

    def test_suspended_actor_gets_no_token(self, server: Server, actor: str) -> None:
        server.set_status(actor, "SUSPENDED")
        with pytest.raises(GraphQLRefused) as refusal:
            server.create(ADMIN, of=actor)
        assert (refusal.value.code, refusal.value.reason) == (409, "actor_suspended")

    def test_root_actor_cannot_be_suspended(self, server: Server) -> None:
        with pytest.raises(GraphQLRefused) as refusal:
            server.set_status(ADMIN, "SUSPENDED")
        assert (refusal.value.code, refusal.value.reason) == (409, "not_editable")


class TestMe:
    def test_me_needs_no_privilege_and_lists_privileges(self, server: Server, actor: str) -> None:
        me = server.ask(ME, actor=actor)["me"]
        assert me["corpUser"] == {"urn": actor, "username": actor.rsplit(":", 1)[1], "exists": True}
        assert me["platformPrivileges"] == {
            "generatePersonalAccessTokens": False, "manageTokens": False, "managePolicies": False,
            "getTaskStatus": True, "viewAuditLog": False,
        }  # fmt: skip
        server.grant(actor, privileges=(MANAGE_ALL, "VIEW_AUDIT_LOG"))
        assert server.ask(ME, token=server.create(actor)["accessToken"])["me"]["platformPrivileges"] == {
            "generatePersonalAccessTokens": True, "manageTokens": True, "managePolicies": False,
            "getTaskStatus": True, "viewAuditLog": True,
        }  # fmt: skip
        assert all(server.ask(ME, actor=ADMIN)["me"]["platformPrivileges"].values())

    def test_privileges_of_others_need_view_policies(self, server: Server, actor: str) -> None:
        server.grant(actor)
        wanted = {"privileges": [GENERATE, "GET_ES_TASK_STATUS_PRIVILEGE"]}
        assert server.ask(GRANTED, {"urn": actor}, actor=actor)["getGrantedPrivileges"] == wanted
        assert server.ask(GRANTED, {"urn": actor}, actor=ADMIN)["getGrantedPrivileges"] == wanted
        (error,) = server.post(GRANTED, {"urn": ADMIN}, actor=actor).json()["errors"]
        assert (error["extensions"]["code"], error["extensions"]["privilege"]) == (403, "VIEW_POLICIES")


@pytest.mark.parametrize(
    ("query", "variables"),
    [
        (CREATE_POLICY, {"input": policy(ADMIN)}),
        (UPDATE, {"urn": ROOT_POLICY, "input": policy(ADMIN)}),
        (DELETE, {"urn": "no urn at all"}),
        (POLICIES, {"input": {"start": -1}}),
        (CREATE_GROUP, {"input": {"name": ""}}),
        (REMOVE_GROUP, {"urn": "x"}),
        (ADD, {"group": "x", "users": []}),
        (REMOVE, {"group": "x", "users": []}),
        (MEMBERS, {"group": "x"}),
        (GROUPS, {}),
        (ACTOR, {"urn": "x"}),
        ('mutation { updateUserStatus(urn: "x", status: SUSPENDED) }', {}),
    ],
)
def test_policy_api_is_denied_without_its_privilege(
    server: Server, actor: str, query: str, variables: dict[str, Any]
) -> None:
    """This holds even with MANAGE_ALL, and before the input is validated."""
    server.grant(actor, privileges=(GENERATE, MANAGE_ALL, "MANAGE_SYSTEM_OPERATIONS", "VIEW_AUDIT_LOG"))
    answer = server.post(query, variables, actor=actor).json()
    (error,) = answer["errors"]
    assert list(answer["data"].values()) == [None]
    needed = "VIEW_POLICIES" if query in (POLICIES, MEMBERS, GROUPS) else "MANAGE_POLICIES"
    assert (error["extensions"]["code"], error["extensions"]["privilege"]) == (403, needed)


class TestGetByUrn:
    @pytest.mark.parametrize("kind", ["Policy", "Group"])
    def test_get_by_urn_needs_view_policies(self, server: Server, actor: str, group: str, kind: str) -> None:
        urn = server.grant(actor) if kind == "Policy" else group
        query = f"query ($urn: String!) {{ get{kind}(urn: $urn) {{ urn name }} }}"
        assert server.ask(query, {"urn": urn}, actor=ADMIN)[f"get{kind}"]["urn"] == urn
        for name in (urn, "nonsense"):
            with pytest.raises(GraphQLRefused) as refusal:
                server.ask(query, {"urn": name}, actor=actor)
            assert refusal.value.code == 403
        with pytest.raises(GraphQLRefused) as refusal:
            server.ask(query, {"urn": urn + "x"}, actor=ADMIN)
        assert (refusal.value.code, refusal.value.reason) == (404, f"{kind.lower()}_not_found")
