"""The token API over HTTP: lists, filters, edits, revocation, lookup and limits."""

import time
from collections.abc import Callable
from typing import Any

import jwt
import pytest

from tests.support.server import ADMIN, CREATE, LIST, MANAGE_ALL, REVOKE, GraphQLRefused, Server
from tests.support.store_file import change_store

MakeServer = Callable[..., Server]
GET = "query ($id: String!) { getAccessToken(id: $id) { id actorUrn status } }"
FIND = "query ($token: String!) { getAccessTokenMetadata(token: $token) { id actorUrn ownerUrn status } }"
EDIT = """mutation ($id: String!, $input: UpdateAccessTokenInput!) {
  updateAccessToken(tokenId: $id, input: $input) { id name description } }"""
UPDATES = "query ($input: ListEventsInput) { listEvents(input: $input) { events { detail } } }"
ALL = {"alpha", "Beta", "beta two", "gone", "never"}
SET = "UPDATE tokens SET {} = ? WHERE id = ?"


@pytest.fixture
def holder(server: Server, actor: str) -> str:
    server.grant(actor)
    return actor


def own(actor: str) -> dict[str, str]:
    return {"field": "actorUrn", "value": actor}


def names(server: Server, actor: str, *filters: dict[str, Any], **fields: Any) -> list[str]:
    listed = server.tokens(filters=[own(actor), *filters], **fields)
    return [entry["name"] for entry in listed["tokens"]]


@pytest.fixture
def five_tokens(server: Server, actor: str) -> dict[str, str]:
    """Create five tokens of one actor: two with equal expiry, one without, one expired, one revoked."""
    made = {
        name: server.create(ADMIN, of=actor, name=name, **more)["metadata"]["id"]
        for name, more in {
            "alpha": {"duration": "ONE_DAY", "description": "first"},
            "Beta": {"duration": "ONE_WEEK"},
            "beta two": {"duration": "ONE_MONTH", "description": "Second"},
            "never": {},
            "gone": {},
            "revoked": {},
        }.items()
    }
    change_store(server, SET.format("expires_at"), None, made["never"])
    change_store(server, SET.format("expires_at"), 1_000, made["gone"])
    server.revoke(made["revoked"])
    return made


