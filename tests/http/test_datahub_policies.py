"""Policies with the fields that DataHub's web app, smoke tests and Terraform provider send."""

import copy
from typing import Any

import pytest

from tests.support.server import ADMIN, CREATE_POLICY, GENERATE, GraphQLRefused, Server

LIST = """query listPolicies($input: ListPoliciesInput!) { listPolicies(input: $input) { start count total policies {
  urn type name description state resources { type allResources resources filter { criteria { field values { value }
  condition } } } privileges actors { users groups roles allUsers allGroups resourceOwners resourceOwnersTypes }
  editable __typename } __typename } }"""
UPDATE = "mutation updatePolicy($urn: String!, $input: PolicyUpdateInput!) { updatePolicy(urn: $urn, input: $input) }"
DELETE = "mutation deletePolicy($urn: String!) { deletePolicy(urn: $urn) }"
GET = "query ($urn: String!) { getPolicy(urn: $urn) { urn name } }"
ME = "{ me { corpUser { urn username type info { displayName email } } } }"
ACCOUNTS = """query listServiceAccounts($input: ListServiceAccountsInput!) {
  listServiceAccounts(input: $input) { total serviceAccounts { urn } } }"""
GRANTED = """query getGrantedPrivileges($input: GetGrantedPrivilegesInput!) {
  getGrantedPrivileges(input: $input) { privileges } }"""
ENTITY = "/openapi/v3/entity/datahubpolicy/"


def web_policy(*users: str, **fields: Any) -> dict[str, Any]:
    """The variables of the web app for a new platform policy."""
    return {
        "type": "PLATFORM",
        "name": "from the web app",
        "state": "ACTIVE",
        "description": "",
        "privileges": [GENERATE],
        "actors": {
            "users": list(users), "groups": [], "allUsers": False, "allGroups": False, "resourceOwners": False,
            "resourceOwnersTypes": None,
        },
        "resources": {"filter": {"criteria": []}},
    } | fields  # fmt: skip


def found(server: Server, **wanted: Any) -> dict[str, dict[str, Any]]:
    listed = server.ask(LIST, {"input": {"start": 0, "count": 1000, **wanted}}, actor=ADMIN)["listPolicies"]
    assert listed["total"] == len(listed["policies"])
    return {policy["urn"]: policy for policy in listed["policies"]}


def short_id(actor: str) -> str:
    return actor.rpartition(":")[2]


def test_web_app_creates_updates_and_lists_a_policy(server: Server, actor: str) -> None:
    urn = server.ask(CREATE_POLICY, {"input": web_policy(actor)}, actor=ADMIN)["createPolicy"]
    made = found(server)[urn]
    assert (made["resources"], made["actors"]["resourceOwnersTypes"]) == (None, [])
    changed = web_policy(actor, state="INACTIVE", resources={"type": None, "resources": [], "allResources": False})
    assert server.ask(UPDATE, {"urn": urn, "input": changed}, actor=ADMIN)["updatePolicy"] == urn
    assert found(server)[urn]["state"] == "INACTIVE"


def test_policies_are_filtered_by_state_and_editable(server: Server, actor: str) -> None:
    active = server.ask(CREATE_POLICY, {"input": web_policy(actor)}, actor=ADMIN)["createPolicy"]
    inactive = server.ask(CREATE_POLICY, {"input": web_policy(actor, state="INACTIVE")}, actor=ADMIN)["createPolicy"]
    root = "urn:li:servicePolicy:root"

    def among(*groups: list[dict[str, Any]]) -> set[str]:
        return {active, inactive, root} & set(found(server, orFilters=[{"and": group} for group in groups]))

    is_active = {"field": "state", "values": ["ACTIVE"], "condition": "EQUAL"}
    editable = {"field": "editable", "values": ["true"], "condition": "EQUAL"}
    assert among([is_active, editable]) == {active}
    assert among([is_active]) == {active, root}
    assert among([is_active, editable | {"negated": True}], [{"field": "state", "value": "INACTIVE"}]) == {
        inactive,
        root,
    }
    assert among() == among([]) == {active, inactive, root}


