"""Rotation: the old token works until its successor is used."""

from collections.abc import Iterator

import pytest

from tests.life.holding import LifecycleClient, reason_of
from tests.support.clock import SetClock
from tests.support.server import ADMIN, GENERATE, MANAGE_ALL, GraphQLRefused, Server

HOUR = 3_600_000


class TestSuccessor:
    def test_successor_has_the_properties_of_the_old_token(self, lives: LifecycleClient) -> None:
        ann = lives.new_actor(GENERATE, "x")
        old = lives.create(ann, name="laptop", description="d", scopes=[GENERATE, "x"], allowedNetworks=["127.0.0.0/8"])
        new = lives.rotate(old, overlap="PT10M")
        for field in ("name", "actorUrn", "ownerUrn", "scopes", "allowedNetworks", "tokenType", "parentId"):
            assert new[field] == old[field]
        assert (new["replaces"], new["awaitsFirstUse"]) == (old.id, True)
        assert new["expiresAt"] == new["createdAt"] + 600_000
        assert new["expiresAtOnceUsed"] == new["createdAt"] + HOUR
        assert lives.record(old)["replacedBy"] == new.id

    def test_old_token_is_unchanged_until_its_successor_is_used(self, lives: LifecycleClient) -> None:
        old = lives.create(lives.new_actor())
        lives.rotate(old)
        assert lives.is_accepted(old)
        assert lives.record(old)["expiresAt"] == old["expiresAt"]

    def test_used_successor_gets_its_full_lifetime_and_the_old_token_ends_after_the_grace_period(
        self, lives: LifecycleClient
    ) -> None:
        old = lives.create(lives.new_actor())
        new = lives.rotate(old, overlap="PT10M", grace="PT3M")
        assert lives.is_accepted(new)
        now, before = lives.record(new), lives.record(old)
        assert (now["expiresAt"], now["awaitsFirstUse"], now["expiresAtOnceUsed"]) == (
            new["expiresAtOnceUsed"],
            False,
            None,
        )
        assert before["expiresAt"] == before["replacedAt"] + 180_000
        assert lives.is_accepted(old)

    def test_first_use_by_graphql_activates_the_successor(self, lives: LifecycleClient) -> None:
        old = lives.create(lives.new_actor())
        new = lives.rotate(old, grace="PT0S")
        assert lives.ask("{ me { corpUser { urn } } }", token=new.token)["me"]["corpUser"]["urn"] == old["actorUrn"]
        assert not lives.is_accepted(old)

    def test_second_rotation_replaces_an_unused_successor(self, lives: LifecycleClient) -> None:
        old = lives.create(lives.new_actor())
        lost = lives.rotate(old)
        new = lives.rotate(old, grace="PT0S")
        assert [lives.is_accepted(held) for held in (lost, old, new, old)] == [False, True, True, False]

    def test_successor_can_be_rotated(self, lives: LifecycleClient) -> None:
        held = lives.create(lives.new_actor())
        for _ in range(3):
            new = lives.rotate(held, grace="PT0S")
            assert (lives.is_accepted(new), lives.is_accepted(held)) == (True, False)
            held = new

    def test_tokens_derived_from_the_old_one_end_after_the_grace_period(self, lives: LifecycleClient) -> None:
        old = lives.create(lives.new_actor())
        child = lives.derive(old.token)
        grandchild = lives.derive(child.token)
        new = lives.rotate(old, grace="PT0S")
        assert all(lives.is_accepted(held) for held in (child, grandchild, new))
        assert not any(lives.is_accepted(held) for held in (child, grandchild, old))

    def test_successor_of_a_derived_token_ends_with_the_same_parent(self, lives: LifecycleClient) -> None:
        parent = lives.create(lives.new_actor())
        child = lives.derive(parent.token)
        new = lives.rotate(child)
        assert (new["parentId"], new["expiresAtOnceUsed"]) == (parent.id, parent["expiresAt"])
        assert lives.is_accepted(new)
        lives.revoke(parent)
        assert not lives.is_accepted(new)


class TestRevocation:
    @pytest.mark.parametrize("used", [False, True])
    @pytest.mark.parametrize("ended", ["old", "new"])
    def test_revoking_either_token_revokes_both(self, lives: LifecycleClient, used: bool, ended: str) -> None:
        old = lives.create(lives.new_actor())
        new = lives.rotate(old)
        if used:
            assert lives.is_accepted(new)
        lives.revoke(old if ended == "old" else new)
        assert not lives.is_accepted(old)
        assert not lives.is_accepted(new)

    def test_revoking_the_old_token_after_the_grace_period_keeps_its_successor(self, lives: LifecycleClient) -> None:
        old = lives.create(lives.new_actor())
        new = lives.rotate(old, grace="PT0S")
        assert (lives.is_accepted(new), lives.is_accepted(old)) == (True, False)
        lives.revoke(old)
        assert lives.is_accepted(new)


