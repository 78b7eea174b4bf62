"""Ending many tokens at once: first it is told how many and whose, then all are dead in one moment, with a receipt."""

import hashlib
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.life.holding import REVOKE_MANY, Held, Life, reason_of
from tests.support.clock import SetClock
from tests.support.server import ADMIN, GENERATE, MANAGE_ALL, GraphQLRefused, Server


def of(actor: str) -> dict[str, Any]:
    return {"field": "actorUrn", "value": actor}


def digest(held: list[Held]) -> str:
    return hashlib.sha256("".join(f"{one}\n" for one in sorted(h.id for h in held)).encode()).hexdigest()


class TestByFilter:
    def test_a_dry_run_is_what_comes_first_and_ends_nothing(self, lives: Life) -> None:
        ann, bob = lives.new_actor(), lives.new_actor()
        held = [lives.create(ann), lives.create(ann), lives.create(bob)]
        wanted = {"filters": [{"field": "actorUrn", "values": [ann, bob]}]}
        told = lives.ask(REVOKE_MANY, {"input": wanted})["revokeAccessTokens"]
        assert (told["dryRun"], told["count"], told["digest"], told["revokedAt"]) == (True, 3, None, None)
        assert told["actors"] == [{"actorUrn": ann, "count": 2}, {"actorUrn": bob, "count": 1}]
        assert all(lives.lives(one) for one in held)

    def test_ends_all_that_match_in_one_moment_with_a_receipt(self, lives: Life) -> None:
        ann = lives.new_actor()
        held = [lives.create(ann, name=f"job {number}") for number in range(5)]
        other = lives.create(ann, name="laptop")
        job = {"field": "name", "condition": "START_WITH", "value": "job"}
        told = lives.revoke_many(filters=[of(ann), job])
        assert (told["count"], told["digest"], told["actors"]) == (5, digest(held), None)
        assert {lives.record(one)["revokedAt"] for one in held} == {told["revokedAt"]}
        assert [lives.lives(one) for one in [*held, other]] == [False] * 5 + [True]
        asked = "query ($of: [String!]) { listEvents(input: {targets: $of}) { events { action detail } } }"
        (event,) = lives.ask(asked, {"of": [told["digest"]]})["listEvents"]["events"]
        assert (event["action"], event["detail"]["count"]) == ("tokens.revoked", 5)

    def test_revocation_by_filter_includes_derived_tokens(self, lives: Life) -> None:
        ann = lives.new_actor()
        parent = lives.create(ann, name="parent")
        child = lives.derive(parent.token, name="child")
        minted = lives.create(ann, token=parent.token, name="minted")
        chosen = [of(ann), {"field": "name", "value": "parent"}]
        assert lives.revoke_many(dry=True, filters=chosen)["count"] == 2
        assert lives.revoke_many(dry=True, filters=chosen, cascade=True)["count"] == 3
        told = lives.revoke_many(filters=chosen, cascade=True)
        assert told["digest"] == digest([parent, child, minted])
        assert not lives.lives(minted)

    def test_ends_none_when_more_match_by_now_than_were_seen(self, lives: Life) -> None:
        ann = lives.new_actor()
        held = [lives.create(ann), lives.create(ann)]
        seen = lives.revoke_many(dry=True, filters=[of(ann)])["count"]
        held.append(lives.create(ann))
        with pytest.raises(GraphQLRefused) as refusal:
            lives.revoke_many(filters=[of(ann)], atMost=seen)
        assert (refusal.value.code, refusal.value.reason) == (409, "more_than_allowed_for")
        assert all(lives.lives(one) for one in held)
        lives.revoke(held.pop())
        assert lives.revoke_many(filters=[of(ann)], atMost=seen)["digest"] == digest(held)

    def test_allows_for_no_fewer_than_none(self, life: Life) -> None:
        for dry in (True, False):
            with pytest.raises(GraphQLRefused) as refusal:
                life.revoke_many(dry=dry, filters=[of(ADMIN)], atMost=-1)
            assert reason_of(refusal.value) == (400, "invalid_field", "atMost")

    def test_that_matches_nothing_ends_nothing(self, lives: Life) -> None:
        told = lives.revoke_many(filters=[of("urn:li:corpuser:nobody-at-all")])
        assert (told["count"], told["digest"]) == (0, hashlib.sha256().hexdigest())


