"""GraphQL over HTTP: media types, statuses, introspection, and documents as real clients send them."""

from collections.abc import Callable
from typing import Any

import httpx
import pytest
from graphql import build_client_schema, get_introspection_query, parse, print_schema, validate

from tests.support.server import ADMIN, CREATE, GENERATE, LIST, MANAGE_ALL, REVOKE, Server

MakeServer = Callable[..., Server]
ME = "{ me { corpUser { urn } } }"
MODERN = "application/graphql-response+json"
NO_ACTOR = "A" * 43 + "="


def post(server: Server, body: Any, target: str = "/api/graphql", **headers: str) -> httpx.Response:
    named = {name.replace("_", "-"): value for name, value in headers.items()}
    return server.http.post(target, json=body, headers={"X-Service-Actor": ADMIN, **named})


class TestMediaType:
    @pytest.mark.parametrize(
        "accept", ["application/json", "*/*", "text/html", "application/*", "application/json;q=0.9"]
    )
    def test_old_media_type_always_gets_200(self, server: Server, accept: str) -> None:
        for query in (ME, "{", "{ nothing }", f'mutation {{ revokeAccessToken(tokenId: "{NO_ACTOR}") }}'):
            answer = post(server, {"query": query}, Accept=accept)
            assert answer.status_code == 200
            assert answer.headers["Content-Type"] == "application/json; charset=utf-8"

    @pytest.mark.parametrize(
        "accept", [MODERN, f"{MODERN}, application/json;q=0.9", f"{MODERN}; charset=utf-8", MODERN.upper()]
    )
    @pytest.mark.parametrize(
        ("query", "status", "has_data"),
        [
            (ME, 200, True),
            (f'mutation {{ revokeAccessToken(tokenId: "{NO_ACTOR}") }}', 200, True),
            ("{", 400, False),
            ("{ nothing }", 400, False),
            (LIST, 200, True),
            (CREATE, 400, False),
            ("{ " + "a: me { corpUser { urn } } " * 21 + "}", 400, False),
            (f"query a {ME} query b {ME}", 400, False),
        ],
    )  # fmt: skip
    def test_new_media_type_gets_the_status_of_the_specification(
        self, server: Server, accept: str, query: str, status: int, has_data: bool
    ) -> None:
        answer = post(server, {"query": query}, Accept=accept)
        assert answer.status_code == status
        assert answer.headers["Content-Type"] == f"{MODERN}; charset=utf-8"
        assert ("data" in answer.json()) == has_data

    @pytest.mark.parametrize("accept", ["application/json", MODERN])
    def test_media_type_does_not_affect_errors_of_the_http_request(self, server: Server, accept: str) -> None:
        headers = {"X-Service-Actor": ADMIN, "Content-Type": "application/json", "Accept": accept}
        assert server.http.post("/api/graphql", content=b"{", headers=headers).status_code == 400
        assert server.http.post("/api/graphql", content=b"{}", headers=headers).status_code == 400
        del headers["X-Service-Actor"]
        assert server.http.post("/api/graphql", content=b"{}", headers=headers).status_code == 401


