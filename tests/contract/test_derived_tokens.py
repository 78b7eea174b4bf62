"""A derived token is revoked with its parent in the same commit and never expires later."""

from typing import Any

import pytest

from tests.contract.harness import ADMIN, ANN, BOB, EVE, HOUR, SYSTEM, StoreHarness, all_of, derived, where
from tests.support.backends import NOW, StoreLocation
from watchword.authority.callers import ActorStatus
from watchword.authority.limits import Limits
from watchword.basics.errors import Reason
from watchword.stores.joined import Store
from watchword.tokens.bulk_revocation import TokenVisibility
from watchword.tokens.filters import Field
from watchword.tokens.rules import TokenType

LIMITS = Limits(("VIEW_AUDIT_LOG", "repo:read"), (), ("10.0.0.0/8", "2001:db8::/32"))


def test_derived_token_is_stored_with_limits_and_family(harness: StoreHarness) -> None:
    parent = harness.token(1, limits=LIMITS)
    child = harness.derive(2, parent, limits=Limits(scopes=()))
    assert harness.stored(parent) == parent
    assert harness.stored(child) == child
    found = [harness.run(harness.store.find_bearer(token.id)) for token in (parent, child)]
    assert [(b.limits, b.derived, b.pending) for b in found if b] == [
        (LIMITS, False, False),
        (Limits(scopes=()), True, False),
    ]


def test_only_the_successor_is_pending(harness: StoreHarness) -> None:
    old = harness.token(1)
    new = harness.rotate(2, old)
    found = [harness.run(harness.store.find_bearer(token.id)) for token in (old, new)]
    assert [b.pending for b in found if b] == [False, True]


def test_revocation_includes_all_derived_tokens(harness: StoreHarness, location: StoreLocation) -> None:
    top = harness.token(1)
    child, sibling = harness.derive(2, top), harness.derive(3, top)
    grandchild = harness.derive(4, child)
    stranger = harness.token(5)
    harness.clock.now = NOW + 7
    assert harness.revoke(child) == NOW + 7
    assert harness.live_numbers(top, child, sibling, grandchild, stranger) == [1, 3, 5]
    harness.revoke(top)
    assert harness.live_numbers(top, child, sibling, grandchild, stranger) == [5]
    assert harness.total() == harness.total(where(Field.ACTOR_URN, ANN)) == 1
    assert location.problems() == []


def test_revocation_event_of_a_derived_token_names_the_cause(harness: StoreHarness, location: StoreLocation) -> None:
    top = harness.token(1)
    child = harness.derive(2, top)
    before = len(location.events())
    harness.revoke(top)
    told = {event.target: event.detail for event in location.events()[before:] if event.action == "token.revoked"}
    assert told == {
        top.id: {"name": top.name, "actorUrn": ANN},
        child.id: {"name": child.name, "actorUrn": ANN, "with": top.id},
    }


def test_minted_tokens_are_revoked_only_by_a_cascade(harness: StoreHarness) -> None:
    for cascade in (False, True):
        at = 10 * cascade
        top = harness.token(at + 1, ADMIN)
        minted = harness.token(at + 2, BOB, created_with=top.id)
        of_minted = harness.token(at + 3, EVE, created_with=minted.id)
        child_of_minted = harness.derive(at + 4, minted)
        harness.revoke(top, cascade=cascade)
        outlived = harness.live_numbers(top, minted, of_minted, child_of_minted)
        assert outlived == ([] if cascade else [2, 3, 4])


def test_cascade_follows_derived_tokens(harness: StoreHarness) -> None:
    top = harness.token(1, ADMIN)
    child = harness.derive(2, top)
    minted = harness.token(3, BOB, created_with=child.id)
    harness.revoke(top, cascade=True)
    assert harness.live_numbers(top, child, minted) == []


