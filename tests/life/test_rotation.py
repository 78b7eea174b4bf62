"""Rotation: the old token goes on until its successor is used, and its holder is never without one that works."""

from collections.abc import Iterator

import pytest

from tests.life.holding import Life, reason_of
from tests.support.clock import SetClock
from tests.support.server import ADMIN, GENERATE, MANAGE_ALL, GraphQLRefused, Server

HOUR = 3_600_000


class TestASuccessor:
    def test_is_as_the_old_one_was(self, lives: Life) -> None:
        ann = lives.new_actor()
        old = lives.create(ann, name="laptop", description="d", scopes=[GENERATE, "x"], allowedNetworks=["127.0.0.0/8"])
        new = lives.rotate(old, overlap="PT10M")
        for field in ("name", "actorUrn", "ownerUrn", "scopes", "allowedNetworks", "tokenType", "parentId"):
            assert new[field] == old[field]
        assert (new["replaces"], new["awaitsFirstUse"]) == (old.id, True)
        assert new["expiresAt"] == new["createdAt"] + 600_000
        assert new["expiresAtOnceUsed"] == new["createdAt"] + HOUR
        assert lives.record(old)["replacedBy"] == new.id

    def test_leaves_the_old_one_as_it_was_until_it_is_used(self, lives: Life) -> None:
        old = lives.create(lives.new_actor())
        lives.rotate(old)
        assert lives.lives(old)
        assert lives.record(old)["expiresAt"] == old["expiresAt"]

    def test_used_successor_gets_its_full_lifetime_and_the_old_token_ends_after_the_grace_period(
        self, lives: Life
    ) -> None:
        old = lives.create(lives.new_actor())
        new = lives.rotate(old, overlap="PT10M", grace="PT3M")
        assert lives.lives(new)
        now, before = lives.record(new), lives.record(old)
        assert (now["expiresAt"], now["awaitsFirstUse"], now["expiresAtOnceUsed"]) == (
            new["expiresAtOnceUsed"],
            False,
            None,
        )
        assert before["expiresAt"] == before["replacedAt"] + 180_000
        assert lives.lives(old)

    def test_that_is_used_first_by_graphql_counts_too(self, lives: Life) -> None:
        old = lives.create(lives.new_actor())
        new = lives.rotate(old, grace="PT0S")
        assert lives.ask("{ me { corpUser { urn } } }", token=new.token)["me"]["corpUser"]["urn"] == old["actorUrn"]
        assert not lives.lives(old)

    def test_that_was_never_used_is_replaced_when_it_is_asked_for_again(self, lives: Life) -> None:
        old = lives.create(lives.new_actor())
        lost = lives.rotate(old)
        new = lives.rotate(old, grace="PT0S")
        assert [lives.lives(held) for held in (lost, old, new, old)] == [False, True, True, False]

    def test_can_be_rotated_in_its_turn(self, lives: Life) -> None:
        held = lives.create(lives.new_actor())
        for _ in range(3):
            new = lives.rotate(held, grace="PT0S")
            assert (lives.lives(new), lives.lives(held)) == (True, False)
            held = new

    def test_takes_what_was_derived_from_the_old_one_along_after_the_grace(self, lives: Life) -> None:
        old = lives.create(lives.new_actor())
        child = lives.derive(old.token)
        grandchild = lives.derive(child.token)
        new = lives.rotate(old, grace="PT0S")
        assert all(lives.lives(held) for held in (child, grandchild, new))
        assert not any(lives.lives(held) for held in (child, grandchild, old))

    def test_successor_of_a_derived_token_ends_with_the_same_parent(self, lives: Life) -> None:
        parent = lives.create(lives.new_actor())
        child = lives.derive(parent.token)
        new = lives.rotate(child)
        assert (new["parentId"], new["expiresAtOnceUsed"]) == (parent.id, parent["expiresAt"])
        assert lives.lives(new)
        lives.revoke(parent)
        assert not lives.lives(new)


class TestARevoke:
    @pytest.mark.parametrize("used", [False, True])
    @pytest.mark.parametrize("ended", ["old", "new"])
    def test_of_either_ends_both(self, lives: Life, used: bool, ended: str) -> None:
        old = lives.create(lives.new_actor())
        new = lives.rotate(old)
        if used:
            assert lives.lives(new)
        lives.revoke(old if ended == "old" else new)
        assert not lives.lives(old)
        assert not lives.lives(new)

    def test_revoking_the_old_token_after_the_grace_period_keeps_its_successor(self, lives: Life) -> None:
        old = lives.create(lives.new_actor())
        new = lives.rotate(old, grace="PT0S")
        assert (lives.lives(new), lives.lives(old)) == (True, False)
        lives.revoke(old)
        assert lives.lives(new)


class TestWhoMay:
    def test_anyone_allowed_to_create_a_token_may_rotate_it(self, lives: Life) -> None:
        ann, bob, mona = lives.new_actor(), lives.new_actor(), lives.new_actor(MANAGE_ALL)
        held = lives.create(ann)
        with pytest.raises(GraphQLRefused) as refusal:
            lives.rotate(held, token=lives.create(bob).token)
        assert (refusal.value.code, refusal.value.reason) == (404, "token_not_found")
        new = lives.rotate(held, token=lives.create(mona).token)
        assert lives.auth(new).headers["x-auth-urn"] == ann

    def test_creator_for_another_actor_still_needs_the_privilege_to_rotate(self, lives: Life) -> None:
        ann, mona = lives.new_actor(), lives.new_actor(GENERATE)
        policy = lives.server.grant(mona, privileges=(MANAGE_ALL,))
        held = lives.create(ann, actor=mona)
        bearer = lives.create(mona)
        lives.server.withdraw(policy)
        with pytest.raises(GraphQLRefused) as refusal:
            lives.rotate(held, token=bearer.token)
        assert (refusal.value.code, refusal.value.errors[0]["extensions"]["privilege"]) == (403, MANAGE_ALL)


