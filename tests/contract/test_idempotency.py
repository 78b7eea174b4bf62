"""An idempotency record is stored for a day in its token's transaction; a second request with the key is rejected."""

from dataclasses import replace
from typing import Any

import pytest

from tests.contract.harness import ANN, BOB, HOUR, SYSTEM, StoreHarness, all_of, record, successor
from tests.support.backends import NOW, StoreLocation
from watchword.stores.joined import Store
from watchword.tokens.idempotency import KEPT, IdempotencyRecord, Repeated
from watchword.tokens.rules import Issue, TokenRecord


def idempotency_record(key: str, token: TokenRecord, actor: str = ANN) -> IdempotencyRecord:
    return IdempotencyRecord(actor, key, "kid-1", token.id, token.created_at, token.expires_at)


def test_idempotency_record_is_stored_with_its_token(harness: StoreHarness) -> None:
    token = record(1, expires_at=None)
    retry = replace(idempotency_record("digest", token), expires_at=NOW + 5)
    harness.run(harness.store.add_token(SYSTEM, token, harness.issue(retry)))
    assert harness.run(harness.store.get_idempotency_record(ANN, "digest")) == retry
    assert harness.run(harness.store.get_idempotency_record(BOB, "digest")) is None
    assert harness.run(harness.store.get_idempotency_record(ANN, "another")) is None


def test_second_request_with_the_key_is_rejected(harness: StoreHarness, location: StoreLocation) -> None:
    first = record(1)
    harness.run(harness.store.add_token(SYSTEM, first, harness.issue(idempotency_record("digest", first))))
    before = location.events()
    for second in (record(2), record(2, BOB)):
        with pytest.raises(Repeated):
            harness.run(harness.store.add_token(SYSTEM, second, harness.issue(idempotency_record("digest", second))))
    old = record(1)
    new = successor(3, old)
    with pytest.raises(Repeated):
        harness.run(harness.store.rotate_token(SYSTEM, old, new, harness.issue(idempotency_record("digest", new))))
    assert harness.stored(record(2)) is None
    assert harness.stored(old) == old
    assert location.events() == before


def test_same_token_with_the_same_key_is_rejected(harness: StoreHarness) -> None:
    token = record(1)
    issue = harness.issue(idempotency_record("digest", token))
    harness.run(harness.store.add_token(SYSTEM, token, issue))
    with pytest.raises(Repeated):
        harness.run(harness.store.add_token(SYSTEM, token, issue))


def test_rotation_stores_its_idempotency_record(harness: StoreHarness) -> None:
    old = harness.token(1)
    new = successor(2, old)
    harness.run(harness.store.rotate_token(SYSTEM, old, new, harness.issue(idempotency_record("digest", new))))
    assert harness.run(harness.store.get_idempotency_record(ANN, "digest")) == idempotency_record("digest", new)


def test_idempotency_keys_are_per_actor(harness: StoreHarness) -> None:
    one, two = record(1), record(2)
    harness.run(harness.store.add_token(SYSTEM, one, harness.issue(idempotency_record("digest", one, ANN))))
    harness.run(harness.store.add_token(SYSTEM, two, harness.issue(idempotency_record("digest", two, BOB))))
    assert harness.live_numbers(one, two) == [1, 2]


def test_replay_of_a_live_token_writes_an_event(harness: StoreHarness, location: StoreLocation) -> None:
    used, token = harness.token(1, ANN), harness.token(2, ANN)
    precondition = harness.precondition(ANN, used)
    assert harness.run(harness.store.note_replay(precondition, token))
    event = location.events()[-1]
    assert (event.action, event.actor, event.bearer_id, event.target) == ("token.replayed", ANN, used.id, token.id)
    harness.revoke(token)
    before = location.events()
    assert not harness.run(harness.store.note_replay(precondition, token))
    harness.revoke(used)
    harness.assert_stale(harness.store.note_replay(precondition, used))
    assert [event.action for event in location.events()[len(before) :]] == ["token.revoked"]


def test_idempotency_key_is_reusable_after_a_day(harness: StoreHarness) -> None:
    first, second = record(1, expires_at=None), record(2, created_at=NOW + KEPT, expires_at=None)
    harness.run(harness.store.add_token(SYSTEM, first, harness.issue(idempotency_record("digest", first))))
    harness.clock.now = NOW + KEPT - 1
    assert harness.run(harness.store.get_idempotency_record(ANN, "digest")) is not None
    harness.clock.now = NOW + KEPT
    assert harness.run(harness.store.get_idempotency_record(ANN, "digest")) is None
    harness.run(harness.store.add_token(SYSTEM, second, harness.issue(idempotency_record("digest", second))))
    assert harness.run(harness.store.get_idempotency_record(ANN, "digest")) == idempotency_record("digest", second)


def test_rejected_request_does_not_use_up_its_key(harness: StoreHarness) -> None:
    token = record(1)
    retry = idempotency_record("digest", token)
    harness.fault_of(harness.store.add_token(SYSTEM, token, Issue(harness.kid, 0, retry)))
    harness.assert_stale(harness.store.add_token(SYSTEM, token, Issue("old", 9, retry)))
    assert harness.run(harness.store.get_idempotency_record(ANN, "digest")) is None
    harness.run(harness.store.add_token(SYSTEM, token, Issue(harness.kid, 9, retry)))


def test_concurrent_requests_with_one_key_create_one_token(harness: StoreHarness, other: Store) -> None:
    stores = (harness.store, other)
    old = harness.token(100, expires_at=NOW + HOUR)
    tokens = [record(n) for n in range(40)]
    work: list[Any] = [
        stores[n % 2].add_token(SYSTEM, token, harness.issue(idempotency_record("digest", token)))
        for n, token in enumerate(tokens)
    ]
    new = successor(50, old)
    work.insert(10, other.rotate_token(SYSTEM, old, new, harness.issue(idempotency_record("digest", new))))
    results = harness.run(all_of(work))
    assert sum(not isinstance(found, Repeated) for found in results) == 1, results
    assert len(harness.live_numbers(*tokens, new)) == 1
