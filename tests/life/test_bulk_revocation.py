"""Bulk revocation: a dry run counts tokens per actor; the revocation is atomic and returns a receipt."""

import hashlib
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.life.holding import REVOKE_MANY, HeldToken, LifecycleClient, reason_of
from tests.support.clock import SetClock
from tests.support.server import ADMIN, GENERATE, MANAGE_ALL, GraphQLRefused, Server


def filter_of(actor: str) -> dict[str, Any]:
    return {"field": "actorUrn", "value": actor}


def digest(held: list[HeldToken]) -> str:
    return hashlib.sha256("".join(f"{one}\n" for one in sorted(h.id for h in held)).encode()).hexdigest()


class TestByFilter:
    def test_dry_run_is_the_default_and_revokes_nothing(self, lives: LifecycleClient) -> None:
        ann, bob = lives.new_actor(), lives.new_actor()
        held = [lives.create(ann), lives.create(ann), lives.create(bob)]
        wanted = {"filters": [{"field": "actorUrn", "values": [ann, bob]}]}
        told = lives.ask(REVOKE_MANY, {"input": wanted})["revokeAccessTokens"]
        assert (told["dryRun"], told["count"], told["digest"], told["revokedAt"]) == (True, 3, None, None)
        assert told["actors"] == [{"actorUrn": ann, "count": 2}, {"actorUrn": bob, "count": 1}]
        assert all(lives.is_accepted(one) for one in held)

    def test_filter_revokes_all_matches_with_a_receipt(self, lives: LifecycleClient) -> None:
        ann = lives.new_actor()
        held = [lives.create(ann, name=f"job {number}") for number in range(5)]
        other = lives.create(ann, name="laptop")
        job = {"field": "name", "condition": "START_WITH", "value": "job"}
        told = lives.revoke_many(filters=[filter_of(ann), job])
        assert (told["count"], told["digest"], told["actors"]) == (5, digest(held), None)
        assert {lives.record(one)["revokedAt"] for one in held} == {told["revokedAt"]}
        assert [lives.is_accepted(one) for one in [*held, other]] == [False] * 5 + [True]
        asked = "query ($of: [String!]) { listEvents(input: {targets: $of}) { events { action detail } } }"
        (event,) = lives.ask(asked, {"of": [told["digest"]]})["listEvents"]["events"]
        assert (event["action"], event["detail"]["count"]) == ("tokens.revoked", 5)

    def test_revocation_by_filter_includes_derived_tokens(self, lives: LifecycleClient) -> None:
        ann = lives.new_actor()
        parent = lives.create(ann, name="parent")
        child = lives.derive(parent.token, name="child")
        minted = lives.create(ann, token=parent.token, name="minted")
        chosen = [filter_of(ann), {"field": "name", "value": "parent"}]
        assert lives.revoke_many(dry=True, filters=chosen)["count"] == 2
        assert lives.revoke_many(dry=True, filters=chosen, cascade=True)["count"] == 3
        told = lives.revoke_many(filters=chosen, cascade=True)
        assert told["digest"] == digest([parent, child, minted])
        assert not lives.is_accepted(minted)

    def test_more_matches_than_expected_revoke_nothing(self, lives: LifecycleClient) -> None:
        ann = lives.new_actor()
        held = [lives.create(ann), lives.create(ann)]
        seen = lives.revoke_many(dry=True, filters=[filter_of(ann)])["count"]
        held.append(lives.create(ann))
        with pytest.raises(GraphQLRefused) as refusal:
            lives.revoke_many(filters=[filter_of(ann)], atMost=seen)
        assert (refusal.value.code, refusal.value.reason) == (409, "more_than_allowed_for")
        assert all(lives.is_accepted(one) for one in held)
        lives.revoke(held.pop())
        assert lives.revoke_many(filters=[filter_of(ann)], atMost=seen)["digest"] == digest(held)

    def test_negative_at_most_is_rejected(self, life: LifecycleClient) -> None:
        for dry in (True, False):
            with pytest.raises(GraphQLRefused) as refusal:
                life.revoke_many(dry=dry, filters=[filter_of(ADMIN)], atMost=-1)
            assert reason_of(refusal.value) == (400, "invalid_field", "atMost")

    def test_filter_without_matches_revokes_nothing(self, lives: LifecycleClient) -> None:
        told = lives.revoke_many(filters=[filter_of("urn:li:corpuser:nobody-at-all")])
        assert (told["count"], told["digest"]) == (0, hashlib.sha256().hexdigest())


