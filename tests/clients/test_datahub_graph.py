"""DataHub's Python client `DataHubGraph`, unmodified, with our tokens."""

from collections.abc import Iterator
from typing import Any

import pytest

from tests.support.clients import ClientRefused, Graph
from tests.support.server import Server
from tests.support.store_file import change_store

# As DataHub's clients send them: their input type names and selections.
CREATE = """mutation createAccessToken($input: CreateAccessTokenInput!) {
  createAccessToken(input: $input) { accessToken metadata { id actorUrn ownerUrn name description } } }"""
LIST = """query listAccessTokens($input: ListAccessTokenInput!) {
  listAccessTokens(input: $input) { start count total
    tokens { urn type id name description actorUrn ownerUrn createdAt expiresAt owner { urn type username } __typename }
    __typename } }"""
REVOKE = "mutation revokeAccessToken($tokenId: String!) { revokeAccessToken(tokenId: $tokenId) }"
ME = "{ me { corpUser { urn } } }"


@pytest.fixture(scope="module")
def graph(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Graph]:
    with Graph(tmp_path_factory.mktemp("home")) as running:
        yield running


@pytest.fixture
def token(server: Server, actor: str) -> str:
    """A token of an actor who may use the token API."""
    server.grant(actor)
    made: str = server.create(actor)["accessToken"]
    return made


def wanted(actor: str, **fields: Any) -> dict[str, Any]:
    return {
        "input": {"type": "PERSONAL", "actorUrn": actor, "duration": "ONE_HOUR", "name": "made by DataHub"} | fields
    }


def own(actor: str) -> dict[str, Any]:
    return {"input": {"start": 0, "count": 100, "filters": [{"field": "ownerUrn", "values": [actor]}]}}


@pytest.mark.parametrize("prefix", ["", "/gms", "/api/gms"], ids=["bare", "gms", "api-gms"])
def test_datahub_graph_creates_uses_lists_and_revokes_a_token(
    server: Server, graph: Graph, actor: str, token: str, prefix: str
) -> None:
    at = server.url + prefix
    graph.call(at, token, "test_connection")
    made = graph.call(at, token, "execute_graphql", query=CREATE, variables=wanted(actor))["createAccessToken"]
    new_id = made["metadata"]["id"]
    assert made["metadata"]["ownerUrn"] == actor

    me = graph.call(at, made["accessToken"], "execute_graphql", query=ME)
    assert me == {"me": {"corpUser": {"urn": actor}}}

    listed = graph.call(at, token, "execute_graphql", query=LIST, variables=own(actor))["listAccessTokens"]
    assert listed["total"] == 2
    assert {row["name"] for row in listed["tokens"] if row["id"] == new_id} == {"made by DataHub"}

    revoked = graph.call(at, token, "execute_graphql", query=REVOKE, variables={"tokenId": new_id})
    assert revoked == {"revokeAccessToken": True}
    after = graph.call(at, token, "execute_graphql", query=LIST, variables=own(actor))["listAccessTokens"]
    assert new_id not in {row["id"] for row in after["tokens"]}
    assert after["total"] == 1


def test_datahub_graph_reads_the_server_config_without_a_token(server: Server, graph: Graph) -> None:
    config = graph.call(f"{server.url}/gms", None, "get_config")
    assert config["noCode"] == "true"
    assert config["watchword"]["capabilities"]


def test_datahub_version_check_passes(server: Server, graph: Graph) -> None:
    assert graph.call(server.url, None, "compare_versions") == 0


def test_invalid_token_fails_at_the_first_call(server: Server, graph: Graph) -> None:
    graph.call(server.url, "not-a-token", "test_connection")
    with pytest.raises(ClientRefused) as told:
        graph.call(server.url, "not-a-token", "execute_graphql", query=ME)
    assert told.value.kinds[0] == "OperationalError"
    assert told.value.info["errors"][0]["extensions"]["reason"] == "invalid_token"


def test_datahub_graph_reports_a_revoked_token(server: Server, graph: Graph, actor: str, token: str) -> None:
    made = server.create(actor)
    server.revoke(made["metadata"]["id"])
    with pytest.raises(ClientRefused, match="revoked"):
        graph.call(server.url, made["accessToken"], "execute_graphql", query=ME)


def test_datahub_graph_reports_an_expired_token(server: Server, graph: Graph, actor: str, token: str) -> None:
    made = server.create(actor)
    change_store(server, "UPDATE tokens SET expires_at = created_at + 1 WHERE id = ?", made["metadata"]["id"])
    with pytest.raises(ClientRefused, match="expired"):
        graph.call(server.url, made["accessToken"], "execute_graphql", query=ME)


def test_denial_is_an_answer_with_code_403_and_the_missing_privilege(
    server: Server, graph: Graph, actor: str, token: str
) -> None:
    asked = wanted("urn:li:corpuser:somebody-else")
    with pytest.raises(ClientRefused) as told:
        graph.call(server.url, token, "execute_graphql", query=CREATE, variables=asked)
    assert told.value.kinds[0] == "GraphError"  # so it is not retried, and no transport error
    assert "'code': 403, 'type': 'UNAUTHORIZED'" in str(told.value)
    assert "MANAGE_ACCESS_TOKENS" in str(told.value)


def test_mistake_in_the_input_is_an_answer_that_names_the_field(
    server: Server, graph: Graph, actor: str, token: str
) -> None:
    with pytest.raises(ClientRefused, match="name must have 1 to 200 characters") as told:
        graph.call(server.url, token, "execute_graphql", query=CREATE, variables=wanted(actor, name=""))
    assert told.value.kinds[0] == "GraphError"


def test_datahub_graph_removes_unknown_fields_from_its_queries(
    server: Server, graph: Graph, actor: str, token: str
) -> None:
    query = "query getMe { me { corpUser { urn username globalTags { tags { tag { urn } } } settings { views } } } }"
    with pytest.raises(ClientRefused, match="globalTags") as told:
        graph.call(server.url, token, "execute_graphql", query=query)
    assert "'classification': 'ValidationError'" in str(told.value)
    stripped = graph.call(server.url, token, "execute_graphql", query=query, strip_unsupported_fields=True)
    assert stripped == {"me": {"corpUser": {"urn": actor, "username": actor.rpartition(":")[2]}}}


def test_datahub_login_counts_existing_tokens(server: Server, graph: Graph, actor: str, token: str) -> None:
    server.create(actor, name="cli token one")
    server.create(actor, name="cli token two")
    assert "You have 2 existing CLI token(s)" in graph.call(server.url, token, "warn_about_tokens", actor=actor)
