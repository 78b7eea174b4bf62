"""People and groups as DataHub's clients read them, on both databases: `corpUser`, `corpGroup`, `listUsers`, `me`."""

from collections.abc import Iterator
from typing import Any

import pytest

from tests.support.postgres import DEBIAN, SharedClusters, home
from tests.support.server import ADMIN, MANAGE_ALL, GraphQLRefused, Server
from tests.support.store_file import change_store

ANN, BOB = "urn:li:corpuser:ann", "urn:li:corpuser:bob"
OPS, STAFF = "urn:li:corpGroup:ops", "urn:li:corpGroup:staff"
EDGE = "start count total relationships { type direction entity { urn type __typename } }"
GROUPS = 'relationships(input: {types: ["IsMemberOfGroup", "IsMemberOfNativeGroup"], direction: OUTGOING, count: 5})'
MEMBERS = 'relationships(input: {types: ["IsMemberOfGroup", "IsMemberOfNativeGroup"], direction: INCOMING, count: 5})'
PROPERTIES = "active displayName title firstName lastName fullName email"
USER = f"""urn type username exists status isNativeUser info {{ {PROPERTIES} }} properties {{ {PROPERTIES} }}
  editableProperties {{ displayName title pictureLink teams skills }}"""


@pytest.fixture(scope="module", params=["sqlite", "postgres"])
def service(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory, shared_clusters: SharedClusters
) -> Iterator[Server]:
    """Ann and Bob are operators; Bob is suspended."""
    folder = tmp_path_factory.mktemp("directory")
    if request.param == "sqlite":
        with Server(folder) as running:
            yield populated(running)
        return
    with (
        home(shared_clusters.of(DEBIAN), folder) as database,
        Server(folder / "server", "--local-mode", "on", env=database.env) as running,
    ):
        yield populated(running)


def populated(server: Server) -> Server:
    server.ask('mutation { createGroup(input: {id: "ops", name: "Operators", description: "on call"}) }', actor=ADMIN)
    add = "mutation ($input: GroupMembersInput!) { addGroupMembers(input: $input) }"
    server.ask(add, {"input": {"groupUrn": OPS, "userUrns": [ANN, BOB]}}, actor=ADMIN)
    person = {"urn": ANN, "displayName": "Ann Example", "email": "ann@example.com"}
    server.ask("mutation ($input: SetActorInput!) { setActor(input: $input) }", {"input": person}, actor=ADMIN)
    server.set_status(BOB, "SUSPENDED")
    return server


def refused(server: Server, query: str, actor: str) -> tuple[int, Any]:
    """The code of the first error, and the data."""
    answer = server.post(query, actor=actor).json()
    return answer["errors"][0]["extensions"]["code"], answer["data"]


def test_caller_sees_its_own_profile_and_groups_without_any_privilege(service: Server) -> None:
    me = service.ask(f"{{ me {{ corpUser {{ {USER} groups: {GROUPS} {{ {EDGE} }} }} }} }}", actor=ANN)["me"]["corpUser"]
    known = {
        "active": True, "displayName": "Ann Example", "fullName": "Ann Example", "email": "ann@example.com",
        "title": None, "firstName": None, "lastName": None,
    }  # fmt: skip
    group = {"urn": OPS, "type": "CORP_GROUP", "__typename": "CorpGroup"}
    assert me == {
        "urn": ANN, "type": "CORP_USER", "username": "ann", "exists": True, "status": "ACTIVE", "isNativeUser": False,
        "info": known, "properties": known,
        "editableProperties": dict.fromkeys(["displayName", "title", "pictureLink", "teams", "skills"]),
        "groups": {
            "start": 0, "count": 5, "total": 1,
            "relationships": [{"type": "IsMemberOfNativeGroup", "direction": "OUTGOING", "entity": group}],
        },
    }  # fmt: skip
    assert service.ask(f'{{ corpUser(urn: "{ANN}") {{ info {{ email }} }} }}', actor=ANN)


@pytest.mark.parametrize("privilege", ["MANAGE_POLICIES", MANAGE_ALL])
def test_caller_who_may_list_actors_sees_others(service: Server, actor: str, privilege: str) -> None:
    service.grant(actor, privileges=(privilege,))
    query = f'{{ corpUser(urn: "{BOB}") {{ exists status info {{ active email }} {GROUPS} {{ total }} }} }}'
    assert service.ask(query, actor=actor)["corpUser"] == {
        "exists": True, "status": "SUSPENDED", "info": {"active": False, "email": None}, "relationships": {"total": 1},
    }  # fmt: skip
    unknown = '{ corpUser(urn: "urn:li:corpuser:nobody") { exists status info { active displayName } } }'
    assert service.ask(unknown, actor=actor)["corpUser"] == {
        "exists": False, "status": "ACTIVE", "info": {"active": True, "displayName": None},
    }  # fmt: skip