class TestIntrospection:
    def test_full_introspection_builds_a_client_schema(self, server: Server) -> None:
        query = get_introspection_query(
            descriptions=True, specified_by_url=True, directive_is_repeatable=True, schema_description=True,
            input_value_deprecation=True,
        )  # fmt: skip
        answer = post(server, {"query": query, "operationName": "IntrospectionQuery"}).json()
        assert "errors" not in answer
        schema = build_client_schema(answer["data"])
        for name in ("GetAccessTokenInput", "ListAccessTokensInput", "CreateAccessTokenInput", "ListAccessTokenInput"):
            assert f"input {name} " in print_schema(schema)
        for query in (CREATE, LIST, REVOKE):
            assert validate(schema, parse(query)) == []

    def test_introspection_of_one_type_works_beside_other_fields(self, server: Server) -> None:
        query = '{ __typename __type(name: "CreateAccessTokenInput") { kind inputFields { name } } me { __typename } }'
        data = server.ask(query, actor=ADMIN)
        names = [field["name"] for field in data["__type"]["inputFields"]]
        limits = ["scopes", "audience", "allowedNetworks"]
        assert names == ["type", "actorUrn", "duration", "durationIso", "name", "description", *limits]
        assert data["__typename"] == "Query"
        assert data["me"]["__typename"] == "AuthenticatedUser"

    @pytest.mark.parametrize(
        "nested",
        [
            "{ __schema { types { fields { type { fields { type { fields { type { fields { name } } } } } } } } } }",
            '{ __type(name: "Query") { fields { type { fields { type { fields { type { fields { name } } } } } } } } }',
            """{ __schema { types { ...a } } } fragment a on __Type { fields { type { ...b } } }
            fragment b on __Type { fields { type { ...c } } }
            fragment c on __Type { fields { type { fields { name } } } }""",
        ],
        ids=["schema", "type", "fragments"],
    )  # fmt: skip
    def test_cyclic_introspection_is_rejected(self, server: Server, nested: str) -> None:
        answer = post(server, {"query": nested}).json()
        assert answer["data"] is None
        assert answer["errors"][0]["extensions"]["code"] == 400

    def test_introspection_needs_authentication(self, server: Server) -> None:
        assert server.post(get_introspection_query()).status_code == 401


