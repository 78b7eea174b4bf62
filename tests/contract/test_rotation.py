"""A token is replaced by a successor, and its holder is never without one that works, nor with two for long."""

import pytest

from tests.contract.given import (
    ANN,
    HOUR,
    MINUTE,
    SECOND,
    SYSTEM,
    Given,
    derived,
    record,
    successor,
    where,
)
from tests.support.backends import NOW, Place
from watchword.domain.actors import ActorStatus
from watchword.domain.errors import Reason
from watchword.domain.filters import Field
from watchword.domain.ports import Issue
from watchword.domain.tokens import TokenRecord


def now_kept(given: Given, token: TokenRecord) -> TokenRecord:
    kept = given.kept(token)
    assert kept is not None
    return kept


def test_a_successor_is_kept_as_it_was_given_and_the_old_one_names_it(given: Given, place: Place) -> None:
    old = given.token(1)
    new = given.rotate(2, old)
    assert given.kept(new) == new
    assert given.kept(old) == old._replace(replaced_by=new.id)
    assert given.live(old, new) == [1, 2]
    assert given.total() == 2
    assert place.problems() == []


def test_the_first_use_gives_the_successor_its_full_life_and_the_old_one_the_grace(given: Given, place: Place) -> None:
    old = given.token(1)
    new = given.rotate(2, old)
    given.clock.now = NOW + 10
    given.use_first(new)
    assert given.kept(new) == new._replace(expires_at=NOW + HOUR, grace=None)
    ended = old._replace(replaced_by=new.id, replaced_at=NOW + 10, expires_at=NOW + 10 + SECOND)
    assert given.kept(old) == ended
    given.clock.now = NOW + 9 + SECOND
    assert given.live(old, new) == [1, 2]
    given.clock.now = NOW + 10 + SECOND
    assert given.live(old, new) == [2]
    assert place.problems() == []


def test_a_first_use_is_one_however_often_it_is_noted(given: Given, place: Place) -> None:
    old = given.token(1)
    new = given.succeed(2, old)
    before = (given.kept(old), given.kept(new), place.events())
    given.clock.now = NOW + 10
    given.use_first(new)
    assert (given.kept(old), given.kept(new), place.events()) == before


@pytest.mark.parametrize("dead", ["revoked", "expired", "unknown", "never a successor"])
def test_no_first_use_is_noted_of_what_is_no_waiting_successor(given: Given, place: Place, dead: str) -> None:
    old = given.token(1)
    new = given.rotate(2, old)
    if dead == "revoked":
        given.rotate(3, old)
    given.clock.now = NOW + (MINUTE if dead == "expired" else 0)
    used = {"unknown": record(9), "never a successor": old}.get(dead, new)
    before = (given.kept(old), given.kept(new), place.events())
    given.use_first(used)
    assert (given.kept(old), given.kept(new), place.events()) == before


def test_a_successor_that_nobody_used_dies_with_the_overlap_and_the_old_one_goes_on(given: Given) -> None:
    old = given.token(1)
    new = given.rotate(2, old)
    given.clock.now = NOW + MINUTE
    assert given.live(old, new) == [1]


def test_the_old_one_ends_no_later_than_it_would_have(given: Given) -> None:
    old = given.token(1, expires_at=NOW + 500)
    new = given.rotate(2, old, expires_at=NOW + 500)
    given.use_first(new)
    assert now_kept(given, old).expires_at == NOW + 500


def test_one_that_never_ends_ends_after_the_grace_too(given: Given) -> None:
    old = given.token(1, expires_at=None)
    new = given.rotate(2, old, full_end=None)
    given.use_first(new)
    assert (now_kept(given, old).expires_at, now_kept(given, new).expires_at) == (NOW + SECOND, None)


def test_what_was_derived_from_the_old_one_ends_with_it(given: Given, place: Place) -> None:
    old = given.token(1)
    child = given.derive(3, old)
    grandchild = given.derive(4, child)
    short = given.derive(5, old, expires_at=NOW + 10)
    given.succeed(2, old)
    ends = [now_kept(given, token).expires_at for token in (child, grandchild, short)]
    assert ends == [NOW + SECOND, NOW + SECOND, NOW + 10]
    assert place.problems() == []


def test_a_waiting_successor_of_a_derived_token_does_not_outlive_the_parent_that_was_shortened(
    given: Given, place: Place
) -> None:
    parent = given.token(1)
    child = given.derive(2, parent)
    waiting = given.rotate(3, child, expires_at=NOW + 10)
    given.succeed(4, parent)
    given.use_first(waiting)
    assert now_kept(given, waiting).expires_at == NOW + SECOND
    assert place.problems() == []


def test_a_successor_of_a_derived_token_fits_into_its_parent(given: Given) -> None:
    parent = given.token(1)
    child = given.derive(2, parent)
    kept = now_kept(given, child)
    too_long = successor(3, kept, full_end=NOW + HOUR + 1)
    given.stale(given.store.rotate_token(SYSTEM, kept, too_long, given.issue()))
    given.succeed(3, child, full_end=NOW + HOUR)
    given.revoke(parent)
    assert given.live(parent, child, too_long) == []


def test_a_token_rotated_again_takes_the_unused_successor_back(given: Given, place: Place) -> None:
    old = given.token(1)
    lost = given.rotate(2, old)
    new = given.rotate(3, old)
    assert given.live(old, lost, new) == [1, 3]
    assert now_kept(given, old).replaced_by == new.id
    assert given.total() == given.total(where(Field.ACTOR_URN, ANN)) == 2
    revoked = [event for event in place.events() if event.action == "token.revoked"]
    assert [(event.target, event.detail) for event in revoked] == [(lost.id, {"actorUrn": ANN, "with": old.id})]
    given.use_first(new)
    given.clock.now = NOW + SECOND
    assert given.live(old, lost, new) == [3]
    assert place.problems() == []


