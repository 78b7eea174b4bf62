"""Bulk revocation is atomic and returns a verifiable receipt."""

import hashlib
from typing import Any

import pytest

from tests.contract.harness import (
    ADMIN,
    ANN,
    BOB,
    EVE,
    HOUR,
    SECOND,
    SYSTEM,
    StoreHarness,
    account,
    all_of,
    record,
    where,
)
from tests.support.backends import NOW, StoreLocation
from watchword.basics.errors import Fault, Reason
from watchword.stores.joined import Store
from watchword.tokens.bulk_revocation import MOST, Receipt, RevocationPreview, Selection, Share, TokenVisibility
from watchword.tokens.filters import Condition, Field, Filter
from watchword.tokens.rules import TokenRecord, TokenType


def digest(*tokens: TokenRecord) -> str:
    """SHA-256 of the sorted ids, one per line."""
    return hashlib.sha256("".join(f"{token.id}\n" for token in sorted(tokens, key=lambda t: t.id)).encode()).hexdigest()


def named(text: str) -> Filter:
    return where(Field.NAME, text, condition=Condition.CONTAIN)


def test_filters_revoke_matching_tokens_with_a_receipt(harness: StoreHarness, location: StoreLocation) -> None:
    tokens = [harness.token(n, ANN if n % 2 else BOB, owner=EVE) for n in range(10)]
    harness.clock.now = NOW + 5
    receipt = harness.revoke_matching(where(Field.ACTOR_URN, ANN))
    assert receipt == Receipt(5, digest(*tokens[1::2]), NOW + 5)
    assert harness.live_numbers(*tokens) == [0, 2, 4, 6, 8]
    assert {kept.revoked_at for token in tokens[1::2] if (kept := harness.stored(token))} == {NOW + 5}
    assert (
        harness.total() == harness.total(where(Field.OWNER_URN, EVE)) == harness.total(where(Field.ACTOR_URN, BOB)) == 5
    )
    assert harness.total(where(Field.ACTOR_URN, ANN)) == 0
    assert location.problems() == []


def test_bulk_revocation_writes_one_event_per_token_and_a_summary(
    harness: StoreHarness, location: StoreLocation
) -> None:
    tokens = [harness.token(n) for n in range(3)]
    harness.token(9, BOB)
    before = len(location.events())
    receipt = harness.revoke_matching(where(Field.ACTOR_URN, ANN), named("token"))
    left = location.events()[before:]
    assert sorted((event.action, event.target) for event in left) == sorted(
        [*(("token.revoked", token.id) for token in tokens), ("tokens.revoked", receipt.digest)]
    )
    assert left[-1].detail == {
        "count": 3,
        "ids": None,
        "filters": ["actorUrn EQUAL", "name CONTAIN"],
        "cascade": False,
    }


def test_unknown_and_revoked_ids_are_skipped(harness: StoreHarness) -> None:
    tokens = [harness.token(n) for n in range(4)]
    harness.revoke(tokens[0])
    wanted = (tokens[0].id, tokens[1].id, tokens[2].id, record(99).id)
    assert harness.revoke_matching(ids=wanted) == Receipt(2, digest(*tokens[1:3]), NOW)
    assert harness.revoke_matching(ids=wanted) == Receipt(0, digest(), NOW)
    assert harness.live_numbers(*tokens) == [3]


def test_ids_and_filters_are_anded(harness: StoreHarness) -> None:
    tokens = [harness.token(n, ANN if n < 2 else BOB) for n in range(4)]
    harness.revoke_matching(where(Field.ACTOR_URN, BOB), ids=(tokens[1].id, tokens[2].id))
    assert harness.live_numbers(*tokens) == [0, 1, 3]


