"""Concurrent writes of one process share commits; each succeeds or fails alone."""

from collections import Counter
from typing import Any

import pytest

from tests.contract.harness import (
    ADMIN,
    ANN,
    EVE,
    HOUR,
    PLENTY,
    SYSTEM,
    Run,
    StoreHarness,
    all_of,
    policy,
    record,
    where,
)
from tests.support.backends import NOW, StoreLocation
from tests.support.strategies import numbered_id
from watchword.authority.callers import ActorStatus
from watchword.basics.errors import Fault, Stale
from watchword.stores.joined import Store
from watchword.tokens.bulk_revocation import TokenVisibility
from watchword.tokens.filters import Condition, Field, Search
from watchword.tokens.idempotency import IdempotencyRecord
from watchword.tokens.rules import Issue


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


def test_rejected_write_does_not_affect_others_in_the_batch(harness: StoreHarness, location: StoreLocation) -> None:
    harness.token(1_000)
    harness.run(harness.store.set_actor_status(SYSTEM, EVE, ActorStatus.SUSPENDED))
    before = len(location.events())
    store, good = harness.store, harness.precondition()

    def work(n: int) -> Any:
        match n % 6:
            case 0:
                return store.add_token(SYSTEM, record(1_000), Issue(harness.kid, PLENTY))  # an existing id
            case 1:
                return store.add_token(good, record(n), Issue("old key", PLENTY))
            case 2:
                return store.add_token(good, record(n, EVE), Issue(harness.kid, PLENTY))
            case 3:
                return store.revoke_token(good, numbered_id(5_000 + n), None)
            case _:
                return store.add_token(good, record(n), Issue(harness.kid, PLENTY))

    results = harness.run(all_of(work(n) for n in range(600)))
    assert Counter(outcome(result) for result in results) == {
        "done": 200,
        "internal": 100,
        "stale": 100,
        "actor_suspended": 100,
        "token_not_found": 100,
    }
    assert all((harness.stored(record(n)) is not None) == (n % 6 in {4, 5}) for n in range(0, 600, 7))
    assert harness.total() == 201
    assert len(location.events()) == before + 200


def test_write_rejected_after_a_change_leaves_only_the_others(harness: StoreHarness) -> None:
    """The idempotency key is stored before the limit is checked."""
    store, good = harness.store, harness.precondition()
    harness.token(1_000)

    def kept(n: int) -> IdempotencyRecord:
        return IdempotencyRecord(ADMIN, f"digest {n}", harness.kid, numbered_id(n), NOW, NOW + HOUR)

    results = harness.run(
        all_of(store.add_token(good, record(n), Issue(harness.kid, PLENTY if n % 3 else 1, kept(n))) for n in range(60))
    )
    assert Counter(outcome(result) for result in results) == {"done": 40, "too_many_tokens": 20}
    assert harness.total() == 41
    found = [harness.run(store.get_idempotency_record(ADMIN, f"digest {n}")) for n in range(60)]
    assert [n for n in range(60) if found[n] is not None] == [n for n in range(60) if n % 3]


@pytest.mark.parametrize("backend", ["sqlite"], indirect=True)
def test_queued_writes_run_in_order(harness: StoreHarness) -> None:
    store, precondition = harness.store, harness.precondition()
    results = harness.run(
        all_of(
            [
                store.add_token(precondition, record(1), Issue(harness.kid, PLENTY)),
                store.revoke_token(precondition, numbered_id(1), TokenVisibility(ANN)),
                store.revoke_token(precondition, numbered_id(1), TokenVisibility(ANN)),
                store.add_policy(precondition, policy(1, ANN)),
                store.add_token(precondition, record(2), Issue(harness.kid, PLENTY)),
                store.set_actor_status(SYSTEM, ADMIN, ActorStatus.SUSPENDED),
                store.add_policy(harness.precondition(), policy(2, ANN)),
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


def test_concurrent_revocations_revoke_once(harness: StoreHarness, other: Store, location: StoreLocation) -> None:
    tokens = [harness.token(n) for n in range(20)]
    tries = [(store, token) for token in tokens for store in (harness.store, other) for _ in range(3)]
    results = harness.run(all_of(store.revoke_token(SYSTEM, token.id, None) for store, token in tries))
    assert Counter(outcome(result) for result in results) == {"done": 20, "already_revoked": 100}
    assert sum(event.action == "token.revoked" for event in location.events()) == 20
    assert harness.total() == 0


def test_token_limit_holds_under_concurrent_writes(harness: StoreHarness, other: Store) -> None:
    stores = (harness.store, other)
    results = harness.run(all_of(stores[n % 2].add_token(SYSTEM, record(n), Issue(harness.kid, 7)) for n in range(60)))
    assert Counter(outcome(result) for result in results) == {"done": 7, "too_many_tokens": 53}
    assert harness.total() == 7


def test_no_token_is_created_after_its_bearer_is_revoked(harness: StoreHarness, other: Store) -> None:
    bearer = harness.token(900, ADMIN)
    by_bearer, by_name = harness.precondition(ADMIN, bearer), harness.precondition()
    work: list[Any] = [harness.store.add_token(by_bearer, record(n), Issue(harness.kid, PLENTY)) for n in range(100)]
    work += [other.revoke_token(SYSTEM, bearer.id, None)]
    work += [harness.store.add_token(by_name, record(n), Issue(harness.kid, PLENTY)) for n in range(100, 200)]
    results = harness.run(all_of(work))
    late = harness.run(all_of([harness.store.add_token(by_bearer, record(999), Issue(harness.kid, PLENTY))]))
    assert outcome(late[0]) == "stale"
    assert [outcome(result) for result in results[101:]] == ["done"] * 100
    made = [n for n in range(100) if harness.stored(record(n)) is not None]
    assert made == [n for n, result in enumerate(results[:100]) if outcome(result) == "done"]


def test_several_hundred_concurrent_writes_succeed(harness: StoreHarness) -> None:
    results = harness.run(
        all_of(harness.store.add_token(SYSTEM, record(n), Issue(harness.kid, PLENTY)) for n in range(700))
    )
    assert {outcome(result) for result in results} == {"done"}
    assert harness.total() == 700


def test_reads_see_committed_states_only(harness: StoreHarness, other: Store, run: Run) -> None:
    """Rows and total always agree while another store writes."""
    for n in range(60):
        harness.token(n, expires_at=NOW + HOUR)
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
            await harness.store.revoke_token(SYSTEM, numbered_id(n), None)
            await harness.store.add_token(SYSTEM, record(100 + n), Issue(harness.kid, PLENTY))

    agreed, written = run(all_of([read(), write()]))
    assert written is None
    assert agreed == [True] * 80