@pytest.mark.parametrize(
    ("wrong", "field"),
    [
        ({"field": "type", "values": ["PLATFORM"]}, "orFilters.field"),
        ({"field": "state", "values": ["DRAFT"]}, "orFilters.values"),
        ({"field": "editable", "values": []}, "orFilters.values"),
        ({"field": "state", "values": ["ACTIVE"], "condition": "CONTAIN"}, "orFilters.condition"),
    ],
)
def test_other_policy_filters_are_rejected(server: Server, wrong: dict[str, Any], field: str) -> None:
    with pytest.raises(GraphQLRefused) as refused:
        found(server, orFilters=[{"and": [wrong]}])
    assert (refused.value.code, refused.value.errors[0]["extensions"]["field"]) == (400, field)


@pytest.mark.parametrize(
    ("path", "value", "field"),
    [
        ("resources.type", "dataset", "resources.type"),
        ("resources.resources", ["urn:li:dataset:x"], "resources.resources"),
        ("resources.allResources", True, "resources.allResources"),
        (
            "resources.filter",
            {"criteria": [{"field": "TYPE", "values": ["dataset"], "condition": "EQUALS"}]},
            "resources.filter",
        ),
        ("actors.roles", ["urn:li:dataHubRole:Admin"], "actors.roles"),
        ("actors.allGroups", True, "actors.allGroups"),
        ("actors.resourceOwners", True, "actors.resourceOwners"),
        ("actors.resourceOwnersTypes", ["urn:li:ownershipType:x"], "actors.resourceOwnersTypes"),
        ("privileges", ["EDIT_ENTITY_TAGS"], "privileges"),
    ],
)
def test_what_only_a_catalogue_has_is_rejected_by_name(
    server: Server, actor: str, path: str, value: Any, field: str
) -> None:
    wanted = copy.deepcopy(web_policy(actor))
    *within, last = path.split(".")
    place = wanted[within[0]] if within else wanted
    place[last] = value
    for query, more in ((CREATE_POLICY, {}), (UPDATE, {"urn": f"urn:li:dataHubPolicy:{short_id(actor)}"})):
        with pytest.raises(GraphQLRefused) as refused:
            server.ask(query, {"input": wanted, **more}, actor=ADMIN)
        assert refused.value.code == 400
        assert refused.value.errors[0]["extensions"]["field"] == field
        assert field in refused.value.errors[0]["message"]


def test_privileges_are_listed_with_an_empty_resource_only(server: Server, actor: str) -> None:
    server.grant(actor)

    def granted(spec: Any) -> Any:
        return server.ask(GRANTED, {"input": {"actorUrn": actor, "resourceSpec": spec}}, actor=actor)

    for spec in (None, {"resourceType": "DATASET", "resourceUrn": ""}):
        assert GENERATE in granted(spec)["getGrantedPrivileges"]["privileges"]
    with pytest.raises(GraphQLRefused) as refused:
        granted({"resourceType": "DATASET", "resourceUrn": "urn:li:dataset:x"})
    assert refused.value.errors[0]["extensions"]["field"] == "resourceSpec.resourceUrn"


def test_datahub_urn_names_the_policy_of_the_same_id(server: Server, actor: str) -> None:
    ours = server.grant(actor)
    theirs = ours.replace("servicePolicy", "dataHubPolicy")
    assert server.ask(GET, {"urn": theirs}, actor=ADMIN)["getPolicy"]["urn"] == ours
    events = "query ($targets: [String!]) { listEvents(input: {targets: $targets}) { events { action target } } }"
    assert server.ask(events, {"targets": [theirs]}, actor=ADMIN)["listEvents"]["events"] == [
        {"action": "policy.created", "target": ours}
    ]
    assert server.ask(DELETE, {"urn": theirs}, actor=ADMIN)["deletePolicy"] == theirs
    assert ours not in found(server)