def test_only_visible_tokens_and_their_descendants_are_revoked(harness: StoreHarness) -> None:
    harness.run(harness.store.add_account(SYSTEM, account(1)))
    own, by_her, others = harness.token(1, ANN), harness.token(2, BOB, owner=ANN), harness.token(3, BOB)
    machine = harness.token(4, account(1).urn, type=TokenType.SERVICE_ACCOUNT)
    child = harness.derive(5, own, owner=EVE)
    every = (own, by_her, others, machine, child)
    ids = tuple(token.id for token in every)
    reached = {
        TokenVisibility(ANN): [1, 2, 5],
        TokenVisibility(ANN, accounts=True): [1, 2, 4, 5],
        TokenVisibility(EVE): [5],
        None: [1, 2, 3, 4, 5],
    }
    for visibility, numbers in reached.items():
        assert harness.preview(ids=ids, visibility=visibility).count == len(numbers)
    harness.revoke_matching(ids=ids, visibility=TokenVisibility(ANN, accounts=True))
    assert harness.live_numbers(*every) == [3]


def test_preview_and_receipt_count_relatives(harness: StoreHarness, location: StoreLocation) -> None:
    top = harness.token(1, name="chosen 1")
    child = harness.derive(2, top)
    new = harness.rotate(3, top)
    minted = harness.token(4, BOB, created_with=child.id)
    harness.token(5, BOB)
    assert harness.preview(named("chosen")).count == 3
    assert harness.preview(named("chosen"), cascade=True) == RevocationPreview(4, (Share(ANN, 3), Share(BOB, 1)))
    assert harness.revoke_matching(named("chosen")) == Receipt(3, digest(top, child, new), NOW)
    assert harness.live_numbers(minted) == [4]
    assert location.problems() == []


def test_cascade_revokes_minted_tokens(harness: StoreHarness) -> None:
    tops = [harness.token(n, ADMIN) for n in (1, 2)]
    minted = [harness.token(10 + n, BOB, created_with=top.id) for n, top in enumerate(tops)]
    of_minted = harness.token(20, EVE, created_with=minted[0].id)
    stranger = harness.token(30, EVE)
    receipt = harness.revoke_matching(where(Field.ACTOR_URN, ADMIN), cascade=True)
    assert receipt == Receipt(5, digest(*tops, *minted, of_minted), NOW)
    assert harness.live_numbers(*tops, *minted, of_minted, stranger) == [30]


def test_expired_unused_successor_does_not_revoke_its_predecessor(harness: StoreHarness) -> None:
    old = harness.token(1)
    new = harness.rotate(2, old, name="waiting 2", expires_at=NOW + SECOND)
    harness.clock.now = NOW + SECOND
    harness.revoke_matching(named("waiting"))
    assert harness.live_numbers(old, new) == [1]


def test_preview_counts_per_actor_and_changes_nothing(harness: StoreHarness, location: StoreLocation) -> None:
    for n in range(6):
        harness.token(n, (ANN, BOB, BOB, EVE, EVE, ADMIN)[n])
    before = location.events()
    assert harness.preview(everything=True) == RevocationPreview(
        6, (Share(BOB, 2), Share(EVE, 2), Share(ADMIN, 1), Share(ANN, 1))
    )
    assert harness.preview(where(Field.ACTOR_URN, "urn:li:corpuser:nobody")) == RevocationPreview(0, ())
    assert location.events() == before
    assert harness.total() == 6


def test_revoking_all_tokens_requires_the_all_flag(harness: StoreHarness, location: StoreLocation) -> None:
    tokens = [harness.token(n) for n in range(3)]
    before = location.events()
    all_of_them = Selection(filters=(named("token"),))
    for work in (harness.store.revocation_preview(all_of_them), harness.store.revoke_tokens(SYSTEM, all_of_them)):
        fault = harness.fault_of(work)
        assert (fault.reason, fault.details) == (Reason.INVALID_FIELD, {"field": "all"})
    assert location.events() == before
    assert harness.live_numbers(*tokens) == [0, 1, 2]
    assert harness.preview(named("token"), named("1")).count == 1
    assert harness.revoke_matching(named("token"), everything=True).count == 3


