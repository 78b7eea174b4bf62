"""Bad values: the error names the field and the allowed values, and nothing is stored."""

from base64 import urlsafe_b64encode
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from tests.support.server import (
    ADMIN,
    CREATE,
    CREATE_POLICY,
    GENERATE,
    LIST,
    REVOKE,
    SET_STATUS,
    GraphQLRefused,
    Server,
)
from tests.support.store_file import stored

SOME_USER = "urn:li:corpuser:somebody"
UPDATE_POLICY = "mutation ($urn: String!, $input: PolicyUpdateInput!) { updatePolicy(urn: $urn, input: $input) }"
DELETE_POLICY = "mutation ($urn: String!) { deletePolicy(urn: $urn) }"
CREATE_GROUP = "mutation ($input: CreateGroupInput!) { createGroup(input: $input) }"
ADD_MEMBERS = "mutation ($input: GroupMembersInput!) { addGroupMembers(input: $input) }"
CREATE_ACCOUNT = "mutation ($input: CreateServiceAccountInput!) { createServiceAccount(input: $input) { urn } }"
CREATE_WEBHOOK = "mutation ($input: CreateWebhookInput!) { createWebhook(input: $input) { secret } }"
DERIVE = "mutation ($input: DeriveAccessTokenInput!) { deriveAccessToken(input: $input) { accessToken } }"
UPDATE = (
    "mutation ($id: String!, $input: UpdateAccessTokenInput!) { updateAccessToken(tokenId: $id, input: $input) {id}}"
)
HOLD = "mutation ($input: HoldSeriesInput!) { holdSeries(input: $input) { hold { setBy } } }"
FIND = "query ($token: String!) { getAccessTokenMetadata(token: $token) { id } }"
GRANTED = "query ($input: GetGrantedPrivilegesInput!) { getGrantedPrivileges(input: $input) { privileges } }"
POLICIES = "query ($input: ListPoliciesInput!) { listPolicies(input: $input) { total } }"
GROUPS = "query ($input: ListGroupsInput!) { listGroups(input: $input) { total } }"
MEMBERS = "query ($input: ListGroupMembersInput!) { listGroupMembers(input: $input) { total } }"

# Internals that a response must not reveal.
INTERNALS = ("Traceback", 'File "', ".py", "SELECT ", "INSERT ", "sqlite", "apsw", "/work", "/tmp", "0x", "orjson")

CREATE_LITERAL = """mutation {
  createAccessToken(input: {type: %type, actorUrn: "a", duration: %duration, name: "x"}) { accessToken } }"""


@pytest.fixture
def store_unchanged(server: Server) -> Iterator[None]:
    """Check that the test leaves the store unchanged."""
    before = stored(server)
    yield
    assert stored(server) == before


def rejected(server: Server, query: str, variables: dict[str, Any] | None = None) -> dict[str, Any]:
    """Return the single error of a GraphQL request that the root actor sent and the server rejected with 400."""
    response = server.post(query, variables, actor=ADMIN)
    assert response.status_code == 200
    answer = response.json()
    assert not any((answer.get("data") or {}).values())
    for error in answer["errors"]:
        assert set(error) <= {"message", "extensions", "path", "locations"}
        assert (error["extensions"]["code"], error["extensions"]["type"]) == (400, "BAD_REQUEST")
        assert not [word for word in INTERNALS if word in error["message"]]
    first: dict[str, Any] = answer["errors"][0]
    return first


def token(**fields: Any) -> dict[str, Any]:
    wanted = {"type": "PERSONAL", "actorUrn": ADMIN, "duration": "ONE_HOUR", "name": "x", **fields}
    return {"input": {key: value for key, value in wanted.items() if value is not ...}}


def policy(**fields: Any) -> dict[str, Any]:
    actors = {"users": [SOME_USER], **fields.pop("actors", {})}
    wanted = {"type": "PLATFORM", "name": "p", "state": "ACTIVE", "privileges": [GENERATE], "actors": actors, **fields}
    return {"input": {key: value for key, value in wanted.items() if value is not ...}}


