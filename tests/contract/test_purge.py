"""Purging removes tokens that died long ago, in batches; totals stay correct."""

from typing import Any

from tests.contract.harness import ANN, HOUR, SECOND, SYSTEM, StoreHarness, all_of, record, where
from tests.support.backends import NOW, StoreLocation
from watchword.stores.joined import Store
from watchword.tokens.counts import Use
from watchword.tokens.filters import Field
from watchword.tokens.idempotency import KEPT, IdempotencyRecord


def purge(harness: StoreHarness, before: int, most: int = 100) -> int:
    return harness.run(harness.store.purge_tokens(before, most))


def present(harness: StoreHarness, *numbers: int) -> list[int]:
    return [number for number in numbers if harness.stored(record(number)) is not None]


def test_purge_removes_only_tokens_dead_before_the_cutoff(harness: StoreHarness, location: StoreLocation) -> None:
    harness.revoke(harness.token(1))
    harness.clock.now = NOW + 5
    harness.revoke(harness.token(2))
    harness.token(3, expires_at=NOW + 4)
    harness.token(4, expires_at=NOW + 5)
    harness.token(5)
    harness.token(6, expires_at=None)
    assert purge(harness, NOW + 5) == 2
    assert present(harness, 1, 2, 3, 4, 5, 6) == [2, 4, 5, 6]
    assert harness.total() == harness.total(where(Field.ACTOR_URN, ANN)) == 3
    assert purge(harness, NOW + 5) == 0
    assert location.problems() == []


def test_purge_is_limited_per_call(harness: StoreHarness, location: StoreLocation) -> None:
    for n in range(5):
        harness.revoke(harness.token(n))
        harness.token(10 + n, expires_at=NOW)
    harness.clock.now = NOW + HOUR
    gone = [purge(harness, NOW + HOUR, 3) for _ in range(5)]
    assert gone == [3, 3, 3, 1, 0]
    assert harness.total() == 0
    assert location.problems() == []


def test_family_survives_the_purge_of_its_first_token(harness: StoreHarness, location: StoreLocation) -> None:
    old = harness.token(1)
    new = harness.rotate_and_use(2, old)
    harness.clock.now = NOW + SECOND
    assert purge(harness, NOW + SECOND + 1) == 1
    kept = harness.stored(new)
    assert kept is not None
    child = harness.derive(3, kept)
    third = harness.rotate_and_use(4, kept)
    assert harness.live_numbers(new, child, third) == [2, 3, 4]
    assert location.problems() == []
    harness.revoke(third)
    assert harness.live_numbers(new, child, third) == []
    assert location.problems() == []


def test_expired_child_may_outlast_its_purged_parent(harness: StoreHarness, location: StoreLocation) -> None:
    parent = harness.token(1, expires_at=NOW + 10)
    harness.derive(2, parent)
    harness.clock.now = NOW + HOUR
    assert purge(harness, NOW + 11, 1) == 1
    assert location.problems() == []
    assert purge(harness, NOW + 11, 1) == 1
    assert present(harness, 1, 2) == []


def test_cascade_reaches_tokens_minted_by_a_purged_token(harness: StoreHarness) -> None:
    first = harness.token(1, expires_at=None)
    between = [harness.token(2, created_with=first.id, expires_at=NOW + 1)]
    between.append(harness.token(3, created_with=between[0].id, expires_at=NOW + 1))
    last = harness.token(4, created_with=between[1].id, expires_at=None)
    harness.clock.now = NOW + HOUR
    assert purge(harness, NOW + HOUR) == 2
    kept = harness.stored(last)
    assert kept is not None
    assert kept.created_with == first.id
    harness.revoke(first, cascade=True)
    assert harness.live_numbers(last) == []


def test_idempotency_records_are_purged_after_a_day(harness: StoreHarness) -> None:
    for n, at in enumerate((NOW, NOW + 1)):
        token = record(n, created_at=at, expires_at=None)
        harness.run(
            harness.store.add_token(
                SYSTEM, token, harness.issue(IdempotencyRecord(ANN, f"d{n}", "kid-1", token.id, at, None))
            )
        )
    harness.clock.now = NOW + KEPT
    assert harness.run(harness.store.purge_idempotency_records(10)) == 1
    harness.clock.now = NOW  # so that the remaining record is still valid
    assert [harness.run(harness.store.get_idempotency_record(ANN, f"d{n}")) is None for n in (0, 1)] == [True, False]


def test_purge_writes_no_event(harness: StoreHarness, location: StoreLocation) -> None:
    harness.revoke(harness.token(1))
    before = location.events()
    harness.clock.now = NOW + HOUR
    assert purge(harness, NOW + HOUR) == 1
    assert location.events() == before


def test_concurrent_purge_does_not_affect_other_writes(
    harness: StoreHarness, other: Store, location: StoreLocation
) -> None:
    for n in range(60):
        token = harness.token(n, expires_at=NOW)
        if n % 2:
            harness.revoke(token)
    harness.clock.now = NOW + HOUR
    work: list[Any] = []
    for n in range(30):
        work.append(other.purge_tokens(NOW + HOUR, 5))
        work.append(harness.store.purge_tokens(NOW + HOUR, 5))
        work.append(harness.store.add_token(SYSTEM, record(100 + n, expires_at=None), harness.issue()))
        work.append(other.record_uses({record(i).id: Use(NOW, 1, "") for i in range(60)}))
    results = harness.run(all_of(work))
    assert [found for found in results if isinstance(found, BaseException)] == []
    while purge(harness, NOW + HOUR):
        pass
    assert present(harness, *range(60)) == []
    assert harness.total() == 30
    assert location.problems() == []


def test_purge_of_a_token_that_created_many_changes_few_at_once_and_ends(
    harness: StoreHarness, location: StoreLocation
) -> None:
    first = harness.token(1, expires_at=None)
    creator = harness.token(2, created_with=first.id, expires_at=NOW + 1)
    created = [harness.token(10 + n, created_with=creator.id, expires_at=None) for n in range(25)]
    harness.clock.now = NOW + HOUR

    def adopted() -> int:
        found = [harness.stored(token) for token in created]
        return sum(token is not None and token.created_with == first.id for token in found)

    steps = [(purge(harness, NOW + HOUR, 10), adopted(), present(harness, 2)) for _ in range(4)]
    assert steps == [(10, 10, [2]), (10, 20, [2]), (1, 25, []), (0, 25, [])]
    assert location.problems() == []
