"""Rotation: the holder always has a working token, and two only for a short time."""

import pytest

from tests.contract.harness import (
    ANN,
    HOUR,
    MINUTE,
    SECOND,
    SYSTEM,
    StoreHarness,
    derived,
    record,
    successor,
    where,
)
from tests.support.backends import NOW, StoreLocation
from watchword.authority.callers import ActorStatus
from watchword.basics.errors import Reason
from watchword.tokens.filters import Field
from watchword.tokens.rules import Issue, TokenRecord


def stored_token(harness: StoreHarness, token: TokenRecord) -> TokenRecord:
    kept = harness.stored(token)
    assert kept is not None
    return kept


def test_successor_is_stored_and_linked(harness: StoreHarness, location: StoreLocation) -> None:
    old = harness.token(1)
    new = harness.rotate(2, old)
    assert harness.stored(new) == new
    assert harness.stored(old) == old._replace(replaced_by=new.id)
    assert harness.live_numbers(old, new) == [1, 2]
    assert harness.total() == 2
    assert location.problems() == []


def test_first_use_activates_the_successor_and_starts_the_grace_period(
    harness: StoreHarness, location: StoreLocation
) -> None:
    old = harness.token(1)
    new = harness.rotate(2, old)
    harness.clock.now = NOW + 10
    harness.use_first(new)
    assert harness.stored(new) == new._replace(expires_at=NOW + HOUR, grace=None)
    ended = old._replace(replaced_by=new.id, replaced_at=NOW + 10, expires_at=NOW + 10 + SECOND)
    assert harness.stored(old) == ended
    harness.clock.now = NOW + 9 + SECOND
    assert harness.live_numbers(old, new) == [1, 2]
    harness.clock.now = NOW + 10 + SECOND
    assert harness.live_numbers(old, new) == [2]
    assert location.problems() == []


def test_repeated_first_use_changes_nothing(harness: StoreHarness, location: StoreLocation) -> None:
    old = harness.token(1)
    new = harness.rotate_and_use(2, old)
    before = (harness.stored(old), harness.stored(new), location.events())
    harness.clock.now = NOW + 10
    harness.use_first(new)
    assert (harness.stored(old), harness.stored(new), location.events()) == before


@pytest.mark.parametrize("dead", ["revoked", "expired", "unknown", "never a successor"])
def test_first_use_requires_a_pending_successor(harness: StoreHarness, location: StoreLocation, dead: str) -> None:
    old = harness.token(1)
    new = harness.rotate(2, old)
    if dead == "revoked":
        harness.rotate(3, old)
    harness.clock.now = NOW + (MINUTE if dead == "expired" else 0)
    used = {"unknown": record(9), "never a successor": old}.get(dead, new)
    before = (harness.stored(old), harness.stored(new), location.events())
    harness.use_first(used)
    assert (harness.stored(old), harness.stored(new), location.events()) == before


def test_unused_successor_expires_and_the_old_token_stays(harness: StoreHarness) -> None:
    old = harness.token(1)
    new = harness.rotate(2, old)
    harness.clock.now = NOW + MINUTE
    assert harness.live_numbers(old, new) == [1]


def test_grace_period_never_extends_the_old_token(harness: StoreHarness) -> None:
    old = harness.token(1, expires_at=NOW + 500)
    new = harness.rotate(2, old, expires_at=NOW + 500)
    harness.use_first(new)
    assert stored_token(harness, old).expires_at == NOW + 500


def test_old_token_without_expiry_ends_after_the_grace_period(harness: StoreHarness) -> None:
    old = harness.token(1, expires_at=None)
    new = harness.rotate(2, old, full_end=None)
    harness.use_first(new)
    assert (stored_token(harness, old).expires_at, stored_token(harness, new).expires_at) == (NOW + SECOND, None)


def test_tokens_derived_from_the_old_one_end_with_it(harness: StoreHarness, location: StoreLocation) -> None:
    old = harness.token(1)
    child = harness.derive(3, old)
    grandchild = harness.derive(4, child)
    short = harness.derive(5, old, expires_at=NOW + 10)
    harness.rotate_and_use(2, old)
    ends = [stored_token(harness, token).expires_at for token in (child, grandchild, short)]
    assert ends == [NOW + SECOND, NOW + SECOND, NOW + 10]
    assert location.problems() == []