class TestClientDocuments:
    def test_datahub_input_type_names_are_accepted(self, server: Server, actor: str) -> None:
        create = CREATE.replace("GetAccessTokenInput", "CreateAccessTokenInput")
        wanted = {"type": "PERSONAL", "actorUrn": actor, "duration": "ONE_DAY", "name": "named"}
        made = server.ask(create, {"input": wanted}, actor=ADMIN)["createAccessToken"]
        for name in ("ListAccessTokenInput", "ListAccessTokenInput!", "ListAccessTokensInput!"):
            query = LIST.replace("ListAccessTokensInput", name)
            given = {"input": {"filters": [{"field": "actorUrn", "value": actor}]}}
            listed = server.ask(query, given, actor=ADMIN)["listAccessTokens"]
            assert [entry["id"] for entry in listed["tokens"]] == [made["metadata"]["id"]]

    def test_alias_may_equal_a_datahub_input_type(self, server: Server) -> None:
        query = """query ListAccessTokenInput($a: ListAccessTokenInput) {
          CreateAccessTokenInput: listAccessTokens(input: $a) { total } }"""
        assert server.ask(query, {"a": {"count": 0}}, actor=ADMIN)["CreateAccessTokenInput"]["total"] >= 0

    def test_undeclared_variables_are_ignored(self, server: Server) -> None:
        assert server.ask(ME, {"input": {"a": 1}, "unused": [None]}, actor=ADMIN)["me"]["corpUser"]["urn"] == ADMIN

    def test_single_string_is_accepted_for_a_list(self, server: Server, actor: str) -> None:
        made = server.create(ADMIN, of=actor)["metadata"]["id"]
        for filters in ({"field": "actorUrn", "values": actor}, [{"field": "actorUrn", "values": actor}]):
            listed = server.ask(LIST, {"input": {"filters": filters}}, actor=ADMIN)["listAccessTokens"]
            assert [entry["id"] for entry in listed["tokens"]] == [made]
        literal = '{ listAccessTokens(input: {filters: {field: "actorUrn", values: "%s"}}) { total } }'
        assert server.ask(literal % actor, actor=ADMIN)["listAccessTokens"]["total"] == 1

    @pytest.mark.parametrize(
        "target", ["/api/graphql?operationName=anything", "/api/v2/graphql?a=b", "/gms/api/graphql?"]
    )
    def test_operation_name_in_the_url_is_ignored(self, server: Server, target: str) -> None:
        answer = post(server, {"query": f"query anything {ME}", "operationName": "anything"}, target)
        assert answer.json() == {"data": {"me": {"corpUser": {"urn": ADMIN}}}}

    @pytest.mark.parametrize("query", [ME, f"query {ME}", f"query Some_Name1 {ME}", f"# a comment\n\ufeff{ME}"])
    def test_operation_may_be_anonymous_or_named(self, server: Server, query: str) -> None:
        assert post(server, {"query": query}).json() == {"data": {"me": {"corpUser": {"urn": ADMIN}}}}

    @pytest.mark.parametrize("more", [{}, {"variables": None, "operationName": None}, {"extensions": {}, "id": 7}])
    def test_body_members_may_be_missing_or_extra(self, server: Server, more: dict[str, Any]) -> None:
        assert post(server, {"query": ME, **more}).json() == {"data": {"me": {"corpUser": {"urn": ADMIN}}}}

    def test_aliases_and_typename_work_everywhere(self, server: Server) -> None:
        query = """query a { __typename
          one: listAccessTokens(input: {count: 0}) { __typename n: total }
          two: listAccessTokens { __typename tokens { __typename owner { __typename } } } }"""
        data = server.ask(query, actor=ADMIN)
        assert data["__typename"] == "Query"
        assert data["one"]["__typename"] == data["two"]["__typename"] == "ListAccessTokenResult"
        assert data["one"]["n"] >= len(data["two"]["tokens"])

    def test_explicit_nulls_are_accepted_and_returned(self, server: Server, actor: str) -> None:
        wanted = {
            "type": "PERSONAL", "actorUrn": actor, "duration": "ONE_HOUR", "durationIso": None, "name": "n",
            "description": None,
        }  # fmt: skip
        query = """mutation ($input: GetAccessTokenInput!) { createAccessToken(input: $input) {
          metadata { id description lastUsedAt revokedAt } } }"""
        made = server.ask(query, {"input": wanted}, actor=ADMIN)["createAccessToken"]["metadata"]
        assert made | {"description": None, "lastUsedAt": None, "revokedAt": None} == made
        empty: dict[str, Any] = {"start": None, "count": None, "filters": None, "sort": None}
        inputs: list[dict[str, Any] | None] = [None, {}, empty, {"filters": []}]
        for given in inputs:
            listed = server.ask(LIST, {"input": given}, actor=ADMIN)["listAccessTokens"]
            assert (listed["start"], listed["count"]) == (0, 20)
        one = {"field": "actorUrn", "value": actor, "values": None, "condition": None, "negated": None}
        assert server.tokens(filters=[one])["total"] == 1

    def test_every_token_field_is_returned(self, server: Server, actor: str) -> None:
        made = server.create(ADMIN, of=actor, name="all", description="of it", duration="SIX_MONTHS")
        query = """{ listAccessTokens(input: {filters: [{field: "actorUrn", value: "%s"}]}) { tokens {
          urn type id name description actorUrn ownerUrn tokenType status createdAt expiresAt lastUsedAt revokedAt
          owner { urn type username exists } } } }"""
        (shown,) = server.ask(query % actor, actor=ADMIN)["listAccessTokens"]["tokens"]
        created = shown["createdAt"]
        assert created > 2**40
        assert shown == {
            "urn": "urn:li:serviceAccessToken:" + made["metadata"]["id"], "type": "ACCESS_TOKEN",
            "id": made["metadata"]["id"], "name": "all", "description": "of it", "actorUrn": actor, "ownerUrn": ADMIN,
            "tokenType": "PERSONAL", "status": "ACTIVE", "createdAt": created,
            "expiresAt": created + 180 * 86_400_000, "lastUsedAt": None, "revokedAt": None,
            "owner": {"urn": ADMIN, "type": "CORP_USER", "username": "admin", "exists": True},
        }  # fmt: skip

    def test_skip_and_include_directives_work(self, server: Server) -> None:
        query = "query ($yes: Boolean!) { me @include(if: $yes) { corpUser { urn @skip(if: $yes) username } } }"
        assert server.ask(query, {"yes": True}, actor=ADMIN) == {"me": {"corpUser": {"username": "admin"}}}
        assert server.ask(query, {"yes": False}, actor=ADMIN) == {}


