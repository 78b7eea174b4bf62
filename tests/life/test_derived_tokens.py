"""Derived and minted tokens: derived ones are revoked with their parent, minted ones by a cascade."""

from functools import partial
from typing import Any

import pytest

from tests.life.holding import GET, HeldToken, LifecycleClient, reason_of
from tests.support.server import ADMIN, GENERATE, MANAGE_ALL, GraphQLRefused

FIND = "query ($token: String!) { getAccessTokenMetadata(token: $token) { createdWith parentId } }"
LIST = """query ($input: ListAccessTokensInput) { listAccessTokens(input: $input) {
  tokens { createdWith parentId } } }"""
EVENTS = "query ($of: [String!]) { listEvents(input: {targets: $of}) { events { action actorUrn tokenId detail } } }"


def derived_chain(life: LifecycleClient, of: str, length: int = 3) -> list[HeldToken]:
    """A token, one derived from it, one derived from that, and so on."""
    held = [life.create(of)]
    while len(held) < length:
        held.append(life.derive(held[-1].token))
    return held


class TestDerivedToken:
    def test_derived_token_acts_as_the_same_actor_and_names_its_parent(self, lives: LifecycleClient) -> None:
        ann = lives.new_actor()
        parent = lives.create(ann)
        child = lives.derive(parent.token, name="for a job", description="one night")
        assert (child["actorUrn"], child["ownerUrn"], child["parentId"], child["createdWith"]) == (
            ann,
            ann,
            parent.id,
            parent.id,
        )
        assert child["expiresAt"] == parent["expiresAt"]
        assert lives.auth(child).headers["x-auth-urn"] == ann

    def test_ids_of_makers_are_hidden_from_callers_who_may_not_see_them(self, lives: LifecycleClient) -> None:
        ann = lives.new_actor()
        maker = lives.create(ADMIN)
        derived = lives.derive(maker.token)
        for made_with, parent in ((maker, None), (derived, derived.id)):
            held = lives.create(ann, token=made_with.token)
            assert (held["createdWith"], held["parentId"]) == (made_with.id, parent)
            own = {"filters": [{"field": "actorUrn", "value": ann}], "count": 1000}
            for how in ({"token": held.token}, {"actor": ann}):
                shown = [
                    lives.ask(GET, {"id": held.id}, **how)["getAccessToken"],
                    lives.ask(FIND, {"token": held.token}, **how)["getAccessTokenMetadata"],
                    *lives.ask(LIST, {"input": own}, **how)["listAccessTokens"]["tokens"],
                ]
                assert all((one["createdWith"], one["parentId"]) == (None, None) for one in shown)
            assert (lives.record(held)["createdWith"], lives.record(held)["parentId"]) == (made_with.id, parent)
            child = lives.derive(held.token)
            mine = lives.ask(GET, {"id": child.id}, token=held.token)["getAccessToken"]
            assert (mine["createdWith"], mine["parentId"]) == (held.id, held.id)
            lives.revoke(child)
            assert lives.ask(GET, {"id": child.id}, actor=ann)["getAccessToken"]["createdWith"] == held.id
            assert lives.rotate(held)["parentId"] is None
            lives.revoke(held)

    def test_maker_filters_reveal_no_invisible_tokens(self, lives: LifecycleClient) -> None:
        ann, manager = lives.new_actor(), lives.new_actor(MANAGE_ALL)
        maker = lives.derive(lives.create(ADMIN).token)
        held = lives.create(ann, token=maker.token)
        child = lives.derive(held.token)
        own = {"field": "actorUrn", "value": ann}

        def found(by: dict[str, Any], actor: str) -> list[int]:
            filters = [own, by]
            listed = lives.ask(LIST, {"input": {"filters": filters}}, actor=actor)["listAccessTokens"]["tokens"]
            return [len(listed), lives.revoke_many(dry=True, filters=filters, how={"actor": actor})["count"]]

        for field in ("createdWith", "parentId"):
            hidden: list[dict[str, Any]] = [
                {"field": field, "value": maker.id},
                {"field": field, "value": "nothing"},
                {"field": field, "condition": "IN", "values": [held.id, maker.id]},
                {"field": field, "value": held.id, "negated": True},
                {"field": field, "condition": "EXISTS"},
                {"field": field, "condition": "EXISTS", "negated": True},
            ]
            refusals = set()
            for by in hidden:
                for ask in (
                    partial(lives.ask, LIST, {"input": {"filters": [own, by]}}, actor=ann),
                    partial(lives.ask, LIST, {"input": {"filters": [own, by]}}, token=held.token),
                    partial(lives.revoke_many, dry=True, filters=[own, by], how={"actor": ann}),
                    partial(lives.revoke_many, filters=[own, by], how={"actor": ann}),
                    partial(lives.revoke_many, ids=[held.id], filters=[by], how={"actor": ann}),
                ):
                    with pytest.raises(GraphQLRefused) as refusal:
                        ask()
                    refusals.add((reason_of(refusal.value)[:2], refusal.value.errors[0]["message"]))
            assert len(refusals) == 1
            ((told, message),) = refusals
            assert told == (403, "missing_privilege")
            assert "Manage All Access Tokens" in message
            assert found({"field": field, "value": held.id}, ann) == [1, 1]
            assert found({"field": field, "condition": "IN", "values": [held.id, child.id]}, ann) == [1, 1]
            assert [found(by, manager)[0] for by in hidden] == [1, 0, 2, 1, 2, 0]
        assert lives.is_accepted(held)
        assert lives.is_accepted(child)

    def test_derived_token_is_revoked_with_any_ancestor(self, lives: LifecycleClient) -> None:
        for ended in range(3):
            family = derived_chain(lives, lives.new_actor())
            lives.revoke(family[ended])
            assert [lives.is_accepted(held) for held in family] == [number < ended for number in range(3)]
            ends = {lives.record(held)["revokedAt"] for held in family[ended:]}
            assert len(ends) == 1

    def test_derived_token_revoked_with_its_parent_has_an_event(self, lives: LifecycleClient) -> None:
        parent, child = derived_chain(lives, lives.new_actor(), 2)
        lives.revoke(parent)
        (ended, made) = lives.ask(EVENTS, {"of": [child.id]})["listEvents"]["events"]
        assert (made["action"], made["detail"]["parent"]) == ("token.derived", parent.id)
        assert (ended["action"], ended["detail"]["with"]) == ("token.revoked", parent.id)

    def test_revoking_a_derived_token_does_not_affect_its_parent(self, lives: LifecycleClient) -> None:
        parent, child = derived_chain(lives, lives.new_actor(), 2)
        lives.revoke(child)
        assert (lives.is_accepted(parent), lives.is_accepted(child)) == (True, False)

    def test_deriving_needs_the_minimum_privilege_and_a_bearer(self, lives: LifecycleClient) -> None:
        bare = lives.create(ADMIN, scopes=["deploy"])
        with pytest.raises(GraphQLRefused) as refusal:
            lives.derive(bare.token, scopes=["NO_SUCH_THING"])
        assert (refusal.value.code, refusal.value.reason) == (403, "missing_privilege")
        with pytest.raises(GraphQLRefused) as refusal:
            lives.ask('mutation { deriveAccessToken(input: {name: "x"}) { accessToken } }', actor=ADMIN)
        assert reason_of(refusal.value) == (400, "invalid_field", "Authorization")

    @pytest.mark.parametrize("wanted", [{"duration": "ONE_DAY"}, {"durationIso": "PT1H1M"}])
    def test_derived_token_cannot_outlive_its_parent(self, life: LifecycleClient, wanted: dict[str, str]) -> None:
        parent = life.create(ADMIN)
        with pytest.raises(GraphQLRefused) as refusal:
            life.derive(parent.token, **wanted)
        assert reason_of(refusal.value) == (400, "wider_than_maker", next(iter(wanted)))

    @pytest.mark.parametrize(
        ("field", "has", "wanted"),
        [
            ("scopes", [GENERATE, "deploy"], ["deploy", "write"]),
            ("scopes", [GENERATE], [MANAGE_ALL]),
            ("scopes", [GENERATE, "orders:*"], ["orders:read", "orders"]),
            ("scopes", [GENERATE, "*"], [MANAGE_ALL]),
            ("audience", ["https://a.example"], ["https://b.example"]),
            ("allowedNetworks", ["127.0.0.0/24"], ["127.0.0.0/16"]),
            ("allowedNetworks", ["127.0.0.0/8"], ["::/0"]),
        ],
    )
    def test_derived_token_cannot_be_wider_than_its_parent(
        self, life: LifecycleClient, field: str, has: list[str], wanted: list[str]
    ) -> None:
        limits: dict[str, Any] = {field: [*has, life.server.url] if field == "audience" else has}
        asked: dict[str, Any] = {field: wanted}
        parent = life.create(ADMIN, **limits)
        with pytest.raises(GraphQLRefused) as refusal:
            life.derive(parent.token, **asked)
        assert reason_of(refusal.value) == (400, "wider_than_maker", field)
        with pytest.raises(GraphQLRefused) as refusal:
            life.create(ADMIN, token=parent.token, **asked)
        assert reason_of(refusal.value) == (400, "wider_than_maker", field)

    def test_tokens_created_with_a_derived_token_do_not_outlive_its_parent(self, lives: LifecycleClient) -> None:
        parent, child = derived_chain(lives, lives.new_actor(), 2)
        made = lives.create(child["actorUrn"], token=child.token, duration="ONE_YEAR")
        assert (made["parentId"], made["expiresAt"]) == (child.id, child["expiresAt"])
        lives.revoke(parent)
        assert not lives.is_accepted(made)