class TestList:
    def test_list_is_sorted_by_latest_expiry_with_never_expiring_last(
        self, server: Server, actor: str, five_tokens: dict[str, str]
    ) -> None:
        assert names(server, actor) == ["beta two", "Beta", "alpha", "gone", "never"]

    def test_equal_expiry_is_sorted_by_id(self, server: Server, actor: str) -> None:
        ids = [server.create(ADMIN, of=actor)["metadata"]["id"] for _ in range(8)]
        for one in ids:
            change_store(server, SET.format("expires_at"), 2_000_000_000_000, one)
        assert [entry["id"] for entry in server.tokens(filters=[own(actor)])["tokens"]] == sorted(ids)

    @pytest.mark.parametrize(
        ("field", "order", "wanted"),
        [
            ("name", "ASCENDING", ["Beta", "alpha", "beta two", "gone", "never"]),
            ("name", "DESCENDING", ["never", "gone", "beta two", "alpha", "Beta"]),
            ("name", None, ["never", "gone", "beta two", "alpha", "Beta"]),
            ("expiresAt", "ASCENDING", ["gone", "alpha", "Beta", "beta two", "never"]),
            ("expiresAt", "DESCENDING", ["beta two", "Beta", "alpha", "gone", "never"]),
        ],
    )  # fmt: skip
    def test_list_is_sorted_with_missing_values_last(
        self, server: Server, actor: str, five_tokens: dict[str, str], field: str, order: str | None, wanted: list[str]
    ) -> None:
        assert names(server, actor, sort={"field": field, "order": order}) == wanted

    def test_pages_together_are_the_whole_list(self, server: Server, actor: str, five_tokens: dict[str, str]) -> None:
        whole = names(server, actor)
        for count in (1, 2, 3, 5, 1_000):
            pages = [names(server, actor, start=start, count=count) for start in range(0, 5, count)]
            assert [name for page in pages for name in page] == whole
        for start, count in ((0, 0), (5, 10), (2_147_483_647, 1_000), (4, 1)):
            listed = server.tokens(filters=[own(actor)], start=start, count=count)
            assert (listed["start"], listed["count"], listed["total"]) == (start, count, 5)
            assert len(listed["tokens"]) == (1 if (start, count) == (4, 1) else 0)

    def test_revoked_tokens_are_listed_only_by_status(
        self, server: Server, actor: str, five_tokens: dict[str, str]
    ) -> None:
        status = {"field": "status", "values": ["REVOKED"]}
        assert names(server, actor, status) == ["revoked"]
        assert names(server, actor, {"field": "status", "values": ["EXPIRED"]}) == ["gone"]
        assert set(names(server, actor, {"field": "status", "values": ["ACTIVE", "REVOKED"]})) == {
            "alpha", "Beta", "beta two", "never", "revoked",
        }  # fmt: skip
        assert names(server, actor, {"field": "status", "value": "ACTIVE", "negated": True}) == ["revoked", "gone"]
        assert "revoked" not in names(server, actor, {"field": "name", "value": "revoked"})
        assert server.tokens(filters=[own(actor), status])["total"] == 1

    @pytest.mark.parametrize(
        ("given", "wanted"),
        [
            ({"field": "name", "value": "Beta"}, {"Beta"}),
            ({"field": "name", "value": "Beta", "condition": "EQUAL"}, {"Beta"}),
            ({"field": "name", "value": "BETA", "condition": "IEQUAL"}, {"Beta"}),
            ({"field": "name", "values": ["alpha", "never", "x"], "condition": "IN"}, {"alpha", "never"}),
            ({"field": "name", "value": "alpha", "values": ["never"]}, {"alpha", "never"}),
            ({"field": "name", "value": "eta", "condition": "CONTAIN"}, {"Beta", "beta two"}),
            ({"field": "name", "values": ["%", "_"], "condition": "CONTAIN"}, set()),
            ({"field": "name", "value": "be", "condition": "START_WITH"}, {"beta two"}),
            ({"field": "name", "values": ["a", "two"], "condition": "END_WITH"}, {"alpha", "Beta", "beta two"}),
            ({"field": "description", "condition": "EXISTS"}, {"alpha", "beta two"}),
            ({"field": "description", "condition": "EXISTS", "negated": True}, {"Beta", "gone", "never"}),
            ({"field": "description", "value": "first", "negated": True}, {"beta two"}),
            ({"field": "name", "value": "Beta", "negated": True}, {"alpha", "beta two", "gone", "never"}),
            ({"field": "expiresAt", "values": ["1000"], "condition": "LESS_THAN"}, set()),
            ({"field": "expiresAt", "values": ["1001"], "condition": "LESS_THAN"}, {"gone"}),
            ({"field": "expiresAt", "values": ["1000"], "condition": "LESS_THAN_OR_EQUAL_TO"}, {"gone"}),
            ({"field": "expiresAt", "values": ["1000"], "condition": "GREATER_THAN"}, {"alpha", "Beta", "beta two"}),
            ({"field": "expiresAt", "value": "-5", "condition": "GREATER_THAN_OR_EQUAL_TO", "negated": True}, set()),
            ({"field": "expiresAt", "value": "1000"}, {"gone"}),
            ({"field": "expiresAt", "condition": "EXISTS", "negated": True}, {"never"}),
            ({"field": "createdAt", "value": "0", "condition": "GREATER_THAN"}, ALL),
            ({"field": "lastUsedAt", "condition": "EXISTS"}, set()),
            ({"field": "tokenType", "value": "PERSONAL"}, ALL),
            ({"field": "ownerUrn", "value": ADMIN}, ALL),
            ({"field": "ownerUrn", "value": ADMIN, "negated": True}, set()),
        ],
    )  # fmt: skip
    def test_filter_returns_matching_tokens(
        self, server: Server, actor: str, five_tokens: dict[str, str], given: dict[str, Any], wanted: set[str]
    ) -> None:
        listed = server.tokens(filters=[own(actor), given])
        assert {entry["name"] for entry in listed["tokens"]} == wanted
        assert listed["total"] == len(wanted)

    def test_token_is_found_by_id_and_urn(self, server: Server, actor: str, five_tokens: dict[str, str]) -> None:
        for given in (
            {"field": "id", "value": five_tokens["never"]},
            {"field": "urn", "value": "urn:li:serviceAccessToken:" + five_tokens["never"]},
        ):
            assert [entry["name"] for entry in server.tokens(filters=[given])["tokens"]] == ["never"]

    def test_expired_tokens_can_be_listed_and_revoked_until_none_is_left(self, server: Server, actor: str) -> None:
        """The loop of `datahub-gc`: list expired tokens and revoke each until the list is empty."""
        ids = [server.create(ADMIN, of=actor)["metadata"]["id"] for _ in range(23)]
        for number, one in enumerate(ids):
            change_store(server, SET.format("expires_at"), 1_000 + number if number < 21 else None, one)
        expired = {"field": "expiresAt", "values": [str(int(time.time() * 1000))], "condition": "LESS_THAN"}
        collected: list[str] = []
        while found := server.tokens(filters=[expired, own(actor)], start=0, count=10)["tokens"]:
            assert len(collected) < 21
            for entry in found:
                assert server.revoke(entry["id"]) is True
                collected.append(entry["id"])
        assert sorted(collected) == sorted(ids[:21])
        assert server.tokens(filters=[own(actor)])["total"] == 2

    def test_own_tokens_are_filtered_by_actor_or_owner(self, server: Server, holder: str) -> None:
        for_me = server.create(ADMIN, of=holder)["metadata"]["id"]
        by_me = server.create(holder)["metadata"]["id"]
        by_actor = server.tokens(holder, [{"field": "actorUrn", "value": holder}])
        by_owner = server.tokens(holder, [{"field": "ownerUrn", "value": holder}])
        assert {entry["id"] for entry in by_actor["tokens"]} == {for_me, by_me}
        assert [entry["id"] for entry in by_owner["tokens"]] == [by_me]

    @pytest.mark.parametrize(
        "change",
        [{"negated": True}, {"condition": "START_WITH"}, {"condition": "CONTAIN"}, {"condition": "IEQUAL"},
         {"values": [ADMIN]}, {"value": None, "condition": "EXISTS"}, {"value": ADMIN}, {"field": "name"}],
        ids=str,
    )  # fmt: skip
    def test_other_filters_than_own_tokens_are_denied(
        self, server: Server, holder: str, change: dict[str, Any]
    ) -> None:
        server.create(ADMIN)
        with pytest.raises(GraphQLRefused) as refusal:
            server.tokens(holder, [{"field": "actorUrn", "value": holder, **change}])
        assert refusal.value.code == 403
        assert refusal.value.errors[0]["extensions"]["privilege"] == MANAGE_ALL
        wide = {"field": "actorUrn", "condition": "EXISTS"}
        assert server.tokens(holder, [{"field": "actorUrn", "value": holder}, wide])["total"] == 0