def test_pending_successor_cannot_outlive_a_shortened_parent(harness: StoreHarness, location: StoreLocation) -> None:
    parent = harness.token(1)
    child = harness.derive(2, parent)
    waiting = harness.rotate(3, child, expires_at=NOW + 10)
    harness.rotate_and_use(4, parent)
    harness.use_first(waiting)
    assert stored_token(harness, waiting).expires_at == NOW + SECOND
    assert location.problems() == []


def test_successor_of_a_derived_token_cannot_outlive_the_parent(harness: StoreHarness) -> None:
    parent = harness.token(1)
    child = harness.derive(2, parent)
    kept = stored_token(harness, child)
    too_long = successor(3, kept, full_end=NOW + HOUR + 1)
    harness.assert_stale(harness.store.rotate_token(SYSTEM, kept, too_long, harness.issue()))
    harness.rotate_and_use(3, child, full_end=NOW + HOUR)
    harness.revoke(parent)
    assert harness.live_numbers(parent, child, too_long) == []


def test_second_rotation_revokes_the_unused_successor(harness: StoreHarness, location: StoreLocation) -> None:
    old = harness.token(1)
    lost = harness.rotate(2, old)
    new = harness.rotate(3, old)
    assert harness.live_numbers(old, lost, new) == [1, 3]
    assert stored_token(harness, old).replaced_by == new.id
    assert harness.total() == harness.total(where(Field.ACTOR_URN, ANN)) == 2
    revoked = [event for event in location.events() if event.action == "token.revoked"]
    assert [(event.target, event.detail) for event in revoked] == [
        (lost.id, {"name": lost.name, "actorUrn": ANN, "with": old.id})
    ]
    harness.use_first(new)
    harness.clock.now = NOW + SECOND
    assert harness.live_numbers(old, lost, new) == [3]
    assert location.problems() == []


@pytest.mark.parametrize("which", [0, 1])
@pytest.mark.parametrize("used", [False, True])
def test_revoking_either_token_revokes_both_during_the_overlap(
    harness: StoreHarness, location: StoreLocation, which: int, used: bool
) -> None:
    old = harness.token(1)
    pair = (old, harness.rotate_and_use(2, old) if used else harness.rotate(2, old))
    harness.revoke(pair[which])
    assert harness.live_numbers(*pair) == []
    assert harness.total() == 0
    assert location.problems() == []


@pytest.mark.parametrize("which", [0, 1])
def test_tokens_are_revoked_separately_after_the_overlap(harness: StoreHarness, which: int) -> None:
    old = harness.token(1)
    pair = (old, harness.rotate_and_use(2, old))
    harness.clock.now = NOW + SECOND
    harness.revoke(pair[which])
    assert harness.live_numbers(*pair) == ([2] if which == 0 else [])
    assert stored_token(harness, pair[1 - which]).revoked_at is None


def test_expired_pending_successor_is_revoked_alone(harness: StoreHarness) -> None:
    old = harness.token(1)
    new = harness.rotate(2, old)
    harness.clock.now = NOW + MINUTE
    harness.revoke(new)
    assert harness.live_numbers(old, new) == [1]


@pytest.mark.parametrize("which", [0, 1, 2])
def test_revoking_any_live_token_revokes_the_chain(harness: StoreHarness, location: StoreLocation, which: int) -> None:
    first = harness.token(1)
    second = harness.rotate_and_use(2, first)
    third = harness.rotate(3, second)
    child = harness.derive(4, first, expires_at=NOW + SECOND)
    harness.revoke((first, second, third)[which])
    assert harness.live_numbers(first, second, third, child) == []
    assert location.problems() == []