class TestTokenMintedByALimitedToken:
    def test_minted_token_inherits_limits_and_expiry(self, lives: LifecycleClient) -> None:
        ann = lives.new_actor(GENERATE, "deploy")
        maker = lives.create(ann, scopes=[GENERATE, "deploy"], allowedNetworks=["127.0.0.0/8"])
        made = lives.create(ann, token=maker.token, duration="ONE_YEAR")
        assert (made["scopes"], made["allowedNetworks"]) == (maker["scopes"], maker["allowedNetworks"])
        assert (made["expiresAt"], made["createdWith"], made["parentId"]) == (maker["expiresAt"], maker.id, None)

    def test_minted_token_does_not_outlive_its_maker_after_rotation(self, lives: LifecycleClient) -> None:
        ann = lives.new_actor()
        maker = lives.create(ann, scopes=[GENERATE], durationIso="PT10M")
        made = lives.create(ann, token=maker.token, duration="ONE_YEAR")
        for _ in range(2):
            made = lives.rotate(made, grace="PT0S")
            assert lives.is_accepted(made)
            assert lives.record(made)["expiresAt"] <= maker["expiresAt"]

    def test_limited_token_cannot_see_tokens_made_for_others(self, lives: LifecycleClient) -> None:
        mona, ann = lives.new_actor(MANAGE_ALL), lives.new_actor()
        for_ann = lives.create(ann, actor=mona)
        limited = lives.create(mona, scopes=[GENERATE])
        for ask in (
            lambda: lives.revoke(for_ann, token=limited.token),
            lambda: lives.ask(GET, {"id": for_ann.id}, token=limited.token),
        ):
            with pytest.raises(GraphQLRefused) as refusal:
                ask()
            assert refusal.value.reason == "token_not_found"
        owned = [{"field": "ownerUrn", "value": mona}]
        with pytest.raises(GraphQLRefused) as refusal:
            lives.revoke_many(filters=owned, how={"token": limited.token})
        assert refusal.value.reason == "missing_privilege"
        assert lives.revoke_many(ids=[for_ann.id], how={"token": limited.token})["count"] == 0
        assert lives.is_accepted(for_ann)

    def test_minted_token_can_be_narrower(self, life: LifecycleClient) -> None:
        maker = life.create(ADMIN, scopes=[GENERATE, "deploy", "orders:*"])
        for narrower in (["deploy"], ["orders:*"], ["orders:eu:*", "orders:read"]):
            assert life.create(ADMIN, token=maker.token, scopes=narrower)["scopes"] == narrower

    def test_limited_token_cannot_rotate_a_wider_one(self, lives: LifecycleClient) -> None:
        ann = lives.new_actor()
        whole, limited = lives.create(ann), lives.create(ann, scopes=[GENERATE])
        with pytest.raises(GraphQLRefused) as refusal:
            lives.rotate(whole, token=limited.token)
        assert reason_of(refusal.value) == (400, "wider_than_maker", "tokenId")
        assert lives.rotate(limited)["scopes"] == [GENERATE]