EFFECTIVE = """query ($input: ListAccessTokensInput) {
  listAccessTokens(input: $input) { tokens { id status effectiveStatus } } }"""
EFFECTIVE_ONE = "query ($id: String!) { getAccessToken(id: $id) { status effectiveStatus } }"
ANY = {"field": "status", "condition": "IN", "values": ["ACTIVE", "EXPIRED", "REVOKED"]}


def test_tokens_of_a_suspended_actor_have_effective_status_suspended(
    server: Server, actor: str, five_tokens: dict[str, str]
) -> None:
    other = server.create(ADMIN)["metadata"]["id"]
    wanted = {
        "filters": [{"field": "id", "values": [*five_tokens.values(), other], "condition": "IN"}, ANY],
        "count": 10,
    }

    def shown() -> dict[str, tuple[str, str]]:
        rows = server.ask(EFFECTIVE, {"input": wanted}, actor=ADMIN)["listAccessTokens"]["tokens"]
        return {row["id"]: (row["status"], row["effectiveStatus"]) for row in rows}

    before = shown()
    assert all(status == effective for status, effective in before.values())
    assert {status for status, _ in before.values()} == {"ACTIVE", "EXPIRED", "REVOKED"}
    server.set_status(actor, "SUSPENDED")
    after = {i: (s, "SUSPENDED" if s == "ACTIVE" and i != other else s) for i, (s, _) in before.items()}
    assert shown() == after
    for token_id, (status, effective) in after.items():
        one = server.ask(EFFECTIVE_ONE, {"id": token_id}, actor=ADMIN)["getAccessToken"]
        assert one == {"status": status, "effectiveStatus": effective}
    server.set_status(actor, "ACTIVE")
    assert shown() == before