def only(**one: Any) -> dict[str, Any]:
    return {"input": {"filters": [one]}}


INVALID_URNS = (
    "", " ", "admin", "urn:", "urn:li", "urn:li:", "urn::x", "URN:li:corpuser:a", "urn:li:corpuser:a b",
    "urn:li:corpuser:é", "urn:li:corpuser:\x00", "urn:li:corpuser:a\n", " urn:li:corpuser:a", "urn:l_i:corpuser:a",
    "urn:li:corpuser:" + "a" * 250, "http://urn:li:corpuser:a",
)  # fmt: skip
NOT_USERS = (
    "urn:li:corpGroup:g", "urn:li:CORPGROUP:g", "urn:li:role:r", "urn:li:serviceRole:r", "urn:li:servicePolicy:p",
    "urn:li:dataHubPolicy:p", "urn:li:policy:p", "urn:li:serviceAccessToken:t", "urn:li:dataHubAccessToken:t",
)  # fmt: skip
RESERVED = ("urn:li:corpuser:__system", "urn:li:corpuser:__", "urn:li:corpuser:a:__b", "urn:x:__system")


@pytest.mark.usefixtures("store_unchanged")
class TestCreateToken:
    @pytest.mark.parametrize("urn", INVALID_URNS)
    def test_invalid_urn_error_shows_the_form(self, server: Server, urn: str) -> None:
        error = rejected(server, CREATE, token(actorUrn=urn))
        assert error["extensions"] | {"reason": "invalid_field", "field": "actorUrn"} == error["extensions"]
        assert "actorUrn must be a urn: urn:<namespace>:<rest>" in error["message"]

    @pytest.mark.parametrize("urn", NOT_USERS)
    def test_urn_that_is_no_user_is_rejected(self, server: Server, urn: str) -> None:
        error = rejected(server, CREATE, token(actorUrn=urn))
        assert error["message"].startswith("actorUrn must be the urn of a user")

    @pytest.mark.parametrize("urn", RESERVED)
    def test_reserved_name_is_rejected(self, server: Server, urn: str) -> None:
        error = rejected(server, CREATE, token(actorUrn=urn))
        assert error["extensions"]["field"] == "actorUrn"
        assert "reserved" in error["message"]

    @pytest.mark.parametrize("name", ["", " ", "\t", "\u2003", "x" * 201, "x" * 300, "two\nlines", "tab\there", "cr\r"])
    def test_invalid_name_error_states_the_rule(self, server: Server, name: str) -> None:
        error = rejected(server, CREATE, token(name=name))
        assert error["extensions"]["field"] == "name"
        assert "200" in error["message"] or "one line" in error["message"]

    @pytest.mark.parametrize("text", ["\x00", "a\x00b", "\x1b[31m", "\x7f", "\x01"])
    @pytest.mark.parametrize("field", ["name", "description"])
    def test_control_characters_error_names_the_field(self, server: Server, field: str, text: str) -> None:
        error = rejected(server, CREATE, token(**{field: text}))
        assert error["message"] == f"{field} must not contain control characters or lone surrogates."
        assert error["extensions"]["field"] == field

    def test_long_description_error_states_the_limit(self, server: Server) -> None:
        error = rejected(server, CREATE, token(description="x" * 1_001))
        assert error["message"] == "description must have at most 1,000 characters."

    @pytest.mark.parametrize(
        "given",
        [{"duration": ...}, {"duration": None}, {"durationIso": "PT1H"}, {"duration": None, "durationIso": None}],
        ids=str,
    )
    def test_needs_exactly_one_of_duration_and_duration_iso(self, server: Server, given: dict[str, Any]) -> None:
        error = rejected(server, CREATE, token(**given))
        assert error["message"] == "Give exactly one of duration and durationIso."
        assert error["extensions"]["field"] == "duration"

    @pytest.mark.parametrize(
        "iso",
        [
            "", "P", "PT", "P1DT", "1D", "P1Y", "P1M", "-P1D", "P-1D", "P1.5D", "PT1H1H", "PT1S1H", "p1d", "P1D ",
            "PT1h", "P\u0661D", "P9999999999D", "\x00", "P1D\n",
        ],
    )  # fmt: skip
    def test_invalid_iso_duration_error_shows_the_form(self, server: Server, iso: str) -> None:
        error = rejected(server, CREATE, token(duration=..., durationIso=iso))
        assert "such as P3D or PT12H" in error["message"]
        assert error["extensions"]["field"] == "durationIso"

    @pytest.mark.parametrize("iso", ["PT0S", "P0D", "PT59S", "PT31536001S", "P366D", "P999999999W"])
    def test_duration_error_states_the_bounds(self, server: Server, iso: str) -> None:
        error = rejected(server, CREATE, token(duration=..., durationIso=iso))
        assert error["message"].startswith("durationIso must be from PT1M to P365D")

    def test_no_expiry_is_rejected_if_not_allowed(self, server: Server) -> None:
        error = rejected(server, CREATE, token(duration="NO_EXPIRY"))
        assert error["message"].startswith("duration NO_EXPIRY is not allowed here; allowed: ONE_HOUR, ONE_DAY")
        assert error["extensions"]["field"] == "duration"


