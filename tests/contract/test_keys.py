import asyncio
from dataclasses import replace

import pytest

from tests.contract.given import HOUR, PLENTY, SYSTEM, Given, Run, all_of, key, record
from tests.support.backends import NOW, Hand, Place
from watchword.domain.errors import Stale
from watchword.domain.ports import Issue, SealedKey, Store
from watchword.domain.secret import Secret
from watchword.signing import KeyRing, Sealer


def retired(given: Given) -> SealedKey:
    """The key in use before a rotation now."""
    given.rotate_key(3)
    newest, before = given.run(given.store.keys())
    assert newest == key(2)
    return before


def test_a_new_store_has_neither_salt_nor_key(run: Run, store: Store) -> None:
    assert run(store.sealed_salt()) is None
    assert run(store.keys()) == ()
    assert run(store.next_key()) is None


def test_the_first_salt_and_keys_stay(run: Run, store: Store, other: Store) -> None:
    run(store.settle_keys(b"first", key(1), key(11)))
    run(store.settle_keys(b"second", key(2), key(12)))
    run(other.settle_keys(b"third", key(3), key(13)))
    run(other.settle_next(key(14)))
    assert run(other.sealed_salt()) == b"first"
    assert run(other.keys()) == (key(1),)
    assert run(other.next_key()) == key(11)


def test_of_many_that_start_together_one_settles_the_keys(run: Run, store: Store, other: Store, place: Place) -> None:
    outcomes = run(all_of((store, other)[n % 2].settle_keys(b"salt %d" % n, key(n), key(n + 20)) for n in range(20)))
    assert outcomes == [None] * 20
    (kept,) = run(store.keys())
    number = int(kept.kid.removeprefix("kid-"))
    assert run(store.sealed_salt()) == b"salt %d" % number
    assert run(store.next_key()) == key(number + 20)
    assert [event.action for event in place.events()] == ["key.created"]


def test_of_many_that_start_together_on_a_store_without_a_next_key_one_makes_it(
    run: Run, store: Store, other: Store
) -> None:
    outcomes = run(all_of((store, other)[n % 2].settle_next(key(n)) for n in range(20)))
    assert outcomes == [None] * 20
    assert run(store.next_key()) in [key(n) for n in range(20)]
    assert run(other.next_key()) == run(store.next_key())


def test_of_many_that_rotate_together_one_does_and_its_next_key_is_kept(
    given: Given, other: Store, place: Place
) -> None:
    before = len(place.events())
    stores = (given.store, other)
    done = given.run(all_of(stores[n % 2].rotate_key(SYSTEM, "kid-2", key(10 + n)) for n in range(20)))
    (winner,) = (n for n, outcome in enumerate(done) if outcome is None)
    assert {type(outcome) for n, outcome in enumerate(done) if n != winner} == {Stale}
    assert [kept.kid for kept in given.run(other.keys())] == ["kid-2", "kid-1"]
    assert given.run(other.next_key()) == key(10 + winner)
    assert [event.action for event in place.events()[before:]] == ["key.rotated"]


@pytest.mark.parametrize("kid", ["kid-1", "kid-3", ""])
def test_only_the_kept_next_key_can_become_the_one_in_use(given: Given, kid: str) -> None:
    given.stale(given.store.rotate_key(SYSTEM, kid, key(3)))
    assert given.run(given.store.keys()) == (key(1),)
    assert given.run(given.store.next_key()) == key(2)


def test_keys_come_newest_first_whatever_the_clock_says(given: Given, clock: Hand) -> None:
    clock.now = NOW - HOUR
    for number in (5, 3, 4):
        given.rotate_key(number)
    assert [kept.kid for kept in given.run(given.store.keys())] == ["kid-3", "kid-5", "kid-2", "kid-1"]


def test_only_the_newest_key_signs(given: Given) -> None:
    given.rotate_key(3)
    given.stale(given.store.add_token(SYSTEM, record(1), Issue(key(1).kid, PLENTY)))
    given.run(given.store.add_token(SYSTEM, record(1), Issue(key(2).kid, PLENTY)))
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


@pytest.mark.parametrize("full_end", [NOW + 9 * HOUR, None])
def test_a_successor_that_was_not_used_yet_keeps_its_key_published_until_its_full_end(
    given: Given, full_end: int | None
) -> None:
    old = given.token(1, expires_at=NOW + 2 * HOUR)
    pending = record(2, expires_at=NOW + HOUR, full_end=full_end, replaces=old.id, root=old.id, grace=5)
    given.run(given.store.rotate_token(SYSTEM, old, pending, Issue(given.kid, PLENTY)))
    assert retired(given).published_until == full_end


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
    given.run(given.store.add_token(SYSTEM, record(2, expires_at=NOW + 9 * HOUR), Issue(key(2).kid, PLENTY)))
    given.rotate_key(4)
    third, second, first = given.run(given.store.keys())
    assert first == before
    assert (third.published_until, second.published_until) == (None, NOW + 9 * HOUR)


def test_the_key_in_use_is_always_published(given: Given) -> None:
    (current,) = given.run(given.store.keys())
    assert current.is_published(NOW + 10**15)


def test_rotations_at_once_all_succeed_and_lead_to_keys_that_were_published_before(
    run: Run, store: Store, other: Store
) -> None:
    rings = [KeyRing(one, Sealer(Secret(b"k" * 32)), "https://tokens.example", store.clock) for one in (store, other)]

    async def rotated() -> None:
        for ring in rings:
            await ring.settle()
        for _ in range(3):
            published = {key["kid"] for key in (await rings[0].jwks())["keys"]}
            done = await asyncio.gather(*(ring.rotate(SYSTEM) for ring in rings))
            kept = {known.kid for known in await store.keys()}
            assert {key.kid for key in done} <= kept
            assert published & {key.kid for key in done}
            assert await rings[0].jwks() == await rings[1].jwks()

    run(rotated())