class TestByIds:
    def test_ids_of_other_actors_are_skipped(self, lives: LifecycleClient) -> None:
        ann, bob = lives.new_actor(), lives.new_actor()
        mine, dead, his = lives.create(ann), lives.create(ann), lives.create(bob)
        lives.revoke(dead)
        ids = [mine.id, f"urn:li:serviceAccessToken:{dead.id}", his.id, "A" * 43 + "=", mine.id]
        told = lives.revoke_many(ids=ids, how={"actor": ann})
        assert (told["count"], told["digest"]) == (1, digest([mine]))
        assert (lives.is_accepted(mine), lives.is_accepted(his)) == (False, True)

    def test_invalid_or_too_many_ids_are_rejected(self, life: LifecycleClient) -> None:
        for ids, field in ((["nonsense"], "ids[0]"), (["A" * 43 + "="] * 2_001, "ids")):
            with pytest.raises(GraphQLRefused) as refusal:
                life.revoke_many(ids=ids)
            assert reason_of(refusal.value) == (400, "invalid_field", field)


class TestEverything:
    @pytest.mark.parametrize(
        "wanted",
        [{}, {"filters": []}, {"all": False}, {"filters": [{"field": "createdAt", "condition": "EXISTS"}]}],
    )
    def test_revoking_everything_needs_all(self, lives: LifecycleClient, wanted: dict[str, Any]) -> None:
        held = lives.create(ADMIN)
        for dry in (True, False):
            with pytest.raises(GraphQLRefused) as refusal:
                lives.revoke_many(dry=dry, **wanted)
            assert reason_of(refusal.value) == (400, "invalid_field", "all")
        assert lives.is_accepted(held)

    def test_selection_of_all_live_tokens_needs_all(self, make_server: Callable[..., Server], tmp_path: Path) -> None:
        clock = SetClock(tmp_path / "clock")
        life = LifecycleClient(make_server(env=clock.env))
        life.create(ADMIN)
        clock.advance(3_601)
        held = life.create(ADMIN)
        with pytest.raises(GraphQLRefused) as refusal:
            life.revoke_many(filters=[{"field": "status", "value": "ACTIVE"}])
        assert reason_of(refusal.value) == (400, "invalid_field", "all")
        assert life.revoke_many(all=True)["digest"] == digest([held])

    def test_all_revokes_and_counts_everything(self, lives: LifecycleClient) -> None:
        lives.create(ADMIN)
        alive = '{ listAccessTokens(input: {filters: [{field: "status", value: "ACTIVE"}]}) { total } }'
        total = lives.ask(alive)["listAccessTokens"]["total"]
        assert lives.revoke_many(dry=True, all=True)["count"] == total


class TestAuthorization:
    def test_revoking_own_tokens_needs_the_minimum_and_an_own_filter(self, lives: LifecycleClient) -> None:
        ann = lives.new_actor(GENERATE)
        held, by_another = lives.create(ann, actor=ann), lives.create(ann)
        assert lives.revoke_many(filters=[filter_of(ann)], how={"actor": ann})["count"] == 2
        assert not any(lives.is_accepted(one) for one in (held, by_another))

    @pytest.mark.parametrize(
        "filters",
        [
            [{"field": "name", "value": "test"}],
            [{"field": "actorUrn", "value": ADMIN}],
            [{"field": "actorUrn", "value": "SELF", "negated": True}],
            [{"field": "actorUrn", "value": "SELF", "condition": "CONTAIN"}],
        ],
    )
    def test_revoking_others_tokens_needs_manage_all(
        self, lives: LifecycleClient, filters: list[dict[str, Any]]
    ) -> None:
        ann = lives.new_actor(GENERATE)
        wanted = [{**one, "value": ann if one["value"] == "SELF" else one["value"]} for one in filters]
        for dry in (True, False):
            with pytest.raises(GraphQLRefused) as refusal:
                lives.revoke_many(dry=dry, filters=wanted, how={"actor": ann})
            assert refusal.value.errors[0]["extensions"]["privilege"] == MANAGE_ALL
        with pytest.raises(GraphQLRefused) as refusal:
            lives.revoke_many(all=True, how={"actor": ann})
        assert refusal.value.errors[0]["extensions"]["privilege"] == MANAGE_ALL

    def test_bulk_revocation_checks_the_privilege_first(self, life: LifecycleClient) -> None:
        with pytest.raises(GraphQLRefused) as refusal:
            life.revoke_many(ids=["nonsense"], how={"actor": "urn:li:corpuser:nobody-here"})
        assert refusal.value.reason == "missing_privilege"