def test_revoking_an_expired_predecessor_keeps_its_successors(harness: StoreHarness) -> None:
    first = harness.token(1)
    second = harness.rotate_and_use(2, first)
    harness.clock.now = NOW + SECOND
    third = harness.rotate(3, second)
    harness.revoke(first)
    assert harness.live_numbers(second, third) == [2, 3]
    harness.revoke(third)
    assert harness.live_numbers(second, third) == []


def test_rotation_of_a_changed_token_is_stale(harness: StoreHarness, location: StoreLocation) -> None:
    old = harness.token(1)
    seen = stored_token(harness, old)
    harness.rotate(2, old)
    before = location.events()
    harness.assert_stale(harness.store.rotate_token(SYSTEM, seen, successor(3, seen), harness.issue()))
    used = stored_token(harness, old)
    harness.use_first(record(2))
    harness.assert_stale(harness.store.rotate_token(SYSTEM, used, successor(3, used), harness.issue()))
    harness.revoke(old)
    harness.assert_stale(harness.store.rotate_token(SYSTEM, used, successor(3, used), harness.issue()))
    assert harness.stored(record(3)) is None
    assert "token.rotated" not in [event.action for event in location.events()[len(before) :]]


def test_rotation_of_an_expired_or_unknown_token_is_stale(harness: StoreHarness) -> None:
    old = harness.token(1, expires_at=NOW + 10)
    harness.clock.now = NOW + 10
    harness.assert_stale(harness.store.rotate_token(SYSTEM, old, successor(2, old), harness.issue()))
    harness.assert_stale(harness.store.rotate_token(SYSTEM, record(9), successor(2, record(9)), harness.issue()))
    assert harness.stored(record(2)) is None


def test_rotation_with_a_retired_key_is_stale(harness: StoreHarness) -> None:
    old = harness.token(1)
    harness.rotate_key(3)
    harness.assert_stale(harness.store.rotate_token(SYSTEM, old, successor(2, old), harness.issue()))
    harness.run(harness.store.rotate_token(SYSTEM, old, successor(2, old), Issue("kid-2", 1)))


def test_suspended_actors_token_is_not_rotated(harness: StoreHarness) -> None:
    old = harness.token(1)
    harness.run(harness.store.set_actor_status(SYSTEM, ANN, ActorStatus.SUSPENDED))
    fault = harness.fault_of(harness.store.rotate_token(SYSTEM, old, successor(2, old), harness.issue()))
    assert fault.reason is Reason.ACTOR_SUSPENDED
    assert harness.stored(old) == old


def test_rotation_ignores_the_token_limit(harness: StoreHarness) -> None:
    old = harness.token(1)
    harness.run(harness.store.rotate_token(SYSTEM, old, successor(2, old), Issue(harness.kid, 1)))
    assert harness.live_numbers(old, record(2)) == [1, 2]


def test_key_is_published_until_the_full_end_of_an_unused_successor(harness: StoreHarness) -> None:
    old = harness.token(1)
    harness.rotate(2, old, full_end=NOW + 9 * HOUR)
    harness.rotate_key(3)
    assert harness.run(harness.store.keys())[1].published_until == NOW + 9 * HOUR
    harness.run(
        harness.store.rotate_token(
            SYSTEM, stored_token(harness, old), successor(3, old, full_end=None), Issue("kid-2", 1)
        )
    )
    harness.rotate_key(4)
    assert harness.run(harness.store.keys())[1].published_until is None


def test_token_derived_from_a_successor_is_independent_of_the_old_token(harness: StoreHarness) -> None:
    old = harness.token(1)
    new = harness.rotate_and_use(2, old)
    child = harness.derive(3, stored_token(harness, new))
    assert child == derived(3, stored_token(harness, new))
    harness.clock.now = NOW + SECOND
    harness.revoke(old)
    assert harness.live_numbers(old, new, child) == [2, 3]


def test_unused_successor_cannot_derive(harness: StoreHarness) -> None:
    old = harness.token(1)
    new = harness.rotate(2, old)
    child = derived(3, new)
    harness.assert_stale(harness.store.add_token(harness.precondition(ANN, new), child, harness.issue()))
    harness.use_first(new)
    harness.derive(3, stored_token(harness, new))
