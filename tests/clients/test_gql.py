"""gql (PyPI) fetches our schema and validates every document against it."""

import asyncio
from collections.abc import Iterator
from typing import Any

import pytest
from gql import Client, GraphQLRequest, gql
from gql.client import SyncClientSession
from gql.dsl import DSLMutation, DSLQuery, DSLSchema, DSLVariableDefinitions, dsl_gql
from gql.transport.exceptions import TransportQueryError
from gql.transport.httpx import HTTPXAsyncTransport, HTTPXTransport
from graphql import GraphQLError

from tests.support.server import Server

CREATE = """mutation ($input: GetAccessTokenInput!) {
  createAccessToken(input: $input) { accessToken metadata { id name expiresAt } } }"""
LIST = """query ($actor: String!) {
  listAccessTokens(input: {filters: [{field: "actorUrn", value: $actor}]}) { total tokens { id status } } }"""
REVOKE = "mutation ($id: String!) { revokeAccessToken(tokenId: $id) }"


@pytest.fixture
def token(server: Server, actor: str) -> str:
    server.grant(actor)
    made: str = server.create(actor)["accessToken"]
    return made


@pytest.fixture
def client(server: Server, token: str) -> Iterator[SyncClientSession]:
    transport = HTTPXTransport(url=f"{server.url}/api/graphql", headers={"Authorization": f"Bearer {token}"})
    with Client(transport=transport, fetch_schema_from_transport=True) as session:
        yield session


def wanted(actor: str) -> dict[str, Any]:
    return {"input": {"type": "PERSONAL", "actorUrn": actor, "duration": "ONE_HOUR", "name": "made by gql"}}


def request(document: str, **variables: Any) -> GraphQLRequest:
    asked = gql(document)
    asked.variable_values = variables
    return asked


def test_gql_creates_lists_and_revokes_a_token(client: SyncClientSession, actor: str) -> None:
    made = client.execute(request(CREATE, **wanted(actor)))["createAccessToken"]
    new_id = made["metadata"]["id"]
    assert client.execute(request(LIST, actor=actor))["listAccessTokens"]["total"] == 2
    assert client.execute(request(REVOKE, id=new_id)) == {"revokeAccessToken": True}
    left = client.execute(request(LIST, actor=actor))["listAccessTokens"]["tokens"]
    assert new_id not in {row["id"] for row in left}


def test_gql_works_asynchronously(server: Server, token: str, actor: str) -> None:
    async def round_trip() -> tuple[int, bool]:
        transport = HTTPXAsyncTransport(url=f"{server.url}/api/graphql", headers={"Authorization": f"Bearer {token}"})
        async with Client(transport=transport, fetch_schema_from_transport=True) as session:
            asked = (session.execute(request(CREATE, **wanted(actor))) for _ in range(5))
            made = await asyncio.gather(*asked)
            listed = await session.execute(request(LIST, actor=actor))
            revoked = await asyncio.gather(
                *(session.execute(request(REVOKE, id=one["createAccessToken"]["metadata"]["id"])) for one in made)
            )
            return listed["listAccessTokens"]["total"], all(one["revokeAccessToken"] for one in revoked)

    assert asyncio.run(round_trip()) == (6, True)


def test_gql_builds_documents_from_the_fetched_schema(client: SyncClientSession, actor: str) -> None:
    assert client.client.schema is not None
    schema = DSLSchema(client.client.schema)
    variables = DSLVariableDefinitions()  # type: ignore[no-untyped-call]
    create = DSLMutation(
        schema.Mutation.createAccessToken(input=variables.input).select(
            schema.AccessToken.metadata.select(schema.AccessTokenMetadata.id, schema.AccessTokenMetadata.name)
        )
    )
    create.variable_definitions = variables
    asked = dsl_gql(create)
    asked.variable_values = wanted(actor)
    made = client.execute(asked)["createAccessToken"]["metadata"]
    assert made["name"] == "made by gql"

    own = {"filters": [{"field": "ownerUrn", "values": [actor], "condition": "EQUAL"}]}
    listing = schema.Query.listAccessTokens(input=own).select(
        schema.ListAccessTokenResult.tokens.select(schema.AccessTokenMetadata.id, schema.AccessTokenMetadata.status)
    )
    listed = client.execute(dsl_gql(DSLQuery(listing)))["listAccessTokens"]["tokens"]
    assert {"id": made["id"], "status": "ACTIVE"} in listed


def test_gql_rejects_an_unknown_field_before_sending(client: SyncClientSession) -> None:
    with pytest.raises(GraphQLError, match="Cannot query field 'nothing'"):
        client.execute(gql("{ me { nothing } }"))


def test_refusal_of_ours_is_its_query_error(client: SyncClientSession) -> None:
    with pytest.raises(TransportQueryError) as refused:
        client.execute(gql("{ listAccessTokens { total } }"))
    assert refused.value.errors is not None
    assert refused.value.errors[0]["extensions"]["code"] == 403
    assert refused.value.data == {"listAccessTokens": None}


def test_bad_token_is_its_query_error_with_401(server: Server) -> None:
    transport = HTTPXTransport(url=f"{server.url}/api/graphql", headers={"Authorization": "Bearer not-a-token"})
    with Client(transport=transport) as session, pytest.raises(TransportQueryError) as refused:
        session.execute(gql("{ me { corpUser { urn } } }"))
    assert refused.value.errors is not None
    assert refused.value.errors[0]["extensions"]["code"] == 401