@pytest.mark.parametrize(
    ("urn", "reason"),
    [
        ("urn:li:servicePolicy:nothing", "policy_not_found"),
        ("urn:li:dataHubPolicy:root", "not_editable"),
        ("urn:li:dataHubPolicy:", "invalid_field"),
        ("urn:li:dataHubPolicy:a:b", "invalid_field"),
        ("urn:li:corpuser:a", "invalid_field"),
    ],
)
def test_policy_is_not_created_under_another_urn(server: Server, urn: str, reason: str) -> None:
    with pytest.raises(GraphQLRefused) as refused:
        server.ask(UPDATE, {"urn": urn, "input": web_policy(ADMIN)}, actor=ADMIN)
    assert refused.value.reason == reason


def test_creating_by_update_needs_the_privilege(server: Server, actor: str) -> None:
    urn = f"urn:li:dataHubPolicy:{short_id(actor)}"
    with pytest.raises(GraphQLRefused) as refused:
        server.ask(UPDATE, {"urn": urn, "input": web_policy(actor)}, actor=actor)
    assert (refused.value.code, refused.value.errors[0]["extensions"]["privilege"]) == (403, "MANAGE_POLICIES")
    assert urn.replace("dataHubPolicy", "servicePolicy") not in found(server)


def test_terraform_provider_configures_itself_and_manages_a_policy(server: Server, actor: str) -> None:
    token = server.create(ADMIN)["accessToken"]
    bearer = {"Authorization": f"Bearer {token}"}
    urn = f"urn:li:dataHubPolicy:{short_id(actor)}"
    me = server.ask(ME, token=token)["me"]["corpUser"]
    assert (me["urn"], me["username"], me["type"]) == (ADMIN, "admin", "CORP_USER")
    assert set(me["info"]) == {"displayName", "email"}
    assert server.post(ME, token="not-a-token").status_code == 401
    assert server.http.get(ENTITY + urn, headers=bearer).status_code == 404
    wanted: dict[str, Any] = {
        "type": "PLATFORM",
        "name": "by terraform",
        "state": "ACTIVE",
        "description": "",
        "privileges": [GENERATE, "VIEW_AUDIT_LOG"],
        "actors": {"allUsers": False, "allGroups": False, "resourceOwners": False, "users": [actor]},
    }
    for changed in ({}, {"state": "INACTIVE", "description": "changed"}):
        wanted |= changed
        assert server.ask(UPDATE, {"urn": urn, "input": wanted}, token=token) == {"updatePolicy": urn}
        info = {"displayName": "by terraform", "editable": True} | {k: v for k, v in wanted.items() if k != "name"}
        info["actors"] = {"groups": [], **wanted["actors"]}
        for path in (urn, urn.replace(":", "%3A")):
            assert server.http.get(ENTITY + path, headers=bearer).json() == {
                "urn": urn,
                "dataHubPolicyKey": {"value": {"id": short_id(actor)}},
                "dataHubPolicyInfo": {"value": info},
            }
    listed = server.ask(LIST, {"input": {"start": 0, "count": 100, "query": "by terraform"}}, token=token)
    assert listed["listPolicies"]["total"] == 1
    assert server.ask(DELETE, {"urn": urn}, token=token) == {"deletePolicy": urn}
    assert server.http.get(ENTITY + urn, headers=bearer).status_code == 404
    accounts = server.ask(ACCOUNTS, {"input": {"start": 0, "count": 100}}, token=token)["listServiceAccounts"]
    assert accounts["total"] == len(accounts["serviceAccounts"])


def test_reading_a_policy_needs_the_privilege(server: Server, actor: str) -> None:
    token = server.create(ADMIN, of=actor)["accessToken"]
    for short in ("root", "nothing"):
        answer = server.http.get(f"{ENTITY}urn:li:dataHubPolicy:{short}", headers={"Authorization": f"Bearer {token}"})
        assert (answer.status_code, answer.json()["error"]["privilege"]) == (403, "VIEW_POLICIES")