@pytest.mark.parametrize(
    "asked",
    [
        f'corpUser(urn: "{ANN}") {{ urn }}',
        'corpUser(urn: "urn:li:corpuser:nobody") { urn }',
        f'corpGroup(urn: "{OPS}") {{ urn }}',
        'corpGroup(urn: "urn:li:corpGroup:none") { urn }',
        "listUsers { total }",
        "listUsers(input: {start: -1}) { total }",
    ],
)
def test_caller_without_a_privilege_is_denied_before_it_learns_what_exists(
    service: Server, actor: str, asked: str
) -> None:
    name = asked.partition("(")[0].partition(" ")[0]
    assert refused(service, f"{{ {asked} }}", actor) == (403, {name: None})


def test_email_and_status_of_others_are_null_without_a_privilege(service: Server, actor: str) -> None:
    service.grant(actor)
    token = service.create(ADMIN, of=actor)["metadata"]["id"]
    query = (
        "query ($id: String!) { getAccessToken(id: $id) { owner { urn status info { active displayName email } } } }"
    )
    owner = service.ask(query, {"id": token}, actor=actor)["getAccessToken"]["owner"]
    assert (owner["urn"], owner["status"]) == (ADMIN, None)
    assert (owner["info"]["active"], owner["info"]["email"]) == (None, None)
    code, data = refused(service, f'{{ getAccessToken(id: "{token}") {{ owner {{ {GROUPS} {{ total }} }} }} }}', actor)
    assert (code, data) == (403, {"getAccessToken": {"owner": {"relationships": None}}})


def test_lists_of_tokens_and_members_show_profiles(service: Server) -> None:
    created = service.create(ADMIN, of=ANN)["metadata"]["id"]
    service.ask("mutation ($input: SetActorInput!) { setActor(input: $input) }",
                {"input": {"urn": ADMIN, "displayName": "Root", "email": "root@example.com"}}, actor=ADMIN)  # fmt: skip
    query = f"""query ($id: String!, $one: Int!) {{
      listAccessTokens(input: {{filters: [{{field: "id", value: $id}}], count: $one}}) {{
        tokens {{ ownerName owner {{ username info {{ displayName email active }} }} }} }}
      listGroupMembers(input: {{groupUrn: "{OPS}"}}) {{ members {{ username status }} }} }}"""
    found = service.ask(query, {"id": created, "one": "1"}, actor=ADMIN)
    assert found["listAccessTokens"]["tokens"] == [
        {
            "ownerName": "Root",
            "owner": {
                "username": "admin",
                "info": {"displayName": "Root", "email": "root@example.com", "active": True},
            },
        }
    ]
    assert found["listGroupMembers"]["members"] == [
        {"username": "ann", "status": "ACTIVE"},
        {"username": "bob", "status": "SUSPENDED"},
    ]


def test_group_has_properties_origin_and_members(service: Server) -> None:
    query = f"""{{ corpGroup(urn: "{OPS}") {{ urn name type memberCount origin {{ type externalType }}
      properties {{ displayName description email }} info {{ displayName }} editableProperties {{ description slack }}
      {MEMBERS} {{ {EDGE} }}
      page: relationships(input: {{types: ["IsMemberOfGroup"], direction: INCOMING, start: 1, count: 1}}) {{
        total relationships {{ type entity {{ ... on CorpUser {{ username info {{ active }} }} }} }} }}
      none: relationships(input: {{types: ["IsMemberOfGroup"], direction: OUTGOING}}) {{ total }} }} }}"""
    edges = [
        {"type": "IsMemberOfNativeGroup", "direction": "INCOMING",
         "entity": {"urn": urn, "type": "CORP_USER", "__typename": "CorpUser"}}
        for urn in (ANN, BOB)
    ]  # fmt: skip
    second = {"type": "IsMemberOfGroup", "entity": {"username": "bob", "info": {"active": False}}}
    assert service.ask(query, actor=ADMIN)["corpGroup"] == {
        "urn": OPS, "name": "Operators", "type": "CORP_GROUP", "memberCount": 2,
        "origin": {"type": "NATIVE", "externalType": None},
        "properties": {"displayName": "Operators", "description": "on call", "email": None},
        "info": {"displayName": "Operators"}, "editableProperties": {"description": None, "slack": None},
        "relationships": {"start": 0, "count": 5, "total": 2, "relationships": edges},
        "page": {"total": 2, "relationships": [second]}, "none": {"total": 0},
    }  # fmt: skip
    with pytest.raises(GraphQLRefused) as unknown:
        service.ask('{ corpGroup(urn: "urn:li:corpGroup:none") { urn } }', actor=ADMIN)
    assert (unknown.value.code, unknown.value.reason) == (404, "group_not_found")


def test_member_sees_the_name_of_its_group_but_not_who_else_is_in_it(service: Server) -> None:
    query = f'{{ corpGroup(urn: "{OPS}") {{ name memberCount {MEMBERS} {{ total }} }} }}'
    seen = {"name": "Operators", "memberCount": None, "relationships": None}
    assert refused(service, query, ANN) == (403, {"corpGroup": seen})


