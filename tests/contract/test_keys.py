from dataclasses import replace

import pytest

from tests.contract.given import HOUR, PLENTY, SYSTEM, Given, Run, all_of, key, record
from tests.support.backends import NOW, Hand, Place
from watchword.domain.ports import SealedKey, Store


def retired(given: Given) -> SealedKey:
    """The key in use before a rotation now."""
    given.run(given.store.rotate_key(SYSTEM, key(2)))
    newest, before = given.run(given.store.keys())
    assert newest == key(2)
    return before


def test_a_new_store_has_neither_salt_nor_key(run: Run, store: Store) -> None:
    assert run(store.sealed_salt()) is None
    assert run(store.keys()) == ()


def test_the_first_salt_and_key_stay(run: Run, store: Store, other: Store) -> None:
    run(store.settle_keys(b"first", key(1)))
    run(store.settle_keys(b"second", key(2)))
    run(other.settle_keys(b"third", key(3)))
    assert run(other.sealed_salt()) == b"first"
    assert run(other.keys()) == (key(1),)


def test_of_many_that_start_together_one_settles_the_keys(run: Run, store: Store, other: Store, place: Place) -> None:
    outcomes = run(all_of((store, other)[n % 2].settle_keys(b"salt %d" % n, key(n)) for n in range(20)))
    assert outcomes == [None] * 20
    (kept,) = run(store.keys())
    assert run(store.sealed_salt()) == b"salt %d" % int(kept.kid.removeprefix("kid-"))
    assert [event.action for event in place.events()] == ["key.created"]


def test_keys_come_newest_first_whatever_the_clock_says(given: Given, clock: Hand) -> None:
    clock.now = NOW - HOUR
    for number in (5, 3, 4):
        given.run(given.store.rotate_key(SYSTEM, key(number, created_at=clock.now)))
    assert [kept.kid for kept in given.run(given.store.keys())] == ["kid-4", "kid-3", "kid-5", "kid-1"]


def test_only_the_newest_key_signs(given: Given) -> None:
    given.run(given.store.rotate_key(SYSTEM, key(2)))
    given.stale(given.store.add_token(SYSTEM, record(1), key(1).kid, PLENTY))
    given.run(given.store.add_token(SYSTEM, record(1), key(2).kid, PLENTY))
    assert [kept.retired_at is None for kept in given.run(given.store.keys())] == [True, False]


def test_a_retired_key_without_live_tokens_is_published_no_longer(given: Given) -> None:
    given.clock.now = NOW + 7
    before = retired(given)
    assert before == replace(key(1), retired_at=NOW + 7, published_until=NOW + 7)
    assert not before.is_published(NOW + 7)


def test_a_retired_key_is_published_until_its_last_token_has_ended(given: Given) -> None:
    for number, end in ((1, NOW + HOUR), (2, NOW + 3 * HOUR), (3, NOW + 2 * HOUR)):
        given.token(number, expires_at=end)
    before = retired(given)
    assert before.published_until == NOW + 3 * HOUR
    assert before.is_published(NOW + 3 * HOUR - 1)
    assert not before.is_published(NOW + 3 * HOUR)


def test_a_revoked_token_keeps_no_key_published(given: Given) -> None:
    given.token(1, expires_at=NOW + HOUR)
    given.revoke(given.token(2, expires_at=NOW + 9 * HOUR))
    given.revoke(given.token(3, expires_at=None))
    assert retired(given).published_until == NOW + HOUR


def test_an_expired_token_keeps_no_key_published(given: Given) -> None:
    given.token(1, expires_at=NOW + HOUR)
    given.clock.now = NOW + 2 * HOUR
    assert not retired(given).is_published(given.clock.now)


@pytest.mark.parametrize("years", [0, 1, 1_000])
def test_a_token_that_never_ends_keeps_its_key_published(given: Given, years: int) -> None:
    given.token(1, expires_at=NOW + HOUR)
    given.token(2, expires_at=None)
    before = retired(given)
    assert before.published_until is None
    assert before.is_published(NOW + years * 365 * 24 * HOUR)


def test_a_later_rotation_leaves_earlier_keys_as_they_were(given: Given) -> None:
    given.token(1, expires_at=NOW + HOUR)
    before = retired(given)
    given.clock.now = NOW + HOUR
    given.run(given.store.add_token(SYSTEM, record(2, expires_at=NOW + 9 * HOUR), key(2).kid, PLENTY))
    given.run(given.store.rotate_key(SYSTEM, key(3)))
    third, second, first = given.run(given.store.keys())
    assert first == before
    assert (third.published_until, second.published_until) == (None, NOW + 9 * HOUR)


def test_the_key_in_use_is_always_published(given: Given) -> None:
    (current,) = given.run(given.store.keys())
    assert current.is_published(NOW + 10**15)
