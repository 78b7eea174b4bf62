"""Service accounts: create, list, suspend and delete; invisible to callers without the privilege."""

import uuid
from typing import Any

import pytest

from tests.life.holding import (
    CREATE_ACCOUNT,
    DELETE_ACCOUNT,
    GET,
    GET_ACCOUNT,
    LIST_ACCOUNTS,
    HeldToken,
    LifecycleClient,
    reason_of,
)
from tests.support.server import ADMIN, GENERATE, MANAGE_ALL, SET_STATUS, GraphQLRefused

MANAGE = "MANAGE_SERVICE_ACCOUNTS"


def token_of(life: LifecycleClient, account: str, **wanted: Any) -> HeldToken:
    return life.create(account, type="SERVICE_ACCOUNT", **wanted)


def nonexistent_urn() -> str:
    return f"urn:li:corpuser:service_{uuid.uuid4()}"


class TestAccount:
    def test_account_is_created_listed_and_found(self, lives: LifecycleClient) -> None:
        name = f"nightly {uuid.uuid4().hex}"
        made = lives.ask(CREATE_ACCOUNT, {"input": {"displayName": name, "description": "d"}})["createServiceAccount"]
        uuid.UUID(made["urn"].removeprefix("urn:li:corpuser:service_"))
        assert made["name"] == made["urn"].rpartition(":")[2]
        assert (made["displayName"], made["description"], made["createdBy"], made["status"], made["type"]) == (
            name,
            "d",
            ADMIN,
            "ACTIVE",
            "CORP_USER",
        )
        assert lives.ask(GET_ACCOUNT, {"urn": made["urn"]})["getServiceAccount"] == made
        for query in (name.upper()[:12] + name[12:], made["urn"]):
            page = lives.ask(LIST_ACCOUNTS, {"input": {"query": query}})["listServiceAccounts"]
            assert (page["total"], page["serviceAccounts"]) == (1, [made])

    def test_accounts_are_paged_by_name(self, lives: LifecycleClient) -> None:
        tag = uuid.uuid4().hex
        made = [lives.new_account(f"{tag} {letter}") for letter in "cab"]
        asked = {"input": {"query": tag, "start": 1, "count": 1}}
        page = lives.ask(LIST_ACCOUNTS, asked)["listServiceAccounts"]
        assert (page["start"], page["count"], page["total"]) == (1, 1, 3)
        assert page["serviceAccounts"] == [made[2]]

    def test_account_acts_with_its_token(self, lives: LifecycleClient) -> None:
        account = lives.new_account()["urn"]
        held = token_of(lives, account)
        assert (held["tokenType"], held["actorUrn"], held["ownerUrn"]) == ("SERVICE_ACCOUNT", account, ADMIN)
        assert lives.auth(held).headers["x-auth-urn"] == account
        with pytest.raises(GraphQLRefused) as refusal:
            lives.create(account, token=held.token, type="SERVICE_ACCOUNT")
        assert refusal.value.reason == "missing_privilege"

    def test_account_is_suspended_and_resumed(self, lives: LifecycleClient) -> None:
        account = lives.new_account()["urn"]
        held = token_of(lives, account)
        lives.ask(SET_STATUS, {"urn": account, "status": "SUSPENDED"})
        assert not lives.is_accepted(held)
        assert lives.ask(GET_ACCOUNT, {"urn": account})["getServiceAccount"]["status"] == "SUSPENDED"
        with pytest.raises(GraphQLRefused) as refusal:
            token_of(lives, account)
        assert refusal.value.reason == "actor_suspended"
        lives.ask(SET_STATUS, {"urn": account, "status": "ACTIVE"})
        assert lives.is_accepted(held)


class TestDeletedAccount:
    def test_deleting_an_account_revokes_its_tokens_immediately(self, lives: LifecycleClient) -> None:
        account = lives.new_account()["urn"]
        held = [token_of(lives, account) for _ in range(3)]
        assert lives.ask(DELETE_ACCOUNT, {"urn": account}) == {"deleteServiceAccount": True}
        assert not any(lives.is_accepted(one) for one in held)
        ends = {(lives.record(one)["status"], lives.record(one)["revokedAt"]) for one in held}
        assert len(ends) == 1
        assert ends.pop()[0] == "REVOKED"
        listed = lives.ask(
            'query ($of: String!) { listAccessTokens(input: {filters: [{field: "actorUrn", value: $of}]}) { total } }',
            {"of": account},
        )
        assert listed["listAccessTokens"]["total"] == 0

    def test_deleted_account_cannot_be_used_again(self, lives: LifecycleClient) -> None:
        account = lives.new_account()["urn"]
        lives.ask(DELETE_ACCOUNT, {"urn": account})
        for ask in (
            lambda: lives.ask(GET_ACCOUNT, {"urn": account}),
            lambda: lives.ask(DELETE_ACCOUNT, {"urn": account}),
            lambda: token_of(lives, account),
        ):
            with pytest.raises(GraphQLRefused) as refusal:
                ask()
            assert (refusal.value.code, refusal.value.reason) == (404, "account_not_found")
        with pytest.raises(GraphQLRefused) as refusal:
            lives.ask(SET_STATUS, {"urn": account, "status": "ACTIVE"})
        assert (refusal.value.code, refusal.value.reason) == (409, "not_editable")
        assert lives.server.post("{ me { corpUser { urn } } }", actor=account).status_code == 401


