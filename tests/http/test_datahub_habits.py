"""Small habits of DataHub's clients: numbers in quotes, compressed answers, validation errors, `/config`."""

import gzip
from typing import Any

import httpx
import pytest

from tests.support.server import ADMIN, CREATE, GraphQLRefused, Server
from watchword.http.requests import LARGE_GZIP_BYTES

WIDE = "{ listPrivileges { name displayName allows includes } }"


@pytest.mark.parametrize(
    ("query", "word"),
    [("{ me { corpUser { nothing } } }", "ValidationError"), ("{ me { ", "InvalidSyntax")],
)
def test_invalid_document_has_a_classification_and_null_data(server: Server, query: str, word: str) -> None:
    answer = server.post(query, actor=ADMIN)
    content = answer.json()
    assert (answer.status_code, content["data"]) == (200, None)
    assert content["errors"][0]["extensions"]["classification"] == word
    modern = server.post(query, actor=ADMIN, headers={"Accept": "application/graphql-response+json"})
    assert modern.status_code == 400
    assert "data" not in modern.json()


def test_denial_has_no_classification(server: Server, actor: str) -> None:
    assert "classification" not in server.post("{ listUsers { total } }", actor=actor).json()["errors"][0]["extensions"]


LIST = "query ($start: Int, $count: Int) { listPolicies(input: {start: $start, count: $count}) { start count } }"
EVENTS = "query ($since: Long) { listEvents(input: {since: $since}) { count } }"


def test_number_in_quotes_is_a_number(server: Server) -> None:
    found = server.ask(LIST, {"start": "0", "count": "7"}, actor=ADMIN)
    assert found == {"listPolicies": {"start": 0, "count": 7}}
    whole = "query ($input: ListPoliciesInput!) { listPolicies(input: $input) { start count } }"
    assert server.ask(whole, {"input": {"start": "0", "count": "7"}}, actor=ADMIN) == found
    assert server.ask(EVENTS, {"since": "1700000000000"}, actor=ADMIN)


@pytest.mark.parametrize("value", ["", " 1", "1.0", "0x1", "\u0661", "1" * 20, "9" * 5_000, True])
def test_other_text_is_no_number(server: Server, value: Any) -> None:
    for query, name in ((LIST, "start"), (EVENTS, "since")):
        with pytest.raises(GraphQLRefused) as refusal:
            server.ask(query, {name: value}, actor=ADMIN)
        assert refusal.value.code == 400


@pytest.mark.parametrize("value", ["2147483648", 2147483648, "-1"])
def test_number_in_quotes_has_the_limits_of_its_type(server: Server, value: Any) -> None:
    with pytest.raises(GraphQLRefused) as refusal:
        server.ask(LIST, {"start": value}, actor=ADMIN)
    assert refusal.value.code == 400


def raw(server: Server, query: str, encoding: str, variables: dict[str, Any] | None = None) -> httpx.Response:
    """Without decompression."""
    headers = {"X-Service-Actor": ADMIN, "Accept-Encoding": encoding}
    with server.http.stream(
        "POST", "/api/graphql", json={"query": query, "variables": variables or {}}, headers=headers
    ) as answer:
        answer.extensions["raw"] = b"".join(answer.iter_raw())
        return answer


def test_large_answer_is_compressed_for_clients_that_accept_it(server: Server) -> None:
    plain = raw(server, WIDE, "identity")
    packed = raw(server, WIDE, "deflate, gzip;q=0.5")
    assert "content-encoding" not in plain.headers
    assert (packed.headers["content-encoding"], packed.headers["vary"]) == ("gzip", "accept-encoding")
    assert gzip.decompress(packed.extensions["raw"]) == plain.extensions["raw"]
    assert len(packed.extensions["raw"]) == int(packed.headers["content-length"]) < len(plain.extensions["raw"]) / 2
    for query, encoding in (("{ me { corpUser { urn } } }", "gzip"), (WIDE, "gzip;q=0"), (WIDE, "br")):
        assert "content-encoding" not in raw(server, query, encoding).headers


def test_very_large_answer_is_compressed(server: Server) -> None:
    aliases = " ".join(f"p{number}: listPrivileges {{ name displayName allows includes }}" for number in range(20))
    plain, packed = raw(server, f"{{ {aliases} }}", ""), raw(server, f"{{ {aliases} }}", "gzip")
    assert len(plain.extensions["raw"]) > LARGE_GZIP_BYTES
    assert gzip.decompress(packed.extensions["raw"]) == plain.extensions["raw"]


def test_answer_with_a_new_token_is_never_compressed(server: Server) -> None:
    wanted = {"type": "PERSONAL", "actorUrn": ADMIN, "duration": "ONE_HOUR", "name": "x", "description": "y" * 1_000}
    query = CREATE.replace("{ id name", "{ description id name")
    created = raw(server, query, "gzip", {"input": wanted})
    assert len(created.extensions["raw"]) > 1_024
    assert "content-encoding" not in created.headers