class TestByIds:
    def test_ends_those_that_are_the_callers_and_skips_the_rest(self, lives: Life) -> None:
        ann, bob = lives.new_actor(), lives.new_actor()
        mine, dead, his = lives.create(ann), lives.create(ann), lives.create(bob)
        lives.revoke(dead)
        ids = [mine.id, f"urn:li:serviceAccessToken:{dead.id}", his.id, "A" * 43 + "=", mine.id]
        told = lives.revoke_many(ids=ids, how={"actor": ann})
        assert (told["count"], told["digest"]) == (1, digest([mine]))
        assert (lives.lives(mine), lives.lives(his)) == (False, True)

    def test_that_are_no_ids_or_too_many_are_refused(self, life: Life) -> None:
        for ids, field in ((["nonsense"], "ids[0]"), (["A" * 43 + "="] * 2_001, "ids")):
            with pytest.raises(GraphQLRefused) as refusal:
                life.revoke_many(ids=ids)
            assert reason_of(refusal.value) == (400, "invalid_field", field)


class TestEverything:
    @pytest.mark.parametrize(
        "wanted",
        [{}, {"filters": []}, {"all": False}, {"filters": [{"field": "createdAt", "condition": "EXISTS"}]}],
    )
    def test_revoking_everything_needs_all(self, lives: Life, wanted: dict[str, Any]) -> None:
        held = lives.create(ADMIN)
        for dry in (True, False):
            with pytest.raises(GraphQLRefused) as refusal:
                lives.revoke_many(dry=dry, **wanted)
            assert reason_of(refusal.value) == (400, "invalid_field", "all")
        assert lives.lives(held)

    def test_selection_of_all_live_tokens_needs_all(self, make_server: Callable[..., Server], tmp_path: Path) -> None:
        clock = SetClock(tmp_path / "clock")
        life = Life(make_server(env=clock.env))
        life.create(ADMIN)
        clock.advance(3_601)
        held = life.create(ADMIN)
        with pytest.raises(GraphQLRefused) as refusal:
            life.revoke_many(filters=[{"field": "status", "value": "ACTIVE"}])
        assert reason_of(refusal.value) == (400, "invalid_field", "all")
        assert life.revoke_many(all=True)["digest"] == digest([held])

    def test_may_be_asked_for_and_is_counted(self, lives: Life) -> None:
        lives.create(ADMIN)
        alive = '{ listAccessTokens(input: {filters: [{field: "status", value: "ACTIVE"}]}) { total } }'
        total = lives.ask(alive)["listAccessTokens"]["total"]
        assert lives.revoke_many(dry=True, all=True)["count"] == total


class TestWhoMay:
    def test_end_ones_own_needs_the_minimum_and_says_so_by_its_filter(self, lives: Life) -> None:
        ann = lives.new_actor(GENERATE)
        held, by_another = lives.create(ann, actor=ann), lives.create(ann)
        assert lives.revoke_many(filters=[of(ann)], how={"actor": ann})["count"] == 2
        assert not any(lives.lives(one) for one in (held, by_another))

    @pytest.mark.parametrize(
        "filters",
        [
            [{"field": "name", "value": "test"}],
            [{"field": "actorUrn", "value": ADMIN}],
            [{"field": "actorUrn", "value": "SELF", "negated": True}],
            [{"field": "actorUrn", "value": "SELF", "condition": "CONTAIN"}],
        ],
    )
    def test_end_others_needs_manage_all(self, lives: Life, filters: list[dict[str, Any]]) -> None:
        ann = lives.new_actor(GENERATE)
        wanted = [{**one, "value": ann if one["value"] == "SELF" else one["value"]} for one in filters]
        for dry in (True, False):
            with pytest.raises(GraphQLRefused) as refusal:
                lives.revoke_many(dry=dry, filters=wanted, how={"actor": ann})
            assert refusal.value.errors[0]["extensions"]["privilege"] == MANAGE_ALL
        with pytest.raises(GraphQLRefused) as refusal:
            lives.revoke_many(all=True, how={"actor": ann})
        assert refusal.value.errors[0]["extensions"]["privilege"] == MANAGE_ALL

    def test_nothing_is_judged_before_the_privilege(self, life: Life) -> None:
        with pytest.raises(GraphQLRefused) as refusal:
            life.revoke_many(ids=["nonsense"], how={"actor": "urn:li:corpuser:nobody-here"})
        assert refusal.value.reason == "missing_privilege"
