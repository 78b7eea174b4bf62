"""A derived token dies with the one it was derived from, in the same commit, and never outlives it."""

from typing import Any

import pytest

from tests.contract.given import ADMIN, ANN, BOB, EVE, HOUR, SYSTEM, Given, all_of, derived, where
from tests.support.backends import NOW, Place
from watchword.domain.actors import ActorStatus
from watchword.domain.bulk_revocation import TokenVisibility
from watchword.domain.errors import Reason
from watchword.domain.filters import Field
from watchword.domain.ports import Store
from watchword.domain.token_limits import Limits
from watchword.domain.tokens import TokenType

LIMITS = Limits(("VIEW_AUDIT_LOG", "repo:read"), (), ("10.0.0.0/8", "2001:db8::/32"))


def test_a_token_is_kept_with_its_limits_and_its_family(given: Given) -> None:
    parent = given.token(1, limits=LIMITS)
    child = given.derive(2, parent, limits=Limits(scopes=()))
    assert given.kept(parent) == parent
    assert given.kept(child) == child
    found = [given.run(given.store.find_bearer(token.id)) for token in (parent, child)]
    assert [(b.limits, b.derived, b.pending) for b in found if b] == [
        (LIMITS, False, False),
        (Limits(scopes=()), True, False),
    ]


def test_a_bearer_whose_successor_waits_is_no_successor_itself(given: Given) -> None:
    old = given.token(1)
    new = given.rotate(2, old)
    found = [given.run(given.store.find_bearer(token.id)) for token in (old, new)]
    assert [b.pending for b in found if b] == [False, True]


def test_with_a_token_dies_all_that_was_derived_from_it_and_nothing_else(given: Given, place: Place) -> None:
    top = given.token(1)
    child, sibling = given.derive(2, top), given.derive(3, top)
    grandchild = given.derive(4, child)
    stranger = given.token(5)
    given.clock.now = NOW + 7
    assert given.revoke(child) == NOW + 7
    assert given.live(top, child, sibling, grandchild, stranger) == [1, 3, 5]
    given.revoke(top)
    assert given.live(top, child, sibling, grandchild, stranger) == [5]
    assert given.total() == given.total(where(Field.ACTOR_URN, ANN)) == 1
    assert place.problems() == []


def test_each_that_died_has_its_event_which_tells_with_whom(given: Given, place: Place) -> None:
    top = given.token(1)
    child = given.derive(2, top)
    before = len(place.events())
    given.revoke(top)
    told = {event.target: event.detail for event in place.events()[before:] if event.action == "token.revoked"}
    assert told == {top.id: {"actorUrn": ANN}, child.id: {"actorUrn": ANN, "with": top.id}}


def test_what_was_minted_with_a_token_outlives_it_unless_it_is_revoked_with_a_cascade(given: Given) -> None:
    for cascade in (False, True):
        at = 10 * cascade
        top = given.token(at + 1, ADMIN)
        minted = given.token(at + 2, BOB, minted_with=top.id)
        of_minted = given.token(at + 3, EVE, minted_with=minted.id)
        child_of_minted = given.derive(at + 4, minted)
        given.revoke(top, cascade=cascade)
        outlived = given.live(top, minted, of_minted, child_of_minted)
        assert outlived == ([] if cascade else [2, 3, 4])


def test_a_cascade_goes_on_from_what_was_derived(given: Given) -> None:
    top = given.token(1, ADMIN)
    child = given.derive(2, top)
    minted = given.token(3, BOB, minted_with=child.id)
    given.revoke(top, cascade=True)
    assert given.live(top, child, minted) == []


def test_a_cascade_tells_of_the_first_and_counts_right(given: Given, place: Place) -> None:
    top = given.token(1, ADMIN)
    given.token(2, BOB, owner=ADMIN, minted_with=top.id)
    given.token(3, BOB, owner=ADMIN)
    assert given.run(given.store.revoke_token(SYSTEM, top.id, TokenVisibility(ADMIN), cascade=True)) == (NOW, 2)
    assert given.total() == given.total(where(Field.ACTOR_URN, BOB)) == given.total(where(Field.OWNER_URN, ADMIN)) == 1
    assert place.problems() == []