def wrapped(text: str) -> str:
    return "The token:\n" + "\r\n".join(f"  {text[start : start + 76]}" for start in range(0, len(text), 76))


def encoded(text: str) -> str:
    return text.replace(".", "%252E")


class TestTokenInText:
    """A token in a text that lists show is rejected, and the error does not repeat it."""

    FORMS = (str, "token_{}=".format, "https://example.com/?t={}&x=1".format, wrapped, encoded)

    @pytest.mark.parametrize("form", FORMS, ids=["alone", "after a name", "in an address", "wrapped", "encoded"])
    def test_token_in_a_description_is_rejected(self, server: Server, form: Callable[[str], str]) -> None:
        live: str = server.create(ADMIN)["accessToken"]
        before = stored(server)
        error = rejected(server, CREATE, token(description=form(live)))
        assert error["message"] == "description must not contain a token."
        assert error["extensions"] | {"reason": "invalid_field", "field": "description"} == error["extensions"]
        assert not [part for part in live.split(".") if part in str(error)]
        assert stored(server) == before

    @pytest.mark.parametrize(
        ("query", "fields", "field"),
        [
            (CREATE, token()["input"], "name"),
            (CREATE, token()["input"], "description"),
            (DERIVE, {"duration": "ONE_HOUR"}, "name"),
            (UPDATE, {}, "name"),
            (UPDATE, {}, "description"),
            (CREATE_POLICY, policy()["input"], "name"),
            (CREATE_POLICY, policy()["input"], "description"),
            (CREATE_GROUP, {"name": "g"}, "name"),
            (CREATE_GROUP, {"name": "g"}, "description"),
            (CREATE_ACCOUNT, {}, "displayName"),
            (CREATE_ACCOUNT, {}, "description"),
            (CREATE_WEBHOOK, {"url": "https://example.com/"}, "name"),
            (HOLD, {"series": "chart.chartUsageStatistics"}, "reason"),
        ],
    )
    def test_every_text_that_lists_show_is_checked(
        self, server: Server, query: str, fields: dict[str, Any], field: str
    ) -> None:
        claims = urlsafe_b64encode(b'{"actorType":"USER","actorId":"ann"}').decode()
        short = f"eyJhbGciOiJIUzI1NiJ9.{claims}.{'c2lnbmF0dXJl' * 4}"[:150]
        made = server.create(ADMIN)
        before = stored(server)
        variables = {"id": made["metadata"]["id"], "input": fields | {field: f"for {short}"}}
        if query is not UPDATE:
            del variables["id"]
        as_whom = {"token": made["accessToken"]} if query is DERIVE else {"actor": ADMIN}
        with pytest.raises(GraphQLRefused) as caught:
            server.ask(query, variables, **as_whom)
        error = caught.value.errors[0]
        assert error["message"] == f"{field} must not contain a token."
        assert (error["extensions"]["reason"], error["extensions"]["field"]) == ("invalid_field", field)
        assert not [part for part in short.split(".") if part in str(error)]
        assert stored(server) == before

    @pytest.mark.parametrize(
        "text", ["eyJ", "eyJhbGciOiJFZERTQSJ9.e30.c2ln", "spring-datasource.production-cluster.example-organization"]
    )
    def test_text_without_a_whole_token_is_accepted(self, server: Server, text: str) -> None:
        made = server.create(ADMIN, name=text, description=text)
        assert made["metadata"]["name"] == text