def test_cascade_counts_revoked_tokens(harness: StoreHarness, location: StoreLocation) -> None:
    top = harness.token(1, ADMIN)
    harness.token(2, BOB, owner=ADMIN, created_with=top.id)
    harness.token(3, BOB, owner=ADMIN)
    assert harness.run(harness.store.revoke_token(SYSTEM, top.id, TokenVisibility(ADMIN), cascade=True)) == (NOW, 2)
    assert (
        harness.total()
        == harness.total(where(Field.ACTOR_URN, BOB))
        == harness.total(where(Field.OWNER_URN, ADMIN))
        == 1
    )
    assert location.problems() == []


@pytest.mark.parametrize("cascade", [False, True])
def test_invisible_token_is_not_found(harness: StoreHarness, cascade: bool) -> None:
    token = harness.token(1, ANN, owner=BOB)
    of_account = harness.token(2, ANN, type=TokenType.PERSONAL)
    for visibility in (TokenVisibility(EVE), TokenVisibility(EVE, accounts=True)):
        for wanted in (token.id, of_account.id, "no such id"):
            fault = harness.fault_of(
                harness.store.revoke_token(harness.precondition(EVE), wanted, visibility, cascade=cascade)
            )
            assert fault.reason is Reason.TOKEN_NOT_FOUND
    assert harness.live_numbers(token, of_account) == [1, 2]
    for visibility in (TokenVisibility(ANN), TokenVisibility(BOB)):
        at = 10 if visibility.actor == ANN else 20
        assert harness.run(
            harness.store.revoke_token(SYSTEM, harness.token(at, ANN, owner=BOB).id, visibility, cascade=cascade)
        )


@pytest.mark.parametrize("cascade", [False, True])
def test_second_revocation_reports_the_first(harness: StoreHarness, cascade: bool) -> None:
    token = harness.token(1)
    harness.revoke(token)
    fault = harness.fault_of(harness.store.revoke_token(SYSTEM, token.id, None, cascade=cascade))
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
def test_derived_token_cannot_outlive_its_parent(
    harness: StoreHarness, location: StoreLocation, parent_end: int | None, child_end: int | None, fits: bool
) -> None:
    parent = harness.token(1, expires_at=parent_end)
    child = derived(2, parent, expires_at=child_end)
    work = harness.store.add_token(harness.precondition(ANN, parent), child, harness.issue())
    if fits:
        harness.run(work)
    else:
        harness.assert_stale(work)
    assert (harness.stored(child) is not None) == fits
    assert location.problems() == []


def test_dead_token_cannot_derive(harness: StoreHarness) -> None:
    parent = harness.token(1)
    by_parent = harness.precondition(ANN, parent)
    harness.revoke(parent)
    for precondition in (by_parent, SYSTEM):
        harness.assert_stale(harness.store.add_token(precondition, derived(2, parent), harness.issue()))
    assert harness.stored(derived(2, parent)) is None


def test_suspended_actor_cannot_derive(harness: StoreHarness) -> None:
    parent = harness.token(1)
    by_parent = harness.precondition(ANN, parent)
    harness.run(harness.store.set_actor_status(SYSTEM, ANN, ActorStatus.SUSPENDED))
    harness.assert_stale(harness.store.add_token(by_parent, derived(2, parent), harness.issue()))
    assert harness.stored(derived(2, parent)) is None


def test_no_derived_token_survives_concurrent_revocation(
    harness: StoreHarness, other: Store, location: StoreLocation
) -> None:
    parent = harness.token(1)
    precondition = harness.precondition(ANN, parent)
    children = [derived(n, parent) for n in range(2, 60)]
    stores = (harness.store, other)
    work: list[Any] = [
        stores[n % 2].add_token(precondition, child, harness.issue()) for n, child in enumerate(children)
    ]
    work.insert(20, other.revoke_token(SYSTEM, parent.id, None))
    harness.run(all_of(work))
    assert harness.live_numbers(parent, *children) == []
    assert harness.total() == 0
    assert location.problems() == []


def test_expired_child_is_unchanged_by_revocation(harness: StoreHarness, location: StoreLocation) -> None:
    parent = harness.token(1)
    child = harness.derive(2, parent, expires_at=NOW + 10)
    harness.clock.now = NOW + 10
    harness.revoke(parent)
    assert harness.stored(child) == child
    assert location.problems() == []