class TestCascade:
    def test_cascade_revokes_minted_tokens_recursively(self, lives: LifecycleClient) -> None:
        ann = lives.new_actor()
        first = lives.create(ann)
        second = lives.create(ann, token=first.token)
        third = lives.create(ann, token=second.token)
        child = lives.derive(third.token)
        other = lives.create(ann)
        lives.revoke(first, cascade=True)
        assert [lives.is_accepted(held) for held in (first, second, third, child, other)] == [False] * 4 + [True]

    def test_cascade_passes_through_revoked_tokens(self, lives: LifecycleClient) -> None:
        ann = lives.new_actor()
        first = lives.create(ann)
        second = lives.create(ann, token=first.token)
        third = lives.create(ann, token=second.token)
        lives.revoke(second)
        assert lives.is_accepted(third)
        lives.revoke(first, cascade=True)
        assert not lives.is_accepted(third)

    def test_cascade_can_start_at_a_revoked_token(self, lives: LifecycleClient) -> None:
        ann = lives.new_actor()
        stolen = [lives.create(ann) for _ in range(2)]
        hidden = [lives.create(ann, token=held.token) for held in stolen]
        for held in stolen:
            lives.revoke(held)
        assert all(lives.is_accepted(held) for held in hidden)
        lives.revoke(stolen[0], cascade=True)
        assert lives.revoke_many(ids=[stolen[1].id], cascade=True)["count"] == 1
        assert not any(lives.is_accepted(held) for held in hidden)
        with pytest.raises(GraphQLRefused) as refusal:
            lives.revoke(stolen[0], cascade=True)
        assert refusal.value.reason == "already_revoked"

    def test_plain_revocation_does_not_cascade(self, lives: LifecycleClient) -> None:
        ann = lives.new_actor()
        first = lives.create(ann)
        second = lives.create(ann, token=first.token)
        lives.revoke(first)
        assert lives.is_accepted(second)