class TestAuthorization:
    def test_anyone_allowed_to_create_a_token_may_rotate_it(self, lives: LifecycleClient) -> None:
        ann, bob, mona = lives.new_actor(), lives.new_actor(), lives.new_actor(MANAGE_ALL)
        held = lives.create(ann)
        with pytest.raises(GraphQLRefused) as refusal:
            lives.rotate(held, token=lives.create(bob).token)
        assert (refusal.value.code, refusal.value.reason) == (404, "token_not_found")
        new = lives.rotate(held, token=lives.create(mona).token)
        assert lives.auth(new).headers["x-auth-urn"] == ann

    def test_creator_for_another_actor_still_needs_the_privilege_to_rotate(self, lives: LifecycleClient) -> None:
        ann, mona = lives.new_actor(), lives.new_actor(GENERATE)
        policy = lives.server.grant(mona, privileges=(MANAGE_ALL,))
        held = lives.create(ann, actor=mona)
        bearer = lives.create(mona)
        lives.server.withdraw(policy)
        with pytest.raises(GraphQLRefused) as refusal:
            lives.rotate(held, token=bearer.token)
        assert (refusal.value.code, refusal.value.errors[0]["extensions"]["privilege"]) == (403, MANAGE_ALL)


class TestRejectedRotation:
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
    def test_rejected_rotation_changes_nothing(self, life: LifecycleClient, wanted: dict[str, str], field: str) -> None:
        held = life.create(ADMIN)
        with pytest.raises(GraphQLRefused) as refusal:
            life.rotate(held, **wanted)
        assert reason_of(refusal.value) == (400, "invalid_field", field)
        assert life.record(held)["replacedBy"] is None

    def test_rotation_during_the_grace_period_is_rejected(self, lives: LifecycleClient) -> None:
        first = lives.create(lives.new_actor())
        second = lives.rotate(first, grace="PT3M")
        assert lives.is_accepted(second)
        with pytest.raises(GraphQLRefused) as refusal:
            lives.rotate(second)
        told = refusal.value.errors[0]["extensions"]
        assert (told["code"], told["reason"]) == (409, "rotation_under_way")
        assert told["until"] == lives.record(first)["expiresAt"]
        lives.revoke(second)
        assert not lives.is_accepted(first)

    def test_replaced_ended_or_unused_tokens_cannot_be_rotated(self, lives: LifecycleClient) -> None:
        ann = lives.new_actor()
        bearer, old, dead = lives.create(ann), lives.create(ann), lives.create(ann)
        new = lives.rotate(old)
        with pytest.raises(GraphQLRefused) as refusal:
            lives.rotate(new, token=bearer.token)
        assert (refusal.value.code, refusal.value.reason) == (409, "not_live")
        assert lives.is_accepted(new)
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
def later(clock: SetClock, tmp_path_factory: pytest.TempPathFactory) -> Iterator[LifecycleClient]:
    with Server(tmp_path_factory.mktemp("later"), env=clock.env) as server:
        yield LifecycleClient(server)


class TestExpiry:
    def test_unused_successor_expires_and_the_old_token_stays_valid(
        self, later: LifecycleClient, clock: SetClock
    ) -> None:
        old = later.create(ADMIN, duration="ONE_DAY")
        new = later.rotate(old, overlap="PT1H")
        clock.advance(3_500)
        assert later.record(new)["status"] == "ACTIVE"
        clock.advance(101)
        answer = later.auth(new)
        assert (answer.status_code, answer.json()["error"]["reason"]) == (401, "token_expired")
        assert later.is_accepted(old)
        assert later.record(old)["expiresAt"] == old["expiresAt"]

    def test_revoking_an_expired_successor_keeps_the_old_token(self, later: LifecycleClient, clock: SetClock) -> None:
        old = later.create(ADMIN, duration="ONE_DAY")
        new = later.rotate(old, overlap="PT1M")
        clock.advance(61)
        later.revoke(new)
        assert later.is_accepted(old)
        assert later.is_accepted(later.rotate(old))

    def test_old_token_expires_after_the_grace_period_and_successor_at_its_full_end(
        self, later: LifecycleClient, clock: SetClock
    ) -> None:
        old = later.create(ADMIN, duration="ONE_DAY")
        new = later.rotate(old, overlap="PT1H", grace="PT10M")
        assert later.is_accepted(new)
        clock.advance(500)
        assert later.is_accepted(old)
        clock.advance(102)
        assert not later.is_accepted(old)
        clock.advance(3 * 3_600)
        assert later.is_accepted(new)
        clock.advance(21 * 3_600)
        assert not later.is_accepted(new)

    def test_overlap_never_extends_an_expiring_token(self, later: LifecycleClient, clock: SetClock) -> None:
        old = later.create(ADMIN)
        clock.advance(3_000)
        new = later.rotate(old)
        assert new["expiresAt"] == old["expiresAt"]
        assert new["expiresAtOnceUsed"] > old["expiresAt"]

    def test_idempotency_key_expires_after_a_day(self, later: LifecycleClient, clock: SetClock) -> None:
        first = later.create(ADMIN, key="daily", duration="ONE_WEEK")
        clock.advance(86_000)
        assert later.create(ADMIN, key="daily", duration="ONE_WEEK") == first
        clock.advance(500)
        assert later.create(ADMIN, key="daily", duration="ONE_WEEK").id != first.id