@pytest.mark.usefixtures("store_unchanged")
class TestSchemaMismatch:
    """Input that does not match the schema, as a variable and as a literal."""

    @pytest.mark.parametrize(
        ("query", "variables", "says"),
        [
            (CREATE, token(type="ROBOT"), ["type", "Allowed: PERSONAL, SERVICE_ACCOUNT."]),
            (CREATE, token(duration="ONE_SECOND"), ["duration", "Allowed: ONE_HOUR, ONE_DAY", "NO_EXPIRY."]),
            (CREATE, token(duration=["ONE_HOUR"]), ["duration", "Allowed: ONE_HOUR"]),
            (CREATE, token(colour="red"), ["'colour'", "Allowed: type, actorUrn, duration, durationIso, name"]),
            (CREATE, token(actorUrn=...), ["actorUrn", "required"]),
            (CREATE, token(actorUrn=7), ["actorUrn", "String"]),
            (CREATE, token(name=None), ["name", "String!"]),
            (CREATE, {"input": []}, ["$input", "an object"]),
            (CREATE, {"input": None}, ["$input", "GetAccessTokenInput!"]),
            (CREATE, {}, ["$input", "GetAccessTokenInput!"]),
            (LIST, {"input": {"start": "zero"}}, ["start", "Int"]),
            (LIST, {"input": {"start": 1.5}}, ["start", "Int"]),
            (LIST, {"input": {"count": 2**31}}, ["count", "32-bit"]),
            (LIST, {"input": {"count": True}}, ["count", "Int"]),
            (LIST, {"input": {"page": 1}}, ["'page'", "Allowed: start, count, filters, sort."]),
            (LIST, only(field="name", value="a", condition="LIKE"), ["condition", "Allowed: EQUAL, IEQUAL, IN"]),
            (LIST, only(field="name", value=1), ["filters[0].value", "String"]),
            (LIST, only(value="a"), ["field", "required"]),
            (LIST, only(field="name", negated="no", value="a"), ["negated", "Boolean"]),
            (LIST, {"input": {"sort": {"field": "name", "order": "UP"}}}, ["order", "Allowed: ASCENDING, DESCENDING."]),
            (CREATE_POLICY, policy(type="METADATA"), ["type", "METADATA", "Allowed: PLATFORM."]),
            (CREATE_POLICY, policy(state="DRAFT"), ["state", "DRAFT", "Allowed: ACTIVE, INACTIVE."]),
            (SET_STATUS, {"urn": SOME_USER, "status": "GONE"}, ["$status", "Allowed: ACTIVE, SUSPENDED."]),
            (REVOKE, {"id": 5}, ["$id", "String"]),
        ],
    )  # fmt: skip
    def test_typo_in_a_variable_error_lists_allowed_names(
        self, server: Server, query: str, variables: dict[str, Any], says: list[str]
    ) -> None:
        error = rejected(server, query, variables)
        assert error["extensions"]["reason"] == "invalid_document"
        assert [word for word in says if word not in error["message"]] == []

    @pytest.mark.parametrize(
        ("query", "says"),
        [
            ("{ listAccessTokens(limit: 1) { total } }", ["'limit'", "Query.listAccessTokens", "Allowed: input."]),
            ("{ me(a: 1) { corpUser { urn } } }", ["'a'", "Query.me", "Allowed: none."]),
            ("{ listAccessTokens { sum } }", ["'sum'", "Allowed: start, count, total, tokens."]),
            ("{ tokens { id } }", ["'tokens'", "Allowed: listAccessTokens, "]),
            ("mutation { makeToken }", ["'makeToken'", "Allowed: createAccessToken, deriveAccessToken, "]),
            ("{ listAccessTokens(input: {page: 1}) { total } }", ["'page'", "Allowed: start, count, filters, sort."]),
            ("{ listAccessTokens(input: {count: one}) { total } }", ["count: ", "Int"]),
            ('{ listAccessTokens(input: {count: "1"}) { total } }', ["count: ", "Int"]),
            ("{ listAccessTokens(input: {count: 9999999999}) { total } }", ["count: ", "32-bit"]),
            ('{ listAccessTokens(input: {filters: {field: name, value: "a"}}) { total } }', ["field: ", "String"]),
            (
                '{ listAccessTokens(input: {filters: {field: "name", condition: LIKE}}) { total } }',
                ["condition: ", "Allowed: EQUAL, "],
            ),
            (
                CREATE_LITERAL.replace("%type", "PERSONAL").replace("%duration", "SOON"),
                ["duration: ", "Allowed: ONE_HOUR, "],
            ),
            (
                CREATE_LITERAL.replace("%type", "ROBOT").replace("%duration", "ONE_DAY"),
                ["type: ", "Allowed: PERSONAL, SERVICE_ACCOUNT."],
            ),
            ("mutation { revokeAccessToken }", ["tokenId", "String!"]),
            ("query ($input: Nothing) { listAccessTokens(input: $input) { total } }", ["'Nothing'"]),
            ("query ($input: String) { listAccessTokens(input: $input) { total } }", ["$input", "TokensInput"]),
            ("{ listAccessTokens(input: $input) { total } }", ["$input", "not defined"]),
            ("{ listAccessTokens }", ["listAccessTokens", "selection of subfields"]),
            ("{ me { corpUser { urn { x } } } }", ["urn", "no subfields"]),
        ],
    )  # fmt: skip
    def test_typo_in_a_literal_error_lists_allowed_names(self, server: Server, query: str, says: list[str]) -> None:
        error = rejected(server, query)
        assert error["extensions"]["reason"] == "invalid_document"
        assert error["locations"]
        assert [word for word in says if word not in error["message"]] == []

    @pytest.mark.parametrize(
        "literal", ['"\\uD800"', '"\\uDFFF\\uD800"', '"\\u{110000}"', '"\\uZZZZ"', '"open', "'a'", '"a\nb"']
    )
    def test_invalid_string_literal_is_a_syntax_error_with_its_location(self, server: Server, literal: str) -> None:
        query = 'mutation { createAccessToken(input: {type: PERSONAL, duration: ONE_HOUR, name: "x", actorUrn: %s})'
        error = rejected(server, query % literal + " { accessToken } }")
        assert error["message"].startswith("Syntax Error: ")
        assert error["locations"][0]["line"] == 1

    def test_nul_in_a_literal_is_rejected(self, server: Server) -> None:
        query = (
            'mutation { createAccessToken(input: {type: PERSONAL, duration: ONE_HOUR, name: "\\u0000", actorUrn: "%s"})'
        )
        error = rejected(server, query % ADMIN + " { accessToken } }")
        assert error["message"] == "name must not contain control characters or lone surrogates."


