"""Names of people: set over the API, shown beside the urn wherever an actor is shown."""

from typing import Any

import pytest

from tests.support.server import ADMIN, GENERATE, GraphQLRefused, Server

SET = "mutation ($input: SetActorInput!) { setActor(input: $input) }"
ACTOR = "query ($urn: String!) { getActor(urn: $urn) { displayName email status changedAt known } }"
EVERYWHERE = """query ($urn: String!, $group: String!, $policy: String!, $token: String!) {
  getActor(urn: $urn) { displayName email status changedAt known }
  listActors(input: {prefix: $urn, count: 1}) { actors { displayName email } }
  listAccessTokens(input: {filters: [{field: "actorUrn", value: $urn}]}) { tokens {
    actorName ownerName owner { displayName } } }
  getAccessToken(id: $token) { actorName ownerName }
  listEvents(input: {actorUrns: [$urn], actions: ["token.created"]}) { events { actorName } }
  getPolicy(urn: $policy) { actors { resolvedUsers { urn displayName } } }
  listGroupMembers(input: {groupUrn: $group}) { members { urn displayName } }
  revocable: getGroup(urn: $group) { name } }"""
# With a variable in a directive, graphql-core executes the document.
SLOW = EVERYWHERE.replace("$token: String!)", "$token: String!, $yes: Boolean!)").replace(
    "(urn: $group) {", "(urn: $group) @include(if: $yes) {"
)


def set_actor(server: Server, urn: str, caller: str = ADMIN, **fields: str | None) -> None:
    assert server.ask(SET, {"input": {"urn": urn, **fields}}, actor=caller) == {"setActor": urn}


@pytest.mark.parametrize("query", [EVERYWHERE, SLOW], ids=["fast path", "graphql-core"])
def test_name_is_shown_wherever_the_actor_is(server: Server, actor: str, query: str) -> None:
    policy = server.grant(actor)
    token = server.create(actor)["metadata"]["id"]
    group = server.ask('mutation { createGroup(input: {name: "g"}) }', actor=ADMIN)["createGroup"]
    add = "mutation ($input: GroupMembersInput!) { addGroupMembers(input: $input) }"
    server.ask(add, {"input": {"groupUrn": group, "userUrns": [actor]}}, actor=ADMIN)
    set_actor(server, actor, displayName="Zoë Example", email="zoe@example.com")
    variables = {"urn": actor, "group": group, "policy": policy, "token": token, "yes": True}
    found = server.ask(query, variables, actor=ADMIN)
    name = "Zoë Example"
    named = [{"urn": actor, "displayName": name}]
    assert found == {
        "getActor": {
            "displayName": name, "email": "zoe@example.com", "status": "ACTIVE", "changedAt": None, "known": True,
        },
        "listActors": {"actors": [{"displayName": name, "email": "zoe@example.com"}]},
        "listAccessTokens": {"tokens": [{"actorName": name, "ownerName": name, "owner": {"displayName": name}}]},
        "getAccessToken": {"actorName": name, "ownerName": name},
        "listEvents": {"events": [{"actorName": name}]},
        "getPolicy": {"actors": {"resolvedUsers": named}},
        "listGroupMembers": {"members": named},
        "revocable": {"name": "g"},
    }  # fmt: skip
    me = server.ask("{ me { corpUser { displayName } } }", actor=actor)
    assert me == {"me": {"corpUser": {"displayName": name}}}


def test_field_that_is_not_given_stays_and_null_removes_it(server: Server, actor: str) -> None:
    def profile() -> tuple[Any, Any, Any]:
        found = server.ask(ACTOR, {"urn": actor}, actor=ADMIN)["getActor"]
        return found["displayName"], found["email"], found["status"]

    set_actor(server, actor, displayName="Ann")
    server.set_status(actor, "SUSPENDED")
    set_actor(server, actor, email="ann@example.com")
    assert profile() == ("Ann", "ann@example.com", "SUSPENDED")
    set_actor(server, actor, displayName=None)
    assert profile() == (None, "ann@example.com", "SUSPENDED")


