"""Who holds a privilege or scope, and what a change of a policy would give and take, over HTTP."""

from typing import Any

import pytest

from tests.support.server import ADMIN, GENERATE, MANAGE_ALL, GraphQLRefused, Server

AUDIT = "VIEW_AUDIT_LOG"
HOLDERS = """query ($input: ListPrivilegeHoldersInput!) { listPrivilegeHolders(input: $input) { total complete holders {
  actorUrn actorName status policyUrn via groupUrn privilege } } }"""
EFFECT = """query ($urn: String, $input: PolicyUpdateInput) { policyEffect(urn: $urn, input: $input) {
  appliesTo complete changes { privilege change count users { urn displayName } } } }"""


def make_group(server: Server, name: str, *members: str) -> str:
    create = "mutation ($input: CreateGroupInput!) { createGroup(input: $input) }"
    urn: str = server.ask(create, {"input": {"id": name, "name": name}}, actor=ADMIN)["createGroup"]
    add = "mutation ($input: GroupMembersInput!) { addGroupMembers(input: $input) }"
    if members:
        server.ask(add, {"input": {"groupUrn": urn, "userUrns": list(members)}}, actor=ADMIN)
    return urn


def effect(server: Server, urn: str | None = None, **fields: Any) -> tuple[int | None, list[tuple[Any, ...]]]:
    policy = {"type": "PLATFORM", "name": "new", "state": "ACTIVE", "privileges": [], "actors": {}, **fields}
    variables = {"urn": urn, "input": policy if fields else None}
    found = server.ask(EFFECT, variables, actor=ADMIN)["policyEffect"]
    assert found["complete"]
    shown = [(c["privilege"], c["change"], c["count"], [u["urn"] for u in c["users"]]) for c in found["changes"]]
    return found["appliesTo"], shown


def test_effect_counts_only_those_who_gain_or_lose(server: Server, actor: str) -> None:
    other = f"{actor}-2"
    group = make_group(server, f"team-{actor.rpartition(':')[2]}", actor, other)
    held = server.grant(actor, privileges=(AUDIT,))
    to_group = {"groups": [group]}
    assert effect(server, privileges=[AUDIT], actors=to_group) == (2, [(AUDIT, "GAIN", 1, [other])])
    both = (2, [(GENERATE, "GAIN", 2, [actor, other]), (MANAGE_ALL, "GAIN", 2, [actor, other])])
    assert effect(server, privileges=[MANAGE_ALL], actors=to_group) == both
    assert effect(server, privileges=[AUDIT], actors=to_group, state="INACTIVE") == (2, [])
    assert effect(server, scopes=["x:read"], actors={"users": [ADMIN, other]}) == (2, [("x:read", "GAIN", 1, [other])])
    assert effect(server, scopes=["x:read"], actors={"allUsers": True}) == (None, [("x:read", "GAIN", None, [])])
    empty = make_group(server, f"empty-{actor.rpartition(':')[2]}")
    assert effect(server, privileges=[AUDIT], actors={"groups": [empty]}) == (0, [])
    changed = (1, [(GENERATE, "GAIN", 1, [actor]), (AUDIT, "LOSE", 1, [actor])])
    assert effect(server, held, privileges=[GENERATE], actors={"users": [actor]}) == changed
    assert effect(server, held) == (0, [(AUDIT, "LOSE", 1, [actor])])


def test_holders_are_all_users_members_and_named_actors(server: Server, actor: str) -> None:
    name = actor.rpartition(":")[2]
    group = make_group(server, f"held-{name}", actor)
    wide = server.grant(actor, privileges=(), scopes=(f"{name}:*",), groups=[group])
    server.set_status(actor, "SUSPENDED")
    found = server.ask(HOLDERS, {"input": {"privilege": f"{name}:read"}}, actor=ADMIN)["listPrivilegeHolders"]
    assert (found["total"], found["complete"]) == (3, True)
    rows = [(one["actorUrn"], one["status"], one["via"], one["groupUrn"]) for one in found["holders"]]
    mine = [(actor, "SUSPENDED", "USER", None), (actor, "SUSPENDED", "GROUP", group)]
    assert rows == [(ADMIN, "ACTIVE", "USER", None), *mine]
    assert {one["policyUrn"] for one in found["holders"][1:]} == {wide}
    second = server.ask(HOLDERS, {"input": {"privilege": f"{name}:read", "start": 1, "count": 1}}, actor=ADMIN)
    assert second["listPrivilegeHolders"]["holders"] == found["holders"][1:2]
    task = server.ask(HOLDERS, {"input": {"privilege": "GET_ES_TASK_STATUS_PRIVILEGE"}}, actor=ADMIN)[
        "listPrivilegeHolders"
    ]
    assert (task["holders"][0]["actorUrn"], task["holders"][0]["via"]) == (None, "ALL_USERS")


@pytest.mark.parametrize("query", [HOLDERS, EFFECT])
def test_effects_and_holders_need_view_policies_before_anything_is_checked(
    server: Server, actor: str, query: str
) -> None:
    server.grant(actor)
    with pytest.raises(GraphQLRefused) as refused:
        server.ask(query, {"input": {"privilege": "No!"}} if query == HOLDERS else {"urn": "No!"}, actor=actor)
    assert refused.value.errors[0]["extensions"]["privilege"] == "VIEW_POLICIES"


@pytest.mark.parametrize(
    ("variables", "field"),
    [
        ({}, "input"),
        ({"urn": "nonsense"}, "urn"),
        ({"input": {"type": "PLATFORM", "name": "x", "state": "ACTIVE", "privileges": [], "actors": {}}}, "privileges"),
    ],
)
def test_invalid_effect_names_the_field(server: Server, variables: dict[str, Any], field: str) -> None:
    with pytest.raises(GraphQLRefused) as refused:
        server.ask(EFFECT, variables, actor=ADMIN)
    assert (refused.value.code, refused.value.errors[0]["extensions"]["field"]) == (400, field)


def test_effect_of_a_built_in_policy_is_refused(server: Server) -> None:
    with pytest.raises(GraphQLRefused) as refused:
        server.ask(EFFECT, {"urn": "urn:li:servicePolicy:root"}, actor=ADMIN)
    assert refused.value.reason == "not_editable"