@pytest.mark.parametrize("which", [0, 1])
@pytest.mark.parametrize("used", [False, True])
def test_a_revocation_of_either_ends_both_while_the_older_is_alive(
    given: Given, place: Place, which: int, used: bool
) -> None:
    old = given.token(1)
    pair = (old, given.succeed(2, old) if used else given.rotate(2, old))
    given.revoke(pair[which])
    assert given.live(*pair) == []
    assert given.total() == 0
    assert place.problems() == []


@pytest.mark.parametrize("which", [0, 1])
def test_once_the_older_has_ended_each_dies_alone(given: Given, which: int) -> None:
    old = given.token(1)
    pair = (old, given.succeed(2, old))
    given.clock.now = NOW + SECOND
    given.revoke(pair[which])
    assert given.live(*pair) == ([2] if which == 0 else [])
    assert now_kept(given, pair[1 - which]).revoked_at is None


def test_a_successor_that_died_unused_does_not_take_the_old_one_along(given: Given) -> None:
    old = given.token(1)
    new = given.rotate(2, old)
    given.clock.now = NOW + MINUTE
    given.revoke(new)
    assert given.live(old, new) == [1]


@pytest.mark.parametrize("which", [0, 1, 2])
def test_of_a_chain_in_which_all_are_alive_all_die_with_any(given: Given, place: Place, which: int) -> None:
    first = given.token(1)
    second = given.succeed(2, first)
    third = given.rotate(3, second)
    child = given.derive(4, first, expires_at=NOW + SECOND)
    given.revoke((first, second, third)[which])
    assert given.live(first, second, third, child) == []
    assert place.problems() == []


def test_of_a_chain_whose_first_has_ended_the_rest_dies_without_it(given: Given) -> None:
    first = given.token(1)
    second = given.succeed(2, first)
    given.clock.now = NOW + SECOND
    third = given.rotate(3, second)
    given.revoke(first)
    assert given.live(second, third) == [2, 3]
    given.revoke(third)
    assert given.live(second, third) == []


def test_a_rotation_of_what_is_no_longer_as_it_was_seen_is_stale(given: Given, place: Place) -> None:
    old = given.token(1)
    seen = now_kept(given, old)
    given.rotate(2, old)
    before = place.events()
    given.stale(given.store.rotate_token(SYSTEM, seen, successor(3, seen), given.issue()))
    used = now_kept(given, old)
    given.use_first(record(2))
    given.stale(given.store.rotate_token(SYSTEM, used, successor(3, used), given.issue()))
    given.revoke(old)
    given.stale(given.store.rotate_token(SYSTEM, used, successor(3, used), given.issue()))
    assert given.kept(record(3)) is None
    assert "token.rotated" not in [event.action for event in place.events()[len(before) :]]


def test_a_rotation_of_what_has_expired_or_is_unknown_is_stale(given: Given) -> None:
    old = given.token(1, expires_at=NOW + 10)
    given.clock.now = NOW + 10
    given.stale(given.store.rotate_token(SYSTEM, old, successor(2, old), given.issue()))
    given.stale(given.store.rotate_token(SYSTEM, record(9), successor(2, record(9)), given.issue()))
    assert given.kept(record(2)) is None


def test_a_successor_signed_with_a_key_that_is_no_longer_in_use_is_stale(given: Given) -> None:
    old = given.token(1)
    given.rotate_key(3)
    given.stale(given.store.rotate_token(SYSTEM, old, successor(2, old), given.issue()))
    given.run(given.store.rotate_token(SYSTEM, old, successor(2, old), Issue("kid-2", 1)))


def test_a_token_of_a_suspended_actor_is_not_rotated(given: Given) -> None:
    old = given.token(1)
    given.run(given.store.set_actor_status(SYSTEM, ANN, ActorStatus.SUSPENDED))
    fault = given.refused(given.store.rotate_token(SYSTEM, old, successor(2, old), given.issue()))
    assert fault.reason is Reason.ACTOR_SUSPENDED
    assert given.kept(old) == old


def test_a_rotation_is_never_refused_for_the_number_of_tokens(given: Given) -> None:
    old = given.token(1)
    given.run(given.store.rotate_token(SYSTEM, old, successor(2, old), Issue(given.kid, 1)))
    assert given.live(old, record(2)) == [1, 2]


def test_a_signing_key_is_published_until_the_full_end_of_a_successor_nobody_used(given: Given) -> None:
    old = given.token(1)
    given.rotate(2, old, full_end=NOW + 9 * HOUR)
    given.rotate_key(3)
    assert given.run(given.store.keys())[1].published_until == NOW + 9 * HOUR
    given.run(
        given.store.rotate_token(SYSTEM, now_kept(given, old), successor(3, old, full_end=None), Issue("kid-2", 1))
    )
    given.rotate_key(4)
    assert given.run(given.store.keys())[1].published_until is None


def test_what_is_derived_from_a_used_successor_has_nothing_to_do_with_the_old_one(given: Given) -> None:
    old = given.token(1)
    new = given.succeed(2, old)
    child = given.derive(3, now_kept(given, new))
    assert child == derived(3, now_kept(given, new))
    given.clock.now = NOW + SECOND
    given.revoke(old)
    assert given.live(old, new, child) == [2, 3]


def test_nothing_is_derived_from_a_successor_before_its_first_use(given: Given) -> None:
    old = given.token(1)
    new = given.rotate(2, old)
    child = derived(3, new)
    given.stale(given.store.add_token(given.precondition(ANN, new), child, given.issue()))
    given.use_first(new)
    given.derive(3, now_kept(given, new))