def test_config_tells_its_version_to_clients_that_ask_for_more(server: Server) -> None:
    for address in ("/config", "/config?verbose=true", "/gms/config?verbose=true"):
        config = server.http.get(address).json()
        assert config["versions"]["acryldata/datahub"]["version"] == "v1.4.0-dev"


def test_account_without_a_name_is_called_as_its_urn_ends(server: Server) -> None:
    query = "mutation ($input: CreateServiceAccountInput!) { createServiceAccount(input: $input) { urn displayName } }"
    made = server.ask(query, {"input": {"id": "unnamed"}}, actor=ADMIN)["createServiceAccount"]
    assert made == {"urn": "urn:li:corpuser:service_unnamed", "displayName": "service_unnamed"}
    other = server.ask(query, {"input": {"description": "no id either"}}, actor=ADMIN)["createServiceAccount"]
    assert other["displayName"] == other["urn"].rpartition(":")[2]


def test_platform_privileges_have_all_of_datahubs_names(server: Server, actor: str) -> None:
    query = """{ me { platformPrivileges { managePolicies manageIdentities generatePersonalAccessTokens manageTokens
      viewAnalytics manageIngestion manageSecrets manageDomains createDomains viewTests manageTests manageGlossaries
      manageUserCredentials createTags manageTags viewManageTags manageGlobalViews manageOwnershipTypes
      manageGlobalAnnouncements createBusinessAttributes manageBusinessAttributes manageStructuredProperties
      viewStructuredPropertiesPage manageApplications manageFeatures manageHomePageTemplates } } }"""
    held = {name for name, one in server.ask(query, actor=ADMIN)["me"]["platformPrivileges"].items() if one}
    assert held == {"managePolicies", "manageIdentities", "generatePersonalAccessTokens", "manageTokens"}
    assert not any(server.ask(query, actor=actor)["me"]["platformPrivileges"].values())


# What DataHub's web application selects of users, groups and tokens.
PERSON = """urn type username info { active displayName title firstName lastName fullName email departmentName }
  editableProperties { displayName title pictureLink teams skills slack phone aboutMe email }"""
BOTH = '["IsMemberOfGroup", "IsMemberOfNativeGroup"]'
WEB = """
query listAccessTokens($input: ListAccessTokenInput!) { listAccessTokens(input: $input) { start count total
  tokens { urn type id name description actorUrn ownerUrn createdAt expiresAt owner { PERSON } } } }

query listGroups($input: ListGroupsInput!) { listGroups(input: $input) { start count total groups {
  urn type name origin { type externalType } info { displayName description email }
  memberCount: relationships(input: {types: BOTH, direction: INCOMING, start: 0, count: 1}) { total } } } }

query getAllGroupMembers($urn: String!, $start: Int!, $count: Int!) { corpGroup(urn: $urn) {
  editableProperties { description slack email } properties { displayName description email }
  relationships(input: {types: BOTH, direction: INCOMING, start: $start, count: $count}) { start count total
    relationships { entity { ... on CorpUser { PERSON properties { displayName } } } } } } }

query getUserGroups($user: String!, $start: Int!, $count: Int!) { corpUser(urn: $user) { isNativeUser
  relationships(input: {types: BOTH, direction: OUTGOING, start: $start, count: $count}) { start count total
    relationships { entity { ... on CorpGroup { urn type name info { displayName description email } }
      relationships(input: {types: BOTH, direction: INCOMING}) { start count total } } } } } }

query listUsers($input: ListUsersInput!) { listUsers(input: $input) { start count total users { isNativeUser
  status PERSON roles: relationships(input: {types: ["IsMemberOfRole"], direction: OUTGOING, start: 0}) { total
    relationships { entity { ... on DataHubRole { urn type name } } } } } } }

query listRoles($input: ListRolesInput!) { listRoles(input: $input) { start count total roles { urn type name
  description policies: relationships(input: {types: ["IsAssociatedWithRole"], direction: INCOMING, count: 10}) {
    total relationships { entity { ... on DataHubPolicy { urn type name } } } } } } }
""".replace("BOTH", BOTH).replace("PERSON", PERSON)


@pytest.mark.parametrize("query", WEB.strip().split("\n\n"), ids=lambda query: query.split("(")[0].split()[1])
def test_document_of_the_web_application_is_answered(server: Server, actor: str, query: str) -> None:
    group = server.ask('mutation { createGroup(input: {name: "Operators"}) }', actor=ADMIN)["createGroup"]
    add = "mutation ($input: GroupMembersInput!) { addGroupMembers(input: $input) }"
    server.ask(add, {"input": {"groupUrn": group, "userUrns": [actor]}}, actor=ADMIN)
    page = {"start": "0", "count": "10"}
    variables = {**page, "input": page, "urn": group, "user": actor}
    (answer,) = server.ask(query, variables, actor=ADMIN).values()
    total = answer["total"] if "total" in answer else answer["relationships"]["total"]
    assert (total > 0) is ("listRoles" not in query)
