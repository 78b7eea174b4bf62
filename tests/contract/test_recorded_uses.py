"""Recorded token uses: last time, count and network."""

from collections.abc import Coroutine
from typing import Any

from tests.contract.harness import ANN, StoreHarness, all_of
from tests.support.backends import NOW, StoreLocation
from tests.support.strategies import numbered_id
from watchword.basics.times import DAY
from watchword.journal.day_counts import DayCounter, day_of
from watchword.stores.joined import Store
from watchword.tokens.counts import Use

NEAR, FAR = "10.0.0.0/24", "2001:db8::/56"


def test_use_counts_add_up_and_last_used_at_never_decreases(harness: StoreHarness) -> None:
    one, two = harness.token(1), harness.token(2)
    harness.run(harness.store.record_uses({one.id: Use(NOW + 5, 3, NEAR), two.id: Use(NOW + 1, 1, NEAR)}))
    harness.run(harness.store.record_uses({one.id: Use(NOW + 3, 4, NEAR), two.id: Use(NOW + 7, 1, NEAR)}))
    assert harness.stored(one) == one._replace(last_used_at=NOW + 5, use_count=7, last_network=NEAR)
    assert harness.stored(two) == two._replace(last_used_at=NOW + 7, use_count=2, last_network=NEAR)


def test_last_network_is_from_the_latest_use(harness: StoreHarness, other: Store) -> None:
    token = harness.token(1)
    harness.run(harness.store.record_uses({token.id: Use(NOW + 5, 1, FAR)}))
    harness.run(other.record_uses({token.id: Use(NOW + 4, 1, NEAR)}))
    kept = harness.stored(token)
    assert kept is not None
    assert (kept.last_used_at, kept.last_network, kept.use_count) == (NOW + 5, FAR, 2)


def test_uses_of_unknown_tokens_are_ignored(harness: StoreHarness) -> None:
    token = harness.token(1)
    harness.run(harness.store.record_uses({numbered_id(7): Use(NOW, 1, NEAR), token.id: Use(NOW, 1, NEAR)}))
    assert harness.stored(token) == token._replace(last_used_at=NOW, use_count=1, last_network=NEAR)
    assert harness.total() == 1
    harness.run(harness.store.record_uses({}))


def test_use_after_revocation_updates_only_usage(harness: StoreHarness, location: StoreLocation) -> None:
    token = harness.token(1)
    harness.revoke(token)
    before = location.events()
    harness.run(harness.store.record_uses({token.id: Use(NOW + 1, 1, NEAR)}))
    assert harness.stored(token) == token._replace(revoked_at=NOW, last_used_at=NOW + 1, use_count=1, last_network=NEAR)
    assert location.events() == before


def test_concurrent_uses_are_all_counted(harness: StoreHarness, other: Store, location: StoreLocation) -> None:
    tokens = [harness.token(n, ANN) for n in range(20)]

    def record_turn(store: Store, turn: int) -> Coroutine[Any, Any, Any]:
        order = tokens if turn % 2 else tokens[::-1]
        return store.record_uses({token.id: Use(NOW + turn, 1, NEAR) for token in order})

    stores = (harness.store, other)
    work = [record_turn(stores[turn % 2], turn) for turn in range(20)]
    work += [stores[n % 2].revoke_token(harness.precondition(), tokens[n].id, None) for n in range(5)]
    assert [found for found in harness.run(all_of(work)) if isinstance(found, Exception)] == []
    assert {(kept.use_count, kept.last_used_at) for token in tokens if (kept := harness.stored(token))} == {
        (20, NOW + 19)
    }
    today = day_of(NOW)
    assert harness.run(harness.store.uses_of([one.id for one in tokens], today)) == {
        token.id: {today: 20} for token in tokens
    }
    assert harness.run(other.day_counts(DayCounter.USES, today)) == {today: 400}
    assert location.problems() == []


def test_uses_are_counted_by_day_and_in_sum(harness: StoreHarness, location: StoreLocation) -> None:
    one, two, idle = harness.token(1), harness.token(2), harness.token(3)
    store, run, today = harness.store, harness.run, day_of(NOW)
    run(store.record_uses({one.id: Use(NOW - DAY, 3, NEAR), two.id: Use(NOW, 1, NEAR, (FAR,))}))
    # Of a write with an unknown outcome the time is written again, without a count.
    run(store.record_uses({one.id: Use(NOW, 4, FAR), two.id: Use(NOW, 0, NEAR), numbered_id(7): Use(NOW, 1, NEAR)}))
    ids = [one.id, two.id, idle.id, numbered_id(7)]
    assert run(store.uses_of(ids, today - 1)) == {one.id: {today - 1: 3, today: 4}, two.id: {today: 1}}
    assert run(store.uses_of(ids, today)) == {one.id: {today: 4}, two.id: {today: 1}}
    assert run(store.day_counts(DayCounter.USES, 0)) == {today - 1: 3, today: 6}
    assert run(store.networks_of(ids)) == {one.id: (NEAR, FAR), two.id: (NEAR, FAR)}
    assert location.problems() == []


def test_days_are_purged_in_steps_and_with_their_token(harness: StoreHarness) -> None:
    tokens = [harness.token(number) for number in range(4)]
    store, run, today = harness.store, harness.run, day_of(NOW)
    for back in (2, 1, 0):
        run(store.record_uses({token.id: Use(NOW - back * DAY, 1, NEAR) for token in tokens}))
    assert [run(store.purge_uses(today, 5)) for _ in range(3)] == [5, 3, 0]
    ids = [token.id for token in tokens]
    assert run(store.uses_of(ids, 0)) == {token_id: {today: 1} for token_id in ids}
    assert run(store.day_counts(DayCounter.USES, 0)) == {today: 4}
    harness.revoke(tokens[0])
    assert run(store.purge_tokens(NOW + 1, 10)) == 1
    assert set(run(store.uses_of(ids, 0))) == set(ids[1:])
    assert run(store.purge_uses(today + 1, 10)) == 3
