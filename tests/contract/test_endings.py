"""Many tokens are ended at once, whole or not at all, with a receipt that anybody can check."""

import hashlib
from typing import Any

import pytest

from tests.contract.given import (
    ADMIN,
    ANN,
    BOB,
    EVE,
    HOUR,
    SECOND,
    SYSTEM,
    Given,
    account,
    all_of,
    record,
    where,
)
from tests.support.backends import NOW, Place
from watchword.domain.bulk_revocation import MOST, Receipt, RevocationPreview, Selection, Share, TokenVisibility
from watchword.domain.errors import Fault, Reason
from watchword.domain.filters import Condition, Field, Filter
from watchword.domain.ports import Store
from watchword.domain.tokens import TokenRecord, TokenType


def digest(*tokens: TokenRecord) -> str:
    """Of their ids in order, a line each."""
    return hashlib.sha256("".join(f"{token.id}\n" for token in sorted(tokens, key=lambda t: t.id)).encode()).hexdigest()


def named(text: str) -> Filter:
    return where(Field.NAME, text, condition=Condition.CONTAIN)


def test_what_filters_mean_is_ended_in_one_moment_with_a_receipt(given: Given, place: Place) -> None:
    tokens = [given.token(n, ANN if n % 2 else BOB, owner=EVE) for n in range(10)]
    given.clock.now = NOW + 5
    receipt = given.end(where(Field.ACTOR_URN, ANN))
    assert receipt == Receipt(5, digest(*tokens[1::2]), NOW + 5)
    assert given.live(*tokens) == [0, 2, 4, 6, 8]
    assert {kept.revoked_at for token in tokens[1::2] if (kept := given.kept(token))} == {NOW + 5}
    assert given.total() == given.total(where(Field.OWNER_URN, EVE)) == given.total(where(Field.ACTOR_URN, BOB)) == 5
    assert given.total(where(Field.ACTOR_URN, ANN)) == 0
    assert place.problems() == []


def test_each_leaves_its_event_and_one_tells_of_all(given: Given, place: Place) -> None:
    tokens = [given.token(n) for n in range(3)]
    given.token(9, BOB)
    before = len(place.events())
    receipt = given.end(where(Field.ACTOR_URN, ANN), named("token"))
    left = place.events()[before:]
    assert sorted((event.action, event.target) for event in left) == sorted(
        [*(("token.revoked", token.id) for token in tokens), ("tokens.revoked", receipt.digest)]
    )
    assert left[-1].detail == {
        "count": 3,
        "ids": None,
        "filters": ["actorUrn EQUAL", "name CONTAIN"],
        "cascade": False,
    }


def test_what_ids_name_is_ended_and_what_is_unknown_or_revoked_is_left_out(given: Given) -> None:
    tokens = [given.token(n) for n in range(4)]
    given.revoke(tokens[0])
    wanted = (tokens[0].id, tokens[1].id, tokens[2].id, record(99).id)
    assert given.end(ids=wanted) == Receipt(2, digest(*tokens[1:3]), NOW)
    assert given.end(ids=wanted) == Receipt(0, digest(), NOW)
    assert given.live(*tokens) == [3]


def test_ids_and_filters_together_mean_what_both_mean(given: Given) -> None:
    tokens = [given.token(n, ANN if n < 2 else BOB) for n in range(4)]
    given.end(where(Field.ACTOR_URN, BOB), ids=(tokens[1].id, tokens[2].id))
    assert given.live(*tokens) == [0, 1, 3]


def test_nothing_beyond_the_reach_is_ended_but_what_dies_with_what_is_within_it(given: Given) -> None:
    given.run(given.store.add_account(SYSTEM, account(1)))
    own, by_her, others = given.token(1, ANN), given.token(2, BOB, owner=ANN), given.token(3, BOB)
    machine = given.token(4, account(1).urn, type=TokenType.SERVICE_ACCOUNT)
    child = given.derive(5, own, owner=EVE)
    every = (own, by_her, others, machine, child)
    ids = tuple(token.id for token in every)
    reached = {
        TokenVisibility(ANN): [1, 2, 5],
        TokenVisibility(ANN, accounts=True): [1, 2, 4, 5],
        TokenVisibility(EVE): [5],
        None: [1, 2, 3, 4, 5],
    }
    for visibility, numbers in reached.items():
        assert given.preview(ids=ids, visibility=visibility).count == len(numbers)
    given.end(ids=ids, visibility=TokenVisibility(ANN, accounts=True))
    assert given.live(*every) == [3]


def test_what_dies_with_the_chosen_is_counted_and_in_the_receipt(given: Given, place: Place) -> None:
    top = given.token(1, name="chosen 1")
    child = given.derive(2, top)
    new = given.rotate(3, top)
    minted = given.token(4, BOB, minted_with=child.id)
    given.token(5, BOB)
    assert given.preview(named("chosen")).count == 3
    assert given.preview(named("chosen"), cascade=True) == RevocationPreview(4, (Share(ANN, 3), Share(BOB, 1)))
    assert given.end(named("chosen")) == Receipt(3, digest(top, child, new), NOW)
    assert given.live(minted) == [4]
    assert place.problems() == []


def test_with_a_cascade_what_was_minted_with_any_of_them_dies_too(given: Given) -> None:
    tops = [given.token(n, ADMIN) for n in (1, 2)]
    minted = [given.token(10 + n, BOB, minted_with=top.id) for n, top in enumerate(tops)]
    of_minted = given.token(20, EVE, minted_with=minted[0].id)
    stranger = given.token(30, EVE)
    receipt = given.end(where(Field.ACTOR_URN, ADMIN), cascade=True)
    assert receipt == Receipt(5, digest(*tops, *minted, of_minted), NOW)
    assert given.live(*tops, *minted, of_minted, stranger) == [30]


