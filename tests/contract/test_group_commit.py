"""Concurrent writes of one process share commits; what becomes of one is no business of its companions."""

from collections import Counter
from typing import Any

import pytest

from tests.contract.given import ADMIN, ANN, EVE, HOUR, PLENTY, SYSTEM, Given, Run, all_of, policy, record, where
from tests.support.backends import NOW, Place
from tests.support.strategies import numbered_id
from watchword.domain.actors import ActorStatus
from watchword.domain.bulk_revocation import TokenVisibility
from watchword.domain.errors import Fault, Stale
from watchword.domain.filters import Condition, Field, Search
from watchword.domain.ports import Issue, Store


def outcome(result: Any) -> str:
    match result:
        case Fault():
            return result.reason.word
        case Stale():
            return "stale"
        case BaseException():
            return repr(result)
        case _:
            return "done"


def test_a_refused_write_leaves_its_companions_alone(given: Given, place: Place) -> None:
    given.token(1_000)
    given.run(given.store.set_actor_status(SYSTEM, EVE, ActorStatus.SUSPENDED))
    before = len(place.events())
    store, good = given.store, given.precondition()

    def work(n: int) -> Any:
        match n % 6:
            case 0:
                return store.add_token(SYSTEM, record(1_000), Issue(given.kid, PLENTY))  # an id that exists
            case 1:
                return store.add_token(good, record(n), Issue("old key", PLENTY))
            case 2:
                return store.add_token(good, record(n, EVE), Issue(given.kid, PLENTY))
            case 3:
                return store.revoke_token(good, numbered_id(5_000 + n), None)
            case _:
                return store.add_token(good, record(n), Issue(given.kid, PLENTY))

    results = given.run(all_of(work(n) for n in range(600)))
    assert Counter(outcome(result) for result in results) == {
        "done": 200,
        "internal": 100,
        "stale": 100,
        "actor_suspended": 100,
        "token_not_found": 100,
    }
    assert all((given.kept(record(n)) is not None) == (n % 6 in {4, 5}) for n in range(0, 600, 7))
    assert given.total() == 201
    assert len(place.events()) == before + 200


@pytest.mark.parametrize("backend", ["sqlite"], indirect=True)
def test_writes_that_wait_together_are_done_in_the_order_they_came(given: Given) -> None:
    store, precondition = given.store, given.precondition()
    results = given.run(
        all_of(
            [
                store.add_token(precondition, record(1), Issue(given.kid, PLENTY)),
                store.revoke_token(precondition, numbered_id(1), TokenVisibility(ANN)),
                store.revoke_token(precondition, numbered_id(1), TokenVisibility(ANN)),
                store.add_policy(precondition, policy(1, ANN)),
                store.add_token(precondition, record(2), Issue(given.kid, PLENTY)),
                store.set_actor_status(SYSTEM, ADMIN, ActorStatus.SUSPENDED),
                store.add_policy(given.precondition(), policy(2, ANN)),
            ]
        )
    )
    assert [outcome(result) for result in results] == [
        "done",
        "done",
        "already_revoked",
        "done",
        "stale",
        "done",
        "stale",
    ]


def test_a_token_is_revoked_once_however_many_try(given: Given, other: Store, place: Place) -> None:
    tokens = [given.token(n) for n in range(20)]
    tries = [(store, token) for token in tokens for store in (given.store, other) for _ in range(3)]
    results = given.run(all_of(store.revoke_token(SYSTEM, token.id, None) for store, token in tries))
    assert Counter(outcome(result) for result in results) == {"done": 20, "already_revoked": 100}
    assert sum(event.action == "token.revoked" for event in place.events()) == 20
    assert given.total() == 0


def test_the_last_room_is_given_to_one_however_many_try(given: Given, other: Store) -> None:
    stores = (given.store, other)
    results = given.run(all_of(stores[n % 2].add_token(SYSTEM, record(n), Issue(given.kid, 7)) for n in range(60)))
    assert Counter(outcome(result) for result in results) == {"done": 7, "too_many_tokens": 53}
    assert given.total() == 7


def test_no_token_is_kept_after_the_right_to_make_it_was_gone(given: Given, other: Store) -> None:
    bearer = given.token(900, ADMIN)
    by_bearer, by_name = given.precondition(ADMIN, bearer), given.precondition()
    work: list[Any] = [given.store.add_token(by_bearer, record(n), Issue(given.kid, PLENTY)) for n in range(100)]
    work += [other.revoke_token(SYSTEM, bearer.id, None)]
    work += [given.store.add_token(by_name, record(n), Issue(given.kid, PLENTY)) for n in range(100, 200)]
    results = given.run(all_of(work))
    late = given.run(all_of([given.store.add_token(by_bearer, record(999), Issue(given.kid, PLENTY))]))
    assert outcome(late[0]) == "stale"
    assert [outcome(result) for result in results[101:]] == ["done"] * 100
    made = [n for n in range(100) if given.kept(record(n)) is not None]
    assert made == [n for n, result in enumerate(results[:100]) if outcome(result) == "done"]


def test_several_hundred_writes_at_once_are_all_done(given: Given) -> None:
    results = given.run(all_of(given.store.add_token(SYSTEM, record(n), Issue(given.kid, PLENTY)) for n in range(700)))
    assert {outcome(result) for result in results} == {"done"}
    assert given.total() == 700


def test_what_is_read_meanwhile_is_a_state_that_was_committed(given: Given, other: Store, run: Run) -> None:
    """Rows, total and a count of their own always agree, whatever is being written by another store."""
    for n in range(60):
        given.token(n, expires_at=NOW + HOUR)
    scanned = Search(count=1_000, filters=(where(Field.NAME, "token", condition=Condition.START_WITH),))
    ready = Search(count=150)

    async def read() -> list[bool]:
        agreed = []
        for _ in range(40):
            for search in (scanned, ready):
                page = await other.search(search)
                agreed.append(page.total == len(page.rows))
        return agreed

    async def write() -> None:
        for n in range(60):
            await given.store.revoke_token(SYSTEM, numbered_id(n), None)
            await given.store.add_token(SYSTEM, record(100 + n), Issue(given.kid, PLENTY))

    agreed, written = run(all_of([read(), write()]))
    assert written is None
    assert agreed == [True] * 80