def test_roles_are_empty(service: Server) -> None:
    query = """{ listRoles(input: {start: 0, count: 10, query: ""}) { start count total roles { urn } }
      me { corpUser { roles: relationships(input: {types: ["IsMemberOfRole"], direction: OUTGOING, start: 0}) {
        total relationships { entity { ... on DataHubRole { name } } } } } } }"""
    assert service.ask(query, actor=ANN) == {
        "listRoles": {"start": 0, "count": 10, "total": 0, "roles": []},
        "me": {"corpUser": {"roles": {"total": 0, "relationships": []}}},
    }


def test_users_are_listed_by_page_and_found_by_urn_name_and_address(service: Server) -> None:
    def users(**fields: Any) -> tuple[int, list[str]]:
        query = "query ($input: ListUsersInput!) { listUsers(input: $input) { total users { urn info { active } } } }"
        found = service.ask(query, {"input": fields}, actor=ADMIN)["listUsers"]
        return found["total"], [user["urn"] for user in found["users"]]

    total, urns = users(count=1_000)
    assert {ADMIN, ANN, BOB} <= set(urns)
    assert urns == sorted(urns)
    assert total == len(urns)
    assert users(start=1, count=2) == (total, urns[1:3])
    assert users(start=total) == (total, [])
    for query in ("ann", "EXAMPLE", "ann@", ANN):
        assert ANN in users(query=query)[1]
    assert users(query="ann@") == (1, [ANN])
    assert users(query="*", count=0) == (total, [])
    assert users(query="%") == (0, [])


def test_groups_are_found_by_name(service: Server) -> None:
    query = """query ($input: ListGroupsInput!) { listGroups(input: $input) { total groups { urn
      members: relationships(input: {types: ["IsMemberOfNativeGroup"], direction: INCOMING, count: 1}) { total }
    } } }"""
    found = service.ask(query, {"input": {"start": 0, "count": 10, "query": "operat"}}, actor=ADMIN)["listGroups"]
    assert found == {"total": 1, "groups": [{"urn": OPS, "members": {"total": 2}}]}
    assert service.ask(query, {"input": {"query": "nothing"}}, actor=ADMIN)["listGroups"]["total"] == 0


@pytest.mark.parametrize(
    ("page", "named"),
    [("start: -1", "start"), ("count: 1001", "count")],
)
def test_page_of_relationships_is_limited(service: Server, page: str, named: str) -> None:
    asked = f'relationships(input: {{types: ["IsMemberOfGroup"], direction: OUTGOING, {page}}}) {{ total }}'
    answer = service.post(f"{{ me {{ corpUser {{ {asked} }} }} }}", actor=ANN).json()
    assert (answer["errors"][0]["extensions"]["code"], answer["errors"][0]["extensions"]["field"]) == (400, named)


def test_request_follows_a_limited_number_of_relationships(service: Server) -> None:
    aliases = " ".join(f"r{number}: {GROUPS} {{ total }}" for number in range(101))
    code, data = refused(service, f"{{ me {{ corpUser {{ {aliases} }} }} }}", ANN)
    assert code == 400
    assert [one for one in data["me"]["corpUser"].values() if one is None] == [None]


def test_group_of_the_identity_provider_is_known_by_its_members(server: Server, actor: str) -> None:
    change_store(server, "INSERT INTO group_members (actor_urn, group_urn, external) VALUES (?, ?, 1)", actor, STAFF)
    change_store(server, "UPDATE state SET policy_version = policy_version + 1")
    native = GROUPS.replace('"IsMemberOfGroup", ', "")
    mine = f"""{{ me {{ corpUser {{ native: {native} {{ total }} {GROUPS} {{ total relationships {{ type entity {{
      ... on CorpGroup {{ urn name memberCount origin {{ type }} properties {{ displayName }} }} }} }} }} }} }} }}"""
    group = {
        "urn": STAFF, "name": "staff", "memberCount": None, "origin": {"type": "EXTERNAL"},
        "properties": {"displayName": "staff"},
    }  # fmt: skip
    edge = {"type": "IsMemberOfGroup", "entity": group}
    assert server.ask(mine, actor=actor)["me"]["corpUser"] == {
        "native": {"total": 0}, "relationships": {"total": 1, "relationships": [edge]},
    }  # fmt: skip
    members = f'{{ corpGroup(urn: "{STAFF}") {{ {MEMBERS} {{ total relationships {{ type entity {{ urn }} }} }} }} }}'
    found = server.ask(members, actor=ADMIN)["corpGroup"]["relationships"]
    assert found == {"total": 1, "relationships": [{"type": "IsMemberOfGroup", "entity": {"urn": actor}}]}
    listed = server.ask(
        f'{{ listGroupMembers(input: {{groupUrn: "{STAFF}"}}) {{ total members {{ urn }} }} }}', actor=ADMIN
    )
    assert listed["listGroupMembers"] == {"total": 1, "members": [{"urn": actor}]}
