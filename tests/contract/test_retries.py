"""A request under a key is kept for a day, in the transaction that keeps its token; another under it is told so."""

from dataclasses import replace
from typing import Any

import pytest

from tests.contract.given import ANN, BOB, HOUR, SYSTEM, Given, all_of, record, successor
from tests.support.backends import NOW, Place
from watchword.domain.idempotency import KEPT, IdempotencyRecord
from watchword.domain.ports import Issue, Repeated, Store
from watchword.domain.tokens import TokenRecord


def under(key: str, token: TokenRecord, actor: str = ANN) -> IdempotencyRecord:
    return IdempotencyRecord(actor, key, "kid-1", token.id, token.created_at, token.expires_at)


def test_what_was_asked_under_a_key_is_kept_with_its_token(given: Given) -> None:
    token = record(1, expires_at=None)
    retry = replace(under("digest", token), expires_at=NOW + 5)
    given.run(given.store.add_token(SYSTEM, token, given.issue(retry)))
    assert given.run(given.store.get_idempotency_record(ANN, "digest")) == retry
    assert given.run(given.store.get_idempotency_record(BOB, "digest")) is None
    assert given.run(given.store.get_idempotency_record(ANN, "another")) is None


def test_another_request_under_the_key_is_told_so_and_changes_nothing(given: Given, place: Place) -> None:
    first = record(1)
    given.run(given.store.add_token(SYSTEM, first, given.issue(under("digest", first))))
    before = place.events()
    for second in (record(2), record(2, BOB)):
        with pytest.raises(Repeated):
            given.run(given.store.add_token(SYSTEM, second, given.issue(under("digest", second))))
    old = record(1)
    new = successor(3, old)
    with pytest.raises(Repeated):
        given.run(given.store.rotate_token(SYSTEM, old, new, given.issue(under("digest", new))))
    assert given.kept(record(2)) is None
    assert given.kept(old) == old
    assert place.events() == before


def test_the_very_same_token_asked_for_again_under_its_key_is_told_so(given: Given) -> None:
    token = record(1)
    issue = given.issue(under("digest", token))
    given.run(given.store.add_token(SYSTEM, token, issue))
    with pytest.raises(Repeated):
        given.run(given.store.add_token(SYSTEM, token, issue))


def test_a_rotation_under_a_key_is_kept_too(given: Given) -> None:
    old = given.token(1)
    new = successor(2, old)
    given.run(given.store.rotate_token(SYSTEM, old, new, given.issue(under("digest", new))))
    assert given.run(given.store.get_idempotency_record(ANN, "digest")) == under("digest", new)


def test_keys_of_two_actors_are_two_keys(given: Given) -> None:
    one, two = record(1), record(2)
    given.run(given.store.add_token(SYSTEM, one, given.issue(under("digest", one, ANN))))
    given.run(given.store.add_token(SYSTEM, two, given.issue(under("digest", two, BOB))))
    assert given.live(one, two) == [1, 2]


def test_replay_of_a_live_token_leaves_an_event_and_of_a_dead_one_none(given: Given, place: Place) -> None:
    used, token = given.token(1, ANN), given.token(2, ANN)
    precondition = given.precondition(ANN, used)
    assert given.run(given.store.note_replay(precondition, token))
    event = place.events()[-1]
    assert (event.action, event.actor, event.bearer_id, event.target) == ("token.replayed", ANN, used.id, token.id)
    given.revoke(token)
    before = place.events()
    assert not given.run(given.store.note_replay(precondition, token))
    given.revoke(used)
    given.stale(given.store.note_replay(precondition, used))
    assert [event.action for event in place.events()[len(before) :]] == ["token.revoked"]


def test_after_a_day_a_key_is_as_new(given: Given) -> None:
    first, second = record(1, expires_at=None), record(2, created_at=NOW + KEPT, expires_at=None)
    given.run(given.store.add_token(SYSTEM, first, given.issue(under("digest", first))))
    given.clock.now = NOW + KEPT - 1
    assert given.run(given.store.get_idempotency_record(ANN, "digest")) is not None
    given.clock.now = NOW + KEPT
    assert given.run(given.store.get_idempotency_record(ANN, "digest")) is None
    given.run(given.store.add_token(SYSTEM, second, given.issue(under("digest", second))))
    assert given.run(given.store.get_idempotency_record(ANN, "digest")) == under("digest", second)


def test_a_refused_request_leaves_its_key_free(given: Given) -> None:
    token = record(1)
    retry = under("digest", token)
    given.refused(given.store.add_token(SYSTEM, token, Issue(given.kid, 0, retry)))
    given.stale(given.store.add_token(SYSTEM, token, Issue("old", 9, retry)))
    assert given.run(given.store.get_idempotency_record(ANN, "digest")) is None
    given.run(given.store.add_token(SYSTEM, token, Issue(given.kid, 9, retry)))


def test_of_many_requests_under_one_key_at_once_just_one_makes_a_token(given: Given, other: Store) -> None:
    stores = (given.store, other)
    old = given.token(100, expires_at=NOW + HOUR)
    tokens = [record(n) for n in range(40)]
    work: list[Any] = [
        stores[n % 2].add_token(SYSTEM, token, given.issue(under("digest", token))) for n, token in enumerate(tokens)
    ]
    new = successor(50, old)
    work.insert(10, other.rotate_token(SYSTEM, old, new, given.issue(under("digest", new))))
    results = given.run(all_of(work))
    assert sum(not isinstance(found, Repeated) for found in results) == 1, results
    assert len(given.live(*tokens, new)) == 1
