import asyncio
from dataclasses import replace

import pytest

from tests.contract.harness import HOUR, PLENTY, SYSTEM, Run, StoreHarness, all_of, key, record
from tests.support.backends import NOW, SettableClock, StoreLocation
from watchword.basics.errors import Stale
from watchword.basics.secret import Secret
from watchword.stores.joined import Store
from watchword.tokens.keys import KeyKind, SealedKey
from watchword.tokens.keys_service import KeyRing, Sealer
from watchword.tokens.rules import Issue


def retired_key(harness: StoreHarness) -> SealedKey:
    """Rotate once and return the retired key."""
    harness.rotate_key(3)
    newest, before = harness.run(harness.store.keys())
    assert newest == key(2)
    return before


def test_new_store_has_no_salt_or_key(run: Run, store: Store) -> None:
    assert run(store.sealed_salt()) is None
    assert run(store.keys()) == ()
    assert run(store.next_key()) is None


def test_first_salt_and_keys_are_kept(run: Run, store: Store, other: Store) -> None:
    run(store.settle_keys(b"first", key(1), key(11)))
    run(store.settle_keys(b"second", key(2), key(12)))
    run(other.settle_keys(b"third", key(3), key(13)))
    run(other.settle_next(key(14)))
    assert run(other.sealed_salt()) == b"first"
    assert run(other.keys()) == (key(1),)
    assert run(other.next_key()) == key(11)


def test_concurrent_starts_settle_one_key(run: Run, store: Store, other: Store, location: StoreLocation) -> None:
    outcomes = run(all_of((store, other)[n % 2].settle_keys(b"salt %d" % n, key(n), key(n + 20)) for n in range(20)))
    assert outcomes == [None] * 20
    (kept,) = run(store.keys())
    number = int(kept.kid.removeprefix("kid-"))
    assert run(store.sealed_salt()) == b"salt %d" % number
    assert run(store.next_key()) == key(number + 20)
    assert [event.action for event in location.events()] == ["key.created"]


def test_concurrent_starts_create_one_next_key(run: Run, store: Store, other: Store) -> None:
    outcomes = run(all_of((store, other)[n % 2].settle_next(key(n)) for n in range(20)))
    assert outcomes == [None] * 20
    assert run(store.next_key()) in [key(n) for n in range(20)]
    assert run(other.next_key()) == run(store.next_key())


def test_concurrent_rotations_rotate_once(harness: StoreHarness, other: Store, location: StoreLocation) -> None:
    before = len(location.events())
    stores = (harness.store, other)
    done = harness.run(all_of(stores[n % 2].rotate_key(SYSTEM, "kid-2", key(10 + n)) for n in range(20)))
    (winner,) = (n for n, outcome in enumerate(done) if outcome is None)
    assert {type(outcome) for n, outcome in enumerate(done) if n != winner} == {Stale}
    assert [kept.kid for kept in harness.run(other.keys())] == ["kid-2", "kid-1"]
    assert harness.run(other.next_key()) == key(10 + winner)
    assert [event.action for event in location.events()[before:]] == ["key.rotated"]


@pytest.mark.parametrize("kid", ["kid-1", "kid-3", ""])
def test_only_the_stored_next_key_can_be_activated(harness: StoreHarness, kid: str) -> None:
    harness.assert_stale(harness.store.rotate_key(SYSTEM, kid, key(3)))
    assert harness.run(harness.store.keys()) == (key(1),)
    assert harness.run(harness.store.next_key()) == key(2)


def test_keys_are_sorted_by_activation_not_by_clock(harness: StoreHarness, clock: SettableClock) -> None:
    clock.now = NOW - HOUR
    for number in (5, 3, 4):
        harness.rotate_key(number)
    assert [kept.kid for kept in harness.run(harness.store.keys())] == ["kid-3", "kid-5", "kid-2", "kid-1"]


def test_only_the_newest_key_signs(harness: StoreHarness) -> None:
    harness.rotate_key(3)
    harness.assert_stale(harness.store.add_token(SYSTEM, record(1), Issue(key(1).kid, PLENTY)))
    harness.run(harness.store.add_token(SYSTEM, record(1), Issue(key(2).kid, PLENTY)))
    assert [kept.retired_at is None for kept in harness.run(harness.store.keys())] == [True, False]


def test_retired_key_without_live_tokens_is_unpublished(harness: StoreHarness) -> None:
    harness.clock.now = NOW + 7
    before = retired_key(harness)
    assert before == replace(key(1), retired_at=NOW + 7, published_until=NOW + 7)
    assert not before.is_published(NOW + 7)


def test_retired_key_is_published_until_its_last_token_expires(harness: StoreHarness) -> None:
    for number, end in ((1, NOW + HOUR), (2, NOW + 3 * HOUR), (3, NOW + 2 * HOUR)):
        harness.token(number, expires_at=end)
    before = retired_key(harness)
    assert before.published_until == NOW + 3 * HOUR
    assert before.is_published(NOW + 3 * HOUR - 1)
    assert not before.is_published(NOW + 3 * HOUR)