@pytest.mark.usefixtures("store_unchanged")
class TestListInput:
    @pytest.mark.parametrize(
        ("variables", "field", "says"),
        [
            ({"input": {"start": -1}}, "start", "start must be 0 or more."),
            ({"input": {"count": -1}}, "count", "count must be from 0 to 1,000."),
            ({"input": {"count": 1_001}}, "count", "count must be from 0 to 1,000."),
            (only(field="colour", value="a"), "filters[0].field", "must be one of: id, urn, name, description"),
            (only(field="", value="a"), "filters[0].field", "must be one of: id,"),
            (only(field="text", value="a"), "filters[0].condition", "must be one of: CONTAIN."),
            (only(field="scope", value='a"'), "filters[0].values", "must be"),
            (only(field="effectiveStatus", value="LIVE"), "filters[0].values", "must be one of: ACTIVE,"),
            (only(field="ACTORURN", value="a"), "filters[0].field", "must be one of: id,"),
            (only(field="name; DROP TABLE tokens", value="a"), "filters[0].field", "must be one of: id,"),
            (only(field="createdAt", value="soon"), "filters[0].values", "whole number of milliseconds since 1970"),
            (only(field="expiresAt", value="1.5"), "filters[0].values", "whole number"),
            (only(field="expiresAt", value=""), "filters[0].values", "whole number"),
            (only(field="expiresAt", value="--1"), "filters[0].values", "whole number"),
            (only(field="expiresAt", value="1_0"), "filters[0].values", "whole number"),
            (only(field="expiresAt", value="\u0663"), "filters[0].values", "whole number"),
            (only(field="expiresAt", value="9" * 19), "filters[0].values", "whole number"),
            (only(field="expiresAt", value="9" * 900), "filters[0].values", "whole number"),
            (only(field="status", value="DEAD"), "filters[0].values", "must be one of: ACTIVE, EXPIRED, REVOKED."),
            (only(field="tokenType", value="X"), "filters[0].values", "must be one of: PERSONAL"),
            (only(field="name", value="a", condition="LESS_THAN"), "filters[0].condition", "on name must be one of:"),
            (only(field="expiresAt", value="1", condition="CONTAIN"), "filters[0].condition", "GREATER_THAN"),
            (only(field="status", value="ACTIVE", condition="IEQUAL"), "filters[0].condition", "EQUAL, IN, EXISTS"),
            (only(field="name"), "filters[0].value", "needs value or values"),
            (only(field="name", values=[]), "filters[0].value", "needs value or values"),
            (only(field="name", value=None, values=None), "filters[0].value", "needs value or values"),
            (only(field="name", value="a", condition="EXISTS"), "filters[0].values", "EXISTS takes no value"),
            (only(field="name", value="\x00"), "filters[0].values", "control characters"),
            (only(field="name", value="x" * 1_001), "filters[0].values", "at most 1,000 characters"),
            (only(field="name", values=["x"] * 301), "filters.values", "at most 300 values together"),
            ({"input": {"filters": [{"field": "name", "value": "x"}] * 21}}, "filters", "at most 20 entries"),
            ({"input": {"sort": {"field": "status"}}}, "sort.field", "must be one of: expiresAt, createdAt"),
        ],
    )  # fmt: skip
    def test_invalid_list_input_error_names_the_field_and_allowed_values(
        self, server: Server, variables: dict[str, Any], field: str, says: str
    ) -> None:
        error = rejected(server, LIST, variables)
        assert error["extensions"]["reason"] == "invalid_field"
        assert error["extensions"]["field"] == field
        assert says in error["message"]

    @pytest.mark.parametrize("query", [POLICIES, GROUPS, MEMBERS])
    @pytest.mark.parametrize("page", [{"start": -1}, {"count": -1}, {"count": 1_001}], ids=str)
    def test_policy_and_group_lists_have_the_same_page_limits(
        self, server: Server, query: str, page: dict[str, int]
    ) -> None:
        group = {"groupUrn": "urn:li:corpGroup:nobody"} if query is MEMBERS else {}
        error = rejected(server, query, {"input": {**group, **page}})
        assert error["extensions"]["field"] in page