def test_an_expired_unused_successor_does_not_take_the_old_one_along(given: Given) -> None:
    old = given.token(1)
    new = given.rotate(2, old, name="waiting 2", expires_at=NOW + SECOND)
    given.clock.now = NOW + SECOND
    given.end(named("waiting"))
    assert given.live(old, new) == [1]


def test_the_prospect_tells_whose_they_are_most_first_and_changes_nothing(given: Given, place: Place) -> None:
    for n in range(6):
        given.token(n, (ANN, BOB, BOB, EVE, EVE, ADMIN)[n])
    before = place.events()
    assert given.preview(everything=True) == RevocationPreview(
        6, (Share(BOB, 2), Share(EVE, 2), Share(ADMIN, 1), Share(ANN, 1))
    )
    assert given.preview(where(Field.ACTOR_URN, "urn:li:corpuser:nobody")) == RevocationPreview(0, ())
    assert place.events() == before
    assert given.total() == 6


def test_what_means_all_there_are_must_say_so(given: Given, place: Place) -> None:
    tokens = [given.token(n) for n in range(3)]
    before = place.events()
    all_of_them = Selection(filters=(named("token"),))
    for work in (given.store.revocation_preview(all_of_them), given.store.revoke_tokens(SYSTEM, all_of_them)):
        fault = given.refused(work)
        assert (fault.reason, fault.details) == (Reason.INVALID_FIELD, {"field": "all"})
    assert place.events() == before
    assert given.live(*tokens) == [0, 1, 2]
    assert given.preview(named("token"), named("1")).count == 1
    assert given.end(named("token"), everything=True).count == 3


def test_by_name_nobody_means_all_there_are_by_mistake(given: Given) -> None:
    tokens = [given.token(n) for n in range(3)]
    given.end(where(Field.ACTOR_URN, ANN), ids=(tokens[0].id,))
    given.end(where(Field.OWNER_URN, ANN, condition=Condition.IN))
    assert given.live(*tokens) == []


def test_what_means_none_is_no_fault(given: Given) -> None:
    assert given.end(named("token")) == Receipt(0, digest(), NOW)


def test_dead_tokens_stay_as_they_are(given: Given) -> None:
    expired, revoked, live = given.token(1, expires_at=NOW), given.token(2), given.token(3, expires_at=None)
    given.revoke(revoked)
    given.clock.now = NOW + HOUR
    receipt = given.end(where(Field.ACTOR_URN, ANN))
    assert receipt == Receipt(1, digest(live), NOW + HOUR)
    ends = [kept.revoked_at for token in (expired, revoked) if (kept := given.kept(token))]
    assert ends == [None, NOW]


def test_a_search_in_texts_is_done_before_the_write(given: Given) -> None:
    ours, others = given.token(1, name="job 1"), given.token(2, name="laptop 2")
    receipt = given.end(where(Field.NAME, "job", condition=Condition.START_WITH))
    assert receipt.count == 1
    assert given.live(ours, others) == [2]


def test_more_than_may_be_ended_at_once_is_refused_and_changes_nothing(given: Given, place: Place) -> None:
    place.put_many(ANN, MOST + 1)
    kept = given.token(1, BOB)
    for work in (
        given.store.revocation_preview(Selection(filters=(where(Field.ACTOR_URN, ANN),)), 60),
        given.store.revoke_tokens(SYSTEM, Selection(filters=(where(Field.ACTOR_URN, ANN),))),
    ):
        assert given.refused(work).reason is Reason.TOO_MANY_AT_ONCE
    assert given.total() == MOST + 2
    assert given.live(kept) == [1]


def test_more_than_were_allowed_for_are_refused_and_none_is_ended(given: Given, place: Place) -> None:
    parent = given.token(1)
    family = [parent, given.derive(2, parent), given.token(3)]
    before = place.events()
    fault = given.refused(given.store.revoke_tokens(SYSTEM, Selection(filters=(BY_ANN,), at_most=2)))
    assert fault.reason is Reason.MORE_THAN_ALLOWED_FOR
    assert given.live(*family) == [1, 2, 3]
    assert place.events() == before
    assert given.preview(BY_ANN, at_most=2).count == 3
    assert given.end(BY_ANN, at_most=3).count == 3


@pytest.mark.parametrize("cascade", [False, True])
def test_what_is_minted_while_its_bearer_is_being_ended_dies_with_the_cascade(
    given: Given, other: Store, place: Place, cascade: bool
) -> None:
    bearer = given.token(1, ANN)
    precondition = given.precondition(ANN, bearer)
    minted = [record(n, ANN, minted_with=bearer.id) for n in range(2, 60)]
    stores = (given.store, other)
    work: list[Any] = [stores[n % 2].add_token(precondition, token, given.issue()) for n, token in enumerate(minted)]
    selection = Selection(ids=(bearer.id,), cascade=True) if cascade else Selection(filters=(BY_ANN,))
    work.insert(20, other.revoke_tokens(SYSTEM, selection))
    results = given.run(all_of(work))
    assert not [found for found in results if isinstance(found, Fault)]
    assert given.live(bearer, *minted) == []
    assert place.problems() == []


BY_ANN = where(Field.ACTOR_URN, ANN)