def test_selection_by_id_or_actor_needs_no_all_flag(harness: StoreHarness) -> None:
    tokens = [harness.token(n) for n in range(3)]
    harness.revoke_matching(where(Field.ACTOR_URN, ANN), ids=(tokens[0].id,))
    harness.revoke_matching(where(Field.OWNER_URN, ANN, condition=Condition.IN))
    assert harness.live_numbers(*tokens) == []


def test_empty_selection_revokes_nothing_and_writes_no_event(harness: StoreHarness, location: StoreLocation) -> None:
    before = location.events()
    assert harness.revoke_matching(named("token")) == Receipt(0, digest(), NOW)
    assert location.events() == before


def test_dead_tokens_are_unchanged(harness: StoreHarness) -> None:
    expired, revoked, live = harness.token(1, expires_at=NOW), harness.token(2), harness.token(3, expires_at=None)
    harness.revoke(revoked)
    harness.clock.now = NOW + HOUR
    receipt = harness.revoke_matching(where(Field.ACTOR_URN, ANN))
    assert receipt == Receipt(1, digest(live), NOW + HOUR)
    ends = [kept.revoked_at for token in (expired, revoked) if (kept := harness.stored(token))]
    assert ends == [None, NOW]


def test_text_filters_select_tokens_to_revoke(harness: StoreHarness) -> None:
    ours, others = harness.token(1, name="job 1"), harness.token(2, name="laptop 2")
    receipt = harness.revoke_matching(where(Field.NAME, "job", condition=Condition.START_WITH))
    assert receipt.count == 1
    assert harness.live_numbers(ours, others) == [2]


def test_selection_above_the_hard_limit_is_rejected(harness: StoreHarness, location: StoreLocation) -> None:
    location.put_many(ANN, MOST + 1)
    kept = harness.token(1, BOB)
    for work in (
        harness.store.revocation_preview(Selection(filters=(where(Field.ACTOR_URN, ANN),)), 60),
        harness.store.revoke_tokens(SYSTEM, Selection(filters=(where(Field.ACTOR_URN, ANN),))),
    ):
        assert harness.fault_of(work).reason is Reason.TOO_MANY_AT_ONCE
    assert harness.total() == MOST + 2
    assert harness.live_numbers(kept) == [1]


def test_selection_above_at_most_is_rejected(harness: StoreHarness, location: StoreLocation) -> None:
    parent = harness.token(1)
    family = [parent, harness.derive(2, parent), harness.token(3)]
    before = location.events()
    fault = harness.fault_of(harness.store.revoke_tokens(SYSTEM, Selection(filters=(BY_ANN,), at_most=2)))
    assert fault.reason is Reason.MORE_THAN_ALLOWED_FOR
    assert harness.live_numbers(*family) == [1, 2, 3]
    assert location.events() == before
    assert harness.preview(BY_ANN, at_most=2).count == 3
    assert harness.revoke_matching(BY_ANN, at_most=3).count == 3


@pytest.mark.parametrize("cascade", [False, True])
def test_tokens_minted_during_a_cascade_are_revoked(
    harness: StoreHarness, other: Store, location: StoreLocation, cascade: bool
) -> None:
    bearer = harness.token(1, ANN)
    precondition = harness.precondition(ANN, bearer)
    minted = [record(n, ANN, created_with=bearer.id) for n in range(2, 60)]
    stores = (harness.store, other)
    work: list[Any] = [stores[n % 2].add_token(precondition, token, harness.issue()) for n, token in enumerate(minted)]
    selection = Selection(ids=(bearer.id,), cascade=True) if cascade else Selection(filters=(BY_ANN,))
    work.insert(20, other.revoke_tokens(SYSTEM, selection))
    results = harness.run(all_of(work))
    assert not [found for found in results if isinstance(found, Fault)]
    assert harness.live_numbers(bearer, *minted) == []
    assert location.problems() == []


BY_ANN = where(Field.ACTOR_URN, ANN)
