"""The long dead leave the store, a few at a time; the living and the lately dead stay, and totals stay right."""

from typing import Any

from tests.contract.given import ANN, HOUR, SECOND, SYSTEM, Given, all_of, record, where
from tests.support.backends import NOW, Place
from watchword.domain.filters import Field
from watchword.domain.idempotency import KEPT, IdempotencyRecord
from watchword.domain.ports import Store, Use


def purge(given: Given, before: int, most: int = 100) -> int:
    return given.run(given.store.purge_tokens(before, most))


def there(given: Given, *numbers: int) -> list[int]:
    return [number for number in numbers if given.kept(record(number)) is not None]


def test_what_was_dead_before_then_leaves_and_nothing_else_does(given: Given, place: Place) -> None:
    given.revoke(given.token(1))
    given.clock.now = NOW + 5
    given.revoke(given.token(2))
    given.token(3, expires_at=NOW + 4)
    given.token(4, expires_at=NOW + 5)
    given.token(5)
    given.token(6, expires_at=None)
    assert purge(given, NOW + 5) == 2
    assert there(given, 1, 2, 3, 4, 5, 6) == [2, 4, 5, 6]
    assert given.total() == given.total(where(Field.ACTOR_URN, ANN)) == 3
    assert purge(given, NOW + 5) == 0
    assert place.problems() == []


def test_at_most_so_many_leave_at_a_time(given: Given, place: Place) -> None:
    for n in range(5):
        given.revoke(given.token(n))
        given.token(10 + n, expires_at=NOW)
    given.clock.now = NOW + HOUR
    gone = [purge(given, NOW + HOUR, 3) for _ in range(5)]
    assert gone == [3, 3, 3, 1, 0]
    assert given.total() == 0
    assert place.problems() == []


def test_a_family_goes_on_when_its_oldest_was_purged(given: Given, place: Place) -> None:
    old = given.token(1)
    new = given.succeed(2, old)
    given.clock.now = NOW + SECOND
    assert purge(given, NOW + SECOND + 1) == 1
    kept = given.kept(new)
    assert kept is not None
    child = given.derive(3, kept)
    third = given.succeed(4, kept)
    assert given.live(new, child, third) == [2, 3, 4]
    assert place.problems() == []
    given.revoke(third)
    assert given.live(new, child, third) == []
    assert place.problems() == []


def test_an_expired_child_whose_parent_left_first_is_no_fault(given: Given, place: Place) -> None:
    parent = given.token(1, expires_at=NOW + 10)
    given.derive(2, parent)
    given.clock.now = NOW + HOUR
    assert purge(given, NOW + 11, 1) == 1
    assert place.problems() == []
    assert purge(given, NOW + 11, 1) == 1
    assert there(given, 1, 2) == []


def test_what_a_purged_token_minted_is_still_found_by_a_cascade(given: Given) -> None:
    first = given.token(1, expires_at=None)
    between = [given.token(2, minted_with=first.id, expires_at=NOW + 1)]
    between.append(given.token(3, minted_with=between[0].id, expires_at=NOW + 1))
    last = given.token(4, minted_with=between[1].id, expires_at=None)
    given.clock.now = NOW + HOUR
    assert purge(given, NOW + HOUR) == 2
    kept = given.kept(last)
    assert kept is not None
    assert kept.minted_with == first.id
    given.revoke(first, cascade=True)
    assert given.live(last) == []


def test_retries_leave_after_their_day(given: Given) -> None:
    for n, at in enumerate((NOW, NOW + 1)):
        token = record(n, created_at=at, expires_at=None)
        given.run(
            given.store.add_token(
                SYSTEM, token, given.issue(IdempotencyRecord(ANN, f"d{n}", "kid-1", token.id, at, None))
            )
        )
    given.clock.now = NOW + KEPT
    assert given.run(given.store.purge_idempotency_records(10)) == 1
    given.clock.now = NOW  # so that what is still there can be seen
    assert [given.run(given.store.get_idempotency_record(ANN, f"d{n}")) is None for n in (0, 1)] == [True, False]


def test_a_purge_leaves_no_event(given: Given, place: Place) -> None:
    given.revoke(given.token(1))
    before = place.events()
    given.clock.now = NOW + HOUR
    assert purge(given, NOW + HOUR) == 1
    assert place.events() == before


def test_a_purge_among_other_writes_harms_none_of_them(given: Given, other: Store, place: Place) -> None:
    for n in range(60):
        token = given.token(n, expires_at=NOW)
        if n % 2:
            given.revoke(token)
    given.clock.now = NOW + HOUR
    work: list[Any] = []
    for n in range(30):
        work.append(other.purge_tokens(NOW + HOUR, 5))
        work.append(given.store.purge_tokens(NOW + HOUR, 5))
        work.append(given.store.add_token(SYSTEM, record(100 + n, expires_at=None), given.issue()))
        work.append(other.record_uses({record(i).id: Use(NOW, 1, "") for i in range(60)}))
    results = given.run(all_of(work))
    assert [found for found in results if isinstance(found, BaseException)] == []
    while purge(given, NOW + HOUR):
        pass
    assert there(given, *range(60)) == []
    assert given.total() == 30
    assert place.problems() == []