class TestUnprivilegedCaller:
    @pytest.mark.parametrize("privileges", [(GENERATE,), (MANAGE_ALL,)])
    def test_unprivileged_callers_get_the_same_error_for_existing_and_unknown_accounts(
        self, lives: LifecycleClient, privileges: tuple[str, ...]
    ) -> None:
        stranger = lives.new_actor(*privileges)
        answers = []
        for account in (lives.new_account()["urn"], nonexistent_urn()):
            told = []
            for query, variables in (
                (GET_ACCOUNT, {"urn": account}),
                (DELETE_ACCOUNT, {"urn": account}),
                (LIST_ACCOUNTS, {"input": {"query": account}}),
            ):
                told.append(lives.server.post(query, variables, actor=stranger).json()["errors"])
            for kind in ("SERVICE_ACCOUNT", "PERSONAL"):
                with pytest.raises(GraphQLRefused) as refusal:
                    lives.create(account, type=kind, actor=stranger)
                told.append(refusal.value.errors)
            assert {error[0]["extensions"]["privilege"] for error in told} == {MANAGE}
            answers.append(str(told).replace(account, "URN"))
        assert answers[0] == answers[1]

    def test_unprivileged_caller_cannot_create_an_account(self, lives: LifecycleClient) -> None:
        with pytest.raises(GraphQLRefused) as refusal:
            lives.ask(CREATE_ACCOUNT, {"input": {"displayName": ""}}, actor=lives.new_actor(MANAGE_ALL))
        assert refusal.value.reason == "missing_privilege"


class TestAccountManager:
    def test_account_manager_manages_only_tokens_of_accounts(self, lives: LifecycleClient) -> None:
        keeper, ann = lives.new_actor(MANAGE), lives.new_actor()
        account = lives.new_account(actor=keeper)["urn"]
        held, hers = token_of(lives, account, actor=keeper), lives.create(ann)
        by_admin = token_of(lives, account)
        listing = (
            "query ($filters: [FacetFilterInput!]) { listAccessTokens(input: {filters: $filters}) { tokens { id } } }"
        )
        found = lives.ask(listing, {"filters": [{"field": "actorUrn", "value": account}]}, actor=keeper)
        assert {token["id"] for token in found["listAccessTokens"]["tokens"]} == {held.id, by_admin.id}
        every = lives.ask(listing, {"filters": [{"field": "tokenType", "value": "SERVICE_ACCOUNT"}]}, actor=keeper)
        assert {held.id, by_admin.id} <= {token["id"] for token in every["listAccessTokens"]["tokens"]}
        for filters in ([], [{"field": "actorUrn", "value": ann}], [{"field": "actorUrn", "value": keeper}]):
            with pytest.raises(GraphQLRefused) as refusal:
                lives.ask(listing, {"filters": filters}, actor=keeper)
            assert refusal.value.code == 403
        lives.revoke(by_admin, actor=keeper)
        with pytest.raises(GraphQLRefused) as refusal:
            lives.revoke(hers, actor=keeper)
        assert refusal.value.reason == "token_not_found"
        assert (lives.is_accepted(held), lives.is_accepted(by_admin), lives.is_accepted(hers)) == (True, False, True)

    def test_account_manager_needs_the_minimum_privilege_for_own_tokens(self, lives: LifecycleClient) -> None:
        keeper = lives.new_actor(GENERATE, MANAGE)
        mine, limited = lives.create(keeper), lives.create(keeper, scopes=[MANAGE])
        for ask in (
            lambda: lives.ask(GET, {"id": mine.id}, token=limited.token),
            lambda: lives.revoke(mine, token=limited.token),
        ):
            with pytest.raises(GraphQLRefused) as refusal:
                ask()
            assert refusal.value.reason == "token_not_found"
        with pytest.raises(GraphQLRefused) as refusal:
            lives.revoke_many(how={"token": limited.token}, filters=[{"field": "actorUrn", "value": keeper}])
        assert refusal.value.errors[0]["extensions"]["privilege"] == GENERATE
        assert lives.revoke_many(how={"token": limited.token}, ids=[mine.id])["count"] == 0

    @pytest.mark.parametrize(
        ("account", "kind", "field"),
        [(True, "PERSONAL", "type"), (False, "SERVICE_ACCOUNT", "type")],
    )
    def test_error_states_the_token_type_for_the_urn(
        self, life: LifecycleClient, account: bool, kind: str, field: str
    ) -> None:
        urn = life.new_account()["urn"] if account else life.new_actor()
        with pytest.raises(GraphQLRefused) as refusal:
            life.create(urn, type=kind)
        assert reason_of(refusal.value) == (400, "invalid_field", field)

    def test_unknown_account_is_not_found(self, lives: LifecycleClient) -> None:
        for ask in (
            lambda: token_of(lives, nonexistent_urn()),
            lambda: lives.ask(GET_ACCOUNT, {"urn": nonexistent_urn()}),
        ):
            with pytest.raises(GraphQLRefused) as refusal:
                ask()
            assert refusal.value.reason == "account_not_found"

    @pytest.mark.parametrize("urn", ["", "urn:li:corpuser:ann", "urn:li:corpuser:service_A", "service_" + "0" * 36])
    def test_error_states_the_form_of_an_account_urn(self, life: LifecycleClient, urn: str) -> None:
        for query in (GET_ACCOUNT, DELETE_ACCOUNT):
            with pytest.raises(GraphQLRefused) as refusal:
                life.ask(query, {"urn": urn})
            assert reason_of(refusal.value) == (400, "invalid_field", "urn")