class TestDenials:
    @pytest.mark.parametrize(
        ("query", "variables", "field"),
        [
            (LIST, {}, "listAccessTokens"),
            (REVOKE, {"id": NO_ACTOR}, "revokeAccessToken"),
            ('{ getAccessTokenMetadata(token: "x") { id } }', {}, "getAccessTokenMetadata"),
            ("{ listPolicies(input: {}) { total } }", {}, "listPolicies"),
        ],
    )
    @pytest.mark.parametrize("accept", ["application/json", MODERN])
    def test_denial_is_200_with_code_403_and_the_privilege(
        self, server: Server, actor: str, query: str, variables: dict[str, Any], field: str, accept: str
    ) -> None:
        answer = server.post(query, variables, actor=actor, headers={"Accept": accept})
        assert answer.status_code == 200
        assert answer.json()["data"] == {field: None}
        (error,) = answer.json()["errors"]
        kind = error["extensions"]
        assert (kind["code"], kind["type"], kind["reason"]) == (403, "UNAUTHORIZED", "missing_privilege")
        assert kind["privilege"] in error["message"]
        assert error["path"] == [field]

    def test_denied_field_does_not_affect_other_fields(self, server: Server, actor: str) -> None:
        server.grant(actor)
        query = """query ($own: ListAccessTokensInput) { me { corpUser { urn } }
          own: listAccessTokens(input: $own) { total } all: listAccessTokens { total } }"""
        own = {"filters": [{"field": "actorUrn", "value": actor}]}
        answer = server.post(query, {"own": own}, actor=actor).json()
        assert answer["data"] == {"me": {"corpUser": {"urn": actor}}, "own": {"total": 0}, "all": None}
        (error,) = answer["errors"]
        assert error["path"] == ["all"]
        assert error["extensions"]["privilege"] == MANAGE_ALL

    def test_denied_create_for_another_actor_names_the_higher_privilege(self, server: Server, actor: str) -> None:
        wanted = {"type": "PERSONAL", "actorUrn": ADMIN, "duration": "ONE_HOUR", "name": "x"}
        for granted, missing in ((False, GENERATE), (True, MANAGE_ALL)):
            if granted:
                server.grant(actor)
            (error,) = server.post(CREATE, {"input": wanted}, actor=actor).json()["errors"]
            assert error["extensions"]["privilege"] == missing


def test_success_has_no_errors(server: Server) -> None:
    assert set(post(server, {"query": ME}).json()) == {"data"}


def test_mutation_fields_run_in_order(server: Server, actor: str) -> None:
    make = (
        'createAccessToken(input: {type: PERSONAL, actorUrn: "%s", duration: ONE_HOUR, name: "%s"}) { metadata { id } }'
    )
    made = server.ask("mutation { " + f"a: {make % (actor, 'a')} b: {make % (actor, 'b')}" + " }", actor=ADMIN)
    first = made["a"]["metadata"]["id"]
    query = f'mutation {{ x: revokeAccessToken(tokenId: "{first}") y: revokeAccessToken(tokenId: "{first}") }}'
    answer = server.post(query, actor=ADMIN).json()
    assert answer["data"] == {"x": True, "y": None}
    assert answer["errors"][0]["extensions"]["code"] == 409


class TestExecutionErrors:
    @pytest.mark.parametrize(
        ("query", "named"),
        [
            ('query ($x: String = "x") { getActor(urn: $x) { urn } }', "urn"),
            (
                """mutation ($x: AccessTokenType = PERSONAL) { createAccessToken(input:
                {type: $x, name: "n", actorUrn: "urn:li:corpuser:admin", duration: ONE_HOUR}) { accessToken } }""",
                "type",
            ),
        ],
    )
    def test_null_for_a_defaulted_variable_is_a_bad_request(self, server: Server, query: str, named: str) -> None:
        (error,) = post(server, {"query": query, "variables": {"x": None}}).json()["errors"]
        assert (error["extensions"]["code"], error["extensions"]["reason"]) == (400, "invalid_document")
        assert named in error["message"]


def test_error_does_not_repeat_the_rejected_input(server: Server) -> None:
    sent = {"type": "PERSONAL", "name": "do-not-repeat", "actorUrn": ADMIN, "duration": "ONE_HOUR", "extra": 1}
    answer = post(server, {"query": CREATE, "variables": {"input": sent}})
    assert "extra" in answer.text
    assert "do-not-repeat" not in answer.text