class TestRevocation:
    def test_revoking_the_token_of_another_actor_is_the_404_of_an_unknown_id(self, server: Server, holder: str) -> None:
        others = server.create(ADMIN)["metadata"]["id"]
        answers = [server.post(REVOKE, {"id": one}, actor=holder).json() for one in (others, "A" * 43 + "=")]
        assert answers[0] == answers[1]
        assert answers[0]["data"] == {"revokeAccessToken": None}
        assert answers[0]["errors"][0]["extensions"] == {
            "code": 404, "type": "NOT_FOUND", "reason": "token_not_found",
        }  # fmt: skip
        server.revoke(others)
        assert server.post(REVOKE, {"id": others}, actor=holder).json() == answers[0]

    def test_revoke_is_allowed_for_creator_actor_and_manage_all(self, server: Server, holder: str) -> None:
        by_me, for_me, mine = server.create(holder), server.create(ADMIN, of=holder), server.create(holder)
        assert server.revoke(by_me["metadata"]["id"], actor=holder)
        assert server.revoke(for_me["metadata"]["id"], actor=holder)
        assert server.revoke("urn:li:serviceAccessToken:" + mine["metadata"]["id"], actor=ADMIN)
        assert [server.verify(one["accessToken"]).status_code for one in (by_me, for_me, mine)] == [401] * 3

    def test_second_revocation_is_a_conflict_with_the_time(self, server: Server, holder: str) -> None:
        made = server.create(holder)["metadata"]["id"]
        before = int(time.time() * 1000)
        server.revoke(made, actor=holder)
        for who in (holder, ADMIN):
            with pytest.raises(GraphQLRefused) as refusal:
                server.revoke(made, actor=who)
            kind = refusal.value.errors[0]["extensions"]
            assert (kind["code"], kind["type"], kind["reason"]) == (409, "CONFLICT", "already_revoked")
            assert before <= kind["revokedAt"] <= int(time.time() * 1000)

    def test_token_can_revoke_itself(self, server: Server, holder: str) -> None:
        made = server.create(holder)
        assert server.revoke(made["metadata"]["id"], token=made["accessToken"])
        assert server.post("{ me { corpUser { urn } } }", token=made["accessToken"]).status_code == 401