def test_event_of_a_name_has_no_personal_data(server: Server, actor: str) -> None:
    set_actor(server, actor, displayName="Ann", email="ann@example.com")
    set_actor(server, actor, displayName="Ann", email=None)
    set_actor(server, actor, email=None)
    query = "query ($urn: String!) { listEvents(input: {targets: [$urn]}) { events { action detail } } }"
    assert server.ask(query, {"urn": actor}, actor=ADMIN)["listEvents"]["events"] == [
        {"action": "actor.updated", "detail": {"fields": ["email"]}},
        {"action": "actor.updated", "detail": {"fields": ["displayName", "email"]}},
    ]


@pytest.mark.parametrize(
    ("fields", "named"),
    [
        ({}, "input"),
        ({"displayName": ""}, "displayName"),
        ({"displayName": "two\nlines"}, "displayName"),
        ({"displayName": "\u202egnp"}, "displayName"),
        ({"displayName": "x" * 201}, "displayName"),
        ({"email": ""}, "email"),
        ({"email": "alice"}, "email"),
        ({"email": "a@b@c"}, "email"),
        ({"email": "Alice <a@example.com>"}, "email"),
        ({"email": "a\x00@example.com"}, "email"),
        ({"email": f"a@{'x' * 253}"}, "email"),
        ({"urn": "urn:li:corpGroup:ops", "email": None}, "urn"),
        ({"urn": "urn:li:corpuser:service_builds", "email": None}, "urn"),
    ],
)
def test_bad_name_is_rejected_with_its_field(server: Server, actor: str, fields: dict[str, Any], named: str) -> None:
    (error,) = server.post(SET, {"input": {"urn": actor, **fields}}, actor=ADMIN).json()["errors"]
    assert (error["extensions"]["code"], error["extensions"]["field"]) == (400, named)
    assert error["message"].startswith(named)


def test_setting_a_name_needs_manage_policies(server: Server, actor: str) -> None:
    server.grant(actor, privileges=(GENERATE, "MANAGE_ACCESS_TOKENS", "MANAGE_SERVICE_ACCOUNTS"))
    with pytest.raises(GraphQLRefused) as refusal:
        set_actor(server, actor, caller=actor, displayName="\x00")
    assert refusal.value.code == 403


CREATE_ACCOUNT = """mutation ($input: CreateServiceAccountInput!) { createServiceAccount(input: $input) {
  urn displayName createdBy } }"""


def test_account_has_the_chosen_id_and_gets_tokens_once_it_exists(server: Server) -> None:
    urn = "urn:li:corpuser:service_nightly-7"
    with pytest.raises(GraphQLRefused) as refusal:
        server.create(ADMIN, of=urn, type="SERVICE_ACCOUNT")
    assert (refusal.value.code, refusal.value.reason) == (404, "account_not_found")
    made = server.ask(CREATE_ACCOUNT, {"input": {"id": "nightly-7", "displayName": "Nightly"}}, actor=ADMIN)
    assert made["createServiceAccount"] == {"urn": urn, "displayName": "Nightly", "createdBy": ADMIN}
    token = server.create(ADMIN, of=urn, type="SERVICE_ACCOUNT")
    query = "query ($id: String!) { getAccessToken(id: $id) { actorName } }"
    assert server.ask(query, {"id": token["metadata"]["id"]}, actor=ADMIN)["getAccessToken"]["actorName"] == "Nightly"
    for _ in ("in use", "deleted"):
        with pytest.raises(GraphQLRefused) as refusal:
            server.ask(CREATE_ACCOUNT, {"input": {"id": "nightly-7", "displayName": "Again"}}, actor=ADMIN)
        assert (refusal.value.code, refusal.value.reason) == (409, "already_exists")
        server.post("mutation ($urn: String!) { deleteServiceAccount(urn: $urn) }", {"urn": urn}, actor=ADMIN)


@pytest.mark.parametrize("bad", ["", "Airflow", "a.b", "a_b", "x" * 61, "ä"])
def test_bad_account_id_is_rejected(server: Server, bad: str) -> None:
    (error,) = server.post(CREATE_ACCOUNT, {"input": {"id": bad, "displayName": "x"}}, actor=ADMIN).json()["errors"]
    assert (error["extensions"]["code"], error["extensions"]["field"]) == (400, "id")