@pytest.mark.parametrize("full_end", [NOW + 9 * HOUR, None])
def test_unused_successor_keeps_its_key_published(harness: StoreHarness, full_end: int | None) -> None:
    old = harness.token(1, expires_at=NOW + 2 * HOUR)
    pending = record(2, expires_at=NOW + HOUR, full_end=full_end, replaces=old.id, root=old.id, grace=5)
    harness.run(harness.store.rotate_token(SYSTEM, old, pending, Issue(harness.kid, PLENTY)))
    assert retired_key(harness).published_until == full_end


def test_revoked_token_does_not_keep_its_key_published(harness: StoreHarness) -> None:
    harness.token(1, expires_at=NOW + HOUR)
    harness.revoke(harness.token(2, expires_at=NOW + 9 * HOUR))
    harness.revoke(harness.token(3, expires_at=None))
    assert retired_key(harness).published_until == NOW + HOUR


def test_expired_token_does_not_keep_its_key_published(harness: StoreHarness) -> None:
    harness.token(1, expires_at=NOW + HOUR)
    harness.clock.now = NOW + 2 * HOUR
    assert not retired_key(harness).is_published(harness.clock.now)


@pytest.mark.parametrize("years", [0, 1, 1_000])
def test_token_without_expiry_keeps_its_key_published(harness: StoreHarness, years: int) -> None:
    harness.token(1, expires_at=NOW + HOUR)
    harness.token(2, expires_at=None)
    before = retired_key(harness)
    assert before.published_until is None
    assert before.is_published(NOW + years * 365 * 24 * HOUR)


def test_later_rotation_does_not_change_older_keys(harness: StoreHarness) -> None:
    harness.token(1, expires_at=NOW + HOUR)
    before = retired_key(harness)
    harness.clock.now = NOW + HOUR
    harness.run(harness.store.add_token(SYSTEM, record(2, expires_at=NOW + 9 * HOUR), Issue(key(2).kid, PLENTY)))
    harness.rotate_key(4)
    third, second, first = harness.run(harness.store.keys())
    assert first == before
    assert (third.published_until, second.published_until) == (None, NOW + 9 * HOUR)


def test_active_key_is_always_published(harness: StoreHarness) -> None:
    (current,) = harness.run(harness.store.keys())
    assert current.is_published(NOW + 10**15)


def test_only_the_current_next_key_is_replaced(harness: StoreHarness) -> None:
    harness.assert_stale(harness.store.replace_next(SYSTEM, "kid-1", key(3)))
    harness.run(harness.store.replace_next(SYSTEM, "kid-2", key(3)))
    harness.assert_stale(harness.store.rotate_key(SYSTEM, "kid-2", key(4)))
    assert harness.run(harness.store.next_key()) == key(3)
    assert harness.run(harness.store.keys()) == (key(1),)


def test_next_keys_keep_the_kind_of_the_last_one(run: Run, store: Store, other: Store, clock: SettableClock) -> None:
    rings = [KeyRing(one, Sealer(Secret(b"k" * 32)), "https://tokens.example", clock) for one in (store, other)]

    async def change_kinds() -> None:
        for ring in rings:
            await ring.settle()
        prepared = await asyncio.gather(*(ring.prepare(SYSTEM, KeyKind.RS256) for ring in rings))
        assert sorted(one.is_new for one in prepared) == [False, True]
        assert {one.key.kid for one in prepared} == {(await rings[0].following()).kid}
        (published_at,) = {one.key.created_at for one in prepared}
        assert {one.waits_until for one in prepared} == {published_at + 300_000}
        clock.now = published_at + 300_000
        assert (await rings[0].prepare(SYSTEM, KeyKind.RS256)).waits_until is None
        assert (await rings[0].rotate(SYSTEM)).kind is (await rings[1].following()).kind is KeyKind.RS256
        assert {jwk["kty"] for jwk in (await rings[1].jwks())["keys"]} == {"RSA"}

    run(change_kinds())


def test_concurrent_rotations_activate_published_keys(run: Run, store: Store, other: Store) -> None:
    rings = [KeyRing(one, Sealer(Secret(b"k" * 32)), "https://tokens.example", store.clock) for one in (store, other)]

    async def rotate_concurrently() -> None:
        for ring in rings:
            await ring.settle()
        for _ in range(3):
            published = {key["kid"] for key in (await rings[0].jwks())["keys"]}
            done = await asyncio.gather(*(ring.rotate(SYSTEM) for ring in rings))
            kept = {known.kid for known in await store.keys()}
            assert {key.kid for key in done} <= kept
            assert published & {key.kid for key in done}
            assert await rings[0].jwks() == await rings[1].jwks()

    run(rotate_concurrently())