class TestEdit:
    def test_name_and_description_are_edited_by_creator_actor_and_manage_all(self, server: Server, holder: str) -> None:
        made = server.create(ADMIN, of=holder, name="old", description="first")["metadata"]["id"]

        def edit(who: str, **wanted: Any) -> tuple[str, str | None]:
            shown = server.ask(EDIT, {"id": made, "input": wanted}, actor=who)["updateAccessToken"]
            assert shown["id"] == made
            return shown["name"], shown["description"]

        assert edit(holder, name="reports") == ("reports", "first")
        assert edit(ADMIN, description="nightly", name=None) == ("reports", "nightly")
        assert edit(ADMIN, description="") == ("reports", None)
        assert edit(ADMIN, name="reports") == ("reports", None)
        assert names(server, holder) == ["reports"]
        found = server.ask(UPDATES, {"input": {"targets": [made], "actions": ["token.updated"]}}, actor=ADMIN)
        told = [event["detail"] for event in found["listEvents"]["events"]]
        assert [detail["fields"] for detail in told] == [["description"], ["description"], ["name"]]
        assert (told[-1]["oldName"], told[-1]["name"]) == ("old", "reports")

    def test_wrong_edits_are_rejected(self, server: Server, holder: str, actor: str) -> None:
        mine, others = server.create(holder)["metadata"]["id"], server.create(ADMIN)["metadata"]["id"]
        wrong: list[tuple[str, str, dict[str, Any], int, str]] = [
            (holder, mine, {"name": ""}, 400, "invalid_field"),
            (holder, mine, {"name": "x" * 201}, 400, "invalid_field"),
            (holder, mine, {"description": "x" * 1001}, 400, "invalid_field"),
            (holder, mine, {}, 400, "invalid_field"),
            (holder, "nonsense", {"name": "x"}, 400, "invalid_field"),
            (holder, others, {"name": "x"}, 404, "token_not_found"),
            (holder, "A" * 43 + "=", {"name": "x"}, 404, "token_not_found"),
            (f"{actor}-guest", mine, {"name": "x"}, 403, "missing_privilege"),
        ]
        for who, token_id, wanted, code, reason in wrong:
            with pytest.raises(GraphQLRefused) as refusal:
                server.ask(EDIT, {"id": token_id, "input": wanted}, actor=who)
            assert (refusal.value.code, refusal.value.reason) == (code, reason), wanted
            if code == 404:
                assert refusal.value.errors[0]["message"] == "There is no token with this id that you may change."
        server.revoke(mine)
        with pytest.raises(GraphQLRefused) as refusal:
            server.ask(EDIT, {"id": mine, "input": {"name": "x"}}, actor=holder)
        assert (refusal.value.code, refusal.value.reason) == (409, "already_revoked")


class TestLookupByToken:
    def test_lookup_is_allowed_for_creator_actor_and_manage_all(self, server: Server, holder: str) -> None:
        made = server.create(ADMIN, of=holder)
        for who in (holder, ADMIN):
            found = server.ask(FIND, {"token": made["accessToken"]}, actor=who)["getAccessTokenMetadata"]
            assert (found["id"], found["ownerUrn"], found["status"]) == (made["metadata"]["id"], ADMIN, "ACTIVE")
        server.revoke(made["metadata"]["id"])
        assert (
            server.ask(FIND, {"token": made["accessToken"]}, actor=ADMIN)["getAccessTokenMetadata"]["status"]
            == "REVOKED"
        )

    def test_lookup_of_another_token_is_the_404_of_an_unknown_one(self, server: Server, holder: str) -> None:
        others = server.create(ADMIN)["accessToken"]
        answers = [server.post(FIND, {"token": one}, actor=holder).json() for one in (others, others[:-1], "")]
        assert answers[0] == answers[1] == answers[2]
        assert answers[0]["errors"][0]["extensions"]["code"] == 404