class TestWhatCannotBe:
    @pytest.mark.parametrize(
        ("wanted", "field"),
        [
            ({"overlap": "PT1H1M"}, "overlap"),
            ({"overlap": "PT59S"}, "overlap"),
            ({"overlap": "P91D"}, "overlap"),
            ({"overlap": "an hour"}, "overlap"),
            ({"grace": "P31D"}, "grace"),
            ({"grace": "-PT1M"}, "grace"),
            ({"grace": ""}, "grace"),
        ],
    )
    def test_is_refused_and_nothing_is_changed(self, life: Life, wanted: dict[str, str], field: str) -> None:
        held = life.create(ADMIN)
        with pytest.raises(GraphQLRefused) as refusal:
            life.rotate(held, **wanted)
        assert reason_of(refusal.value) == (400, "invalid_field", field)
        assert life.record(held)["replacedBy"] is None

    def test_rotate_while_the_one_before_has_its_grace(self, lives: Life) -> None:
        first = lives.create(lives.new_actor())
        second = lives.rotate(first, grace="PT3M")
        assert lives.lives(second)
        with pytest.raises(GraphQLRefused) as refusal:
            lives.rotate(second)
        told = refusal.value.errors[0]["extensions"]
        assert (told["code"], told["reason"]) == (409, "rotation_under_way")
        assert told["until"] == lives.record(first)["expiresAt"]
        lives.revoke(second)
        assert not lives.lives(first)

    def test_replaced_ended_or_unused_tokens_cannot_be_rotated(self, lives: Life) -> None:
        ann = lives.new_actor()
        bearer, old, dead = lives.create(ann), lives.create(ann), lives.create(ann)
        new = lives.rotate(old)
        with pytest.raises(GraphQLRefused) as refusal:
            lives.rotate(new, token=bearer.token)
        assert (refusal.value.code, refusal.value.reason) == (409, "not_live")
        assert lives.lives(new)
        with pytest.raises(GraphQLRefused) as refusal:
            lives.rotate(old)
        told = refusal.value.errors[0]["extensions"]
        assert (told["code"], told["reason"], told["replacedBy"]) == (409, "already_replaced", new.id)
        lives.revoke(dead)
        with pytest.raises(GraphQLRefused) as refusal:
            lives.rotate(dead, token=bearer.token)
        assert (refusal.value.code, refusal.value.reason) == (409, "already_revoked")


@pytest.fixture(scope="module")
def clock(tmp_path_factory: pytest.TempPathFactory) -> SetClock:
    return SetClock(tmp_path_factory.mktemp("clock"))


@pytest.fixture(scope="module")
def later(clock: SetClock, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Life]:
    with Server(tmp_path_factory.mktemp("later"), env=clock.env) as server:
        yield Life(server)


class TestInTime:
    def test_a_successor_that_is_never_used_dies_with_the_overlap_and_the_old_one_goes_on(
        self, later: Life, clock: SetClock
    ) -> None:
        old = later.create(ADMIN, duration="ONE_DAY")
        new = later.rotate(old, overlap="PT1H")
        clock.advance(3_500)
        assert later.record(new)["status"] == "ACTIVE"
        clock.advance(101)
        answer = later.auth(new)
        assert (answer.status_code, answer.json()["error"]["reason"]) == (401, "token_expired")
        assert later.lives(old)
        assert later.record(old)["expiresAt"] == old["expiresAt"]

    def test_revoking_an_expired_successor_keeps_the_old_token(self, later: Life, clock: SetClock) -> None:
        old = later.create(ADMIN, duration="ONE_DAY")
        new = later.rotate(old, overlap="PT1M")
        clock.advance(61)
        later.revoke(new)
        assert later.lives(old)
        assert later.lives(later.rotate(old))

    def test_old_token_expires_after_the_grace_period_and_successor_at_its_full_end(
        self, later: Life, clock: SetClock
    ) -> None:
        old = later.create(ADMIN, duration="ONE_DAY")
        new = later.rotate(old, overlap="PT1H", grace="PT10M")
        assert later.lives(new)
        clock.advance(500)
        assert later.lives(old)
        clock.advance(102)
        assert not later.lives(old)
        clock.advance(3 * 3_600)
        assert later.lives(new)
        clock.advance(21 * 3_600)
        assert not later.lives(new)

    def test_a_token_that_ends_soon_is_not_outlived_by_the_overlap(self, later: Life, clock: SetClock) -> None:
        old = later.create(ADMIN)
        clock.advance(3_000)
        new = later.rotate(old)
        assert new["expiresAt"] == old["expiresAt"]
        assert new["expiresAtOnceUsed"] > old["expiresAt"]

    def test_a_key_serves_for_a_day(self, later: Life, clock: SetClock) -> None:
        first = later.create(ADMIN, key="daily", duration="ONE_WEEK")
        clock.advance(86_000)
        assert later.create(ADMIN, key="daily", duration="ONE_WEEK") == first
        clock.advance(500)
        assert later.create(ADMIN, key="daily", duration="ONE_WEEK").id != first.id