@pytest.mark.parametrize("cascade", [False, True])
def test_beyond_the_reach_a_token_is_as_unknown_as_one_that_is_not_there(given: Given, cascade: bool) -> None:
    token = given.token(1, ANN, owner=BOB)
    of_account = given.token(2, ANN, type=TokenType.PERSONAL)
    for visibility in (TokenVisibility(EVE), TokenVisibility(EVE, accounts=True)):
        for wanted in (token.id, of_account.id, "no such id"):
            fault = given.refused(
                given.store.revoke_token(given.precondition(EVE), wanted, visibility, cascade=cascade)
            )
            assert fault.reason is Reason.TOKEN_NOT_FOUND
    assert given.live(token, of_account) == [1, 2]
    for visibility in (TokenVisibility(ANN), TokenVisibility(BOB)):
        at = 10 if visibility.actor == ANN else 20
        assert given.run(
            given.store.revoke_token(SYSTEM, given.token(at, ANN, owner=BOB).id, visibility, cascade=cascade)
        )


@pytest.mark.parametrize("cascade", [False, True])
def test_a_second_revocation_is_told_of_the_first_with_a_cascade_or_without(given: Given, cascade: bool) -> None:
    token = given.token(1)
    given.revoke(token)
    fault = given.refused(given.store.revoke_token(SYSTEM, token.id, None, cascade=cascade))
    assert (fault.reason, fault.details) == (Reason.ALREADY_REVOKED, {"revokedAt": NOW})


@pytest.mark.parametrize(
    ("parent_end", "child_end", "fits"),
    [
        (None, None, True),
        (None, NOW + HOUR, True),
        (NOW + HOUR, NOW + HOUR, True),
        (NOW + HOUR, NOW + HOUR - 1, True),
        (NOW + HOUR, NOW + HOUR + 1, False),
        (NOW + HOUR, None, False),
    ],
)
def test_a_derived_token_ends_no_later_than_its_parent(
    given: Given, place: Place, parent_end: int | None, child_end: int | None, fits: bool
) -> None:
    parent = given.token(1, expires_at=parent_end)
    child = derived(2, parent, expires_at=child_end)
    work = given.store.add_token(given.precondition(ANN, parent), child, given.issue())
    if fits:
        given.run(work)
    else:
        given.stale(work)
    assert (given.kept(child) is not None) == fits
    assert place.problems() == []


def test_nothing_is_derived_from_a_dead_token(given: Given) -> None:
    parent = given.token(1)
    by_parent = given.precondition(ANN, parent)
    given.revoke(parent)
    for precondition in (by_parent, SYSTEM):
        given.stale(given.store.add_token(precondition, derived(2, parent), given.issue()))
    assert given.kept(derived(2, parent)) is None


def test_nothing_is_derived_for_a_suspended_actor(given: Given) -> None:
    parent = given.token(1)
    by_parent = given.precondition(ANN, parent)
    given.run(given.store.set_actor_status(SYSTEM, ANN, ActorStatus.SUSPENDED))
    given.stale(given.store.add_token(by_parent, derived(2, parent), given.issue()))
    assert given.kept(derived(2, parent)) is None


def test_of_derivations_and_the_revocation_of_their_parent_at_once_no_live_one_is_left(
    given: Given, other: Store, place: Place
) -> None:
    parent = given.token(1)
    precondition = given.precondition(ANN, parent)
    children = [derived(n, parent) for n in range(2, 60)]
    stores = (given.store, other)
    work: list[Any] = [stores[n % 2].add_token(precondition, child, given.issue()) for n, child in enumerate(children)]
    work.insert(20, other.revoke_token(SYSTEM, parent.id, None))
    given.run(all_of(work))
    assert given.live(parent, *children) == []
    assert given.total() == 0
    assert place.problems() == []


def test_a_child_that_had_expired_is_left_as_it_was_and_is_no_fault(given: Given, place: Place) -> None:
    parent = given.token(1)
    child = given.derive(2, parent, expires_at=NOW + 10)
    given.clock.now = NOW + 10
    given.revoke(parent)
    assert given.kept(child) == child
    assert place.problems() == []