class TestLookupById:
    def test_lookup_of_a_revoked_token_is_allowed_for_creator_actor_and_manage_all(
        self, server: Server, holder: str
    ) -> None:
        made = server.create(ADMIN, of=holder)["metadata"]["id"]
        for status in ("ACTIVE", "REVOKED"):
            for who in (holder, ADMIN):
                for name in (made, f"urn:li:serviceAccessToken:{made}"):
                    found = server.ask(GET, {"id": name}, actor=who)["getAccessToken"]
                    assert (found["id"], found["status"], found["actorUrn"]) == (made, status, holder)
            if status == "ACTIVE":
                server.revoke(made)

    def test_lookup_of_another_token_is_the_404_of_an_unknown_one(self, server: Server, holder: str) -> None:
        others = server.create(ADMIN)["metadata"]["id"]
        none = "A" * 43 + "="
        answers = [server.post(GET, {"id": one}, actor=holder).json() for one in (others, none)]
        assert answers[0] == answers[1]
        assert answers[0]["errors"][0]["extensions"]["reason"] == "token_not_found"

    def test_lookup_needs_the_privilege_before_validation(self, server: Server, actor: str) -> None:
        for name in ("nonsense", server.create(ADMIN, of=actor)["metadata"]["id"]):
            with pytest.raises(GraphQLRefused) as refusal:
                server.ask(GET, {"id": name}, actor=actor)
            assert refusal.value.code == 403


def test_token_claims_match_the_record(server: Server, holder: str) -> None:
    made = server.create(holder)
    claims = jwt.decode(made["accessToken"], options={"verify_signature": False})
    keys = jwt.PyJWKSet.from_dict(server.http.get("/.well-known/jwks.json").json())
    key = keys[jwt.get_unverified_header(made["accessToken"])["kid"]]
    assert jwt.decode(made["accessToken"], key, ["EdDSA"], audience=claims["aud"], issuer=server.url) == claims
    assert (claims["sub"], claims["exp"]) == (holder, made["metadata"]["expiresAt"] // 1000)
    assert len(bytes.fromhex(claims["jti"])) == 16


@pytest.mark.parametrize(
    ("iso", "seconds"), [("PT1M", 60), ("P1D", 86_400), ("P1W2DT3H4M5S", 788_645), ("P365D", 31_536_000)]
)
def test_lifetime_may_be_an_iso_duration(server: Server, holder: str, iso: str, seconds: int) -> None:
    made = server.create(holder, duration=None, durationIso=iso)["metadata"]
    assert made["expiresAt"] - made["createdAt"] == seconds * 1000


def test_name_may_have_200_characters_of_any_script(server: Server, holder: str) -> None:
    name = "名" * 199 + "😀"
    server.create(holder, name=name, description="d" * 1_000)
    assert names(server, holder) == [name]
    assert names(server, holder, {"field": "name", "value": "😀", "condition": "END_WITH"}) == [name]


def test_settings_limit_token_count_and_lifetime(make_server: MakeServer) -> None:
    server = make_server(
        env={
            "WATCHWORD_MAX_LIVE_TOKENS": "3",
            "WATCHWORD_ALLOWED_DURATIONS": "ONE_HOUR,ONE_WEEK",
            "WATCHWORD_ALLOW_NO_EXPIRY": "on",
        }
    )
    wanted = {"type": "PERSONAL", "actorUrn": ADMIN, "name": "x"}
    for given in ({"duration": "ONE_DAY"}, {"durationIso": "P8D"}):
        (error,) = server.post(CREATE, {"input": wanted | given}, actor=ADMIN).json()["errors"]
        assert error["extensions"]["code"] == 400
        assert error["extensions"]["field"] in given
    made = [server.create(ADMIN, **given) for given in ({"duration": "NO_EXPIRY"}, {"duration": "ONE_WEEK"}, {})]
    assert made[0]["metadata"]["expiresAt"] is None
    (error,) = server.post(CREATE, {"input": wanted | {"duration": "ONE_HOUR"}}, actor=ADMIN).json()["errors"]
    kind = error["extensions"]
    assert (kind["code"], kind["type"], kind["reason"]) == (429, "THROTTLED", "too_many_tokens")
    assert server.create(ADMIN, of="urn:li:corpuser:other")
    server.revoke(made[0]["metadata"]["id"])
    again = server.create(ADMIN)
    change_store(server, SET.format("expires_at"), 1_000, again["metadata"]["id"])
    assert server.create(ADMIN)["accessToken"]
    assert server.ask(LIST, {"input": None}, actor=ADMIN)["listAccessTokens"]["total"] == 5