@pytest.mark.usefixtures("store_unchanged")
class TestPolicyInput:
    @pytest.mark.parametrize(
        ("variables", "field"),
        [
            (policy(actors={"roles": ["urn:li:dataHubRole:Admin"]}), "actors.roles"),
            (policy(actors={"allGroups": True}), "actors.allGroups"),
            (policy(actors={"resourceOwners": True}), "actors.resourceOwners"),
            (policy(privileges=["EDIT_ENTITY"]), "privileges"),
            (policy(privileges=[GENERATE, "generate_personal_access_tokens"]), "privileges"),
            (policy(privileges=[]), "privileges"),
            (policy(name=""), "name"),
            (policy(name="x" * 300), "name"),
            (policy(name="\x00"), "name"),
            (policy(description="x" * 1_001), "description"),
            (policy(actors={"users": ["admin"]}), "actors.users"),
            (policy(actors={"users": ["urn:li:corpGroup:g"]}), "actors.users"),
            (policy(actors={"users": ["urn:li:corpuser:__system"]}), "actors.users"),
            (policy(actors={"users": ["urn:li:corpuser:\x00"]}), "actors.users"),
            (policy(actors={"groups": ["urn:li:corpuser:a"]}), "actors.groups"),
            (policy(actors={"groups": ["urn:li:corpGroup:"]}), "actors.groups"),
            (policy(actors={"users": [f"urn:li:corpuser:{n}" for n in range(1_001)]}), "actors"),
        ],
    )  # fmt: skip
    def test_unsupported_policy_field_is_rejected(self, server: Server, variables: dict[str, Any], field: str) -> None:
        for query, extra in (
            (CREATE_POLICY, {}),
            (UPDATE_POLICY, {"urn": "urn:li:servicePolicy:everyone-task-status"}),
        ):
            error = rejected(server, query, variables | extra)
            assert error["extensions"]["reason"] == "invalid_field"
            assert error["extensions"]["field"] == field
            assert field in error["message"]

    @pytest.mark.parametrize(
        ("query", "variables", "field"),
        [
            (UPDATE_POLICY, policy() | {"urn": "urn:li:corpuser:a"}, "urn"),
            (UPDATE_POLICY, policy() | {"urn": "nothing"}, "urn"),
            (DELETE_POLICY, {"urn": "nothing"}, "urn"),
            (CREATE_GROUP, {"input": {"name": ""}}, "name"),
            (CREATE_GROUP, {"input": {"name": "g", "id": "a b"}}, "id"),
            (CREATE_GROUP, {"input": {"name": "g", "id": "x" * 101}}, "id"),
            (CREATE_GROUP, {"input": {"name": "g", "description": "\x00"}}, "description"),
            (ADD_MEMBERS, {"input": {"groupUrn": SOME_USER, "userUrns": [SOME_USER]}}, "groupUrn"),
            (ADD_MEMBERS, {"input": {"groupUrn": "urn:li:corpGroup:g", "userUrns": []}}, "userUrns"),
            (ADD_MEMBERS, {"input": {"groupUrn": "urn:li:corpGroup:g", "userUrns": ["me"]}}, "userUrns"),
            (SET_STATUS, {"urn": "urn:li:corpGroup:g", "status": "SUSPENDED"}, "urn"),
            (SET_STATUS, {"urn": "urn:li:corpuser:__system", "status": "SUSPENDED"}, "urn"),
            (GRANTED, {"input": {"actorUrn": "me"}}, "actorUrn"),
            (REVOKE, {"id": ""}, "tokenId"),
            (REVOKE, {"id": "x" * 44}, "tokenId"),
            (REVOKE, {"id": "\x00" * 44}, "tokenId"),
            (FIND, {"token": "é"}, "token"),
            (FIND, {"token": "x" * 8_193}, "token"),
        ],
    )  # fmt: skip
    def test_invalid_group_actor_or_token_id_is_rejected(
        self, server: Server, query: str, variables: dict[str, Any], field: str
    ) -> None:
        error = rejected(server, query, variables)
        assert error["extensions"]["field"] == field
        assert error["message"].startswith(field)


@pytest.mark.usefixtures("store_unchanged")
def test_each_failing_mutation_field_has_its_own_error(server: Server) -> None:
    query = """mutation ($good: String!) {
      a: revokeAccessToken(tokenId: "nothing") b: revokeAccessToken(tokenId: $good) }"""
    answer = server.post(query, {"good": "A" * 43 + "="}, actor=ADMIN).json()
    assert answer["data"] == {"a": None, "b": None}
    assert [(e["path"], e["extensions"]["code"]) for e in answer["errors"]] == [(["a"], 400), (["b"], 404)]
