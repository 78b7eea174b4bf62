"""A write whose answer was lost is resolved by looking; a token that nobody received is ended."""

import asyncio
import random
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from tests.contract.harness import ADMIN, ANN, PLENTY, SYSTEM, Run, all_of, derived, key, policy, record
from tests.support.postgres import DEBIAN, Home, SharedClusters, home
from tests.support.strait import Strait
from tests.support.waiting import until
from watchword.domain.errors import Fault, Reason
from watchword.domain.policies import root_policy
from watchword.domain.ports import Issue, Store
from watchword.domain.store_urls import PostgresUrl
from watchword.setting_values import database as read_address
from watchword.stores.admin.check import check
from watchword.stores.open import open_store, prepare
from watchword.stores.sql.transaction import ignore


@pytest.fixture
def run() -> Iterator[Run]:
    with asyncio.Runner() as runner:
        yield runner.run


@pytest.fixture
def strait(database: Home) -> Iterator[Strait]:
    with Strait(database.address.port) as made:
        yield made


def place(home: Home, port: int, timeout: float) -> PostgresUrl:
    address = read_address(home.url)
    assert isinstance(address, PostgresUrl)
    # One connection, so that the next request is ours.
    return replace(address, schema=home.schema, hosts=(("127.0.0.1", port),), timeout=timeout, pool=1)


@pytest.fixture
def patience() -> float:
    """Seconds for an answer, and for whatever is done when none came. Where none will ever come, it is `HASTY`."""
    return 30.0


HASTY = pytest.mark.parametrize("patience", [5.0])


@pytest.fixture
def store(run: Run, database: Home, strait: Strait, patience: float) -> Iterator[Store]:
    """Over the strait, with its lanes and its one connection open."""
    prepare(place(database, database.address.port, 30))
    opened = run(open_store(place(database, strait.port, patience), lambda: 0, ignore))
    run(opened.settle_keys(b"sealed salt", key(1), key(2)))
    run(opened.apply_startup_policies(root_policy(ADMIN), ()))
    run(opened.find_bearer("nobody's"))
    # Done once, so that each is one request from now on.
    run(opened.add_token(SYSTEM, record(99), Issue(key(1).kid, PLENTY)))
    run(opened.revoke_token(SYSTEM, record(99).id, None))
    run(opened.add_policy(SYSTEM, policy(99, ANN)))
    yield opened
    strait.calm()
    run(opened.close())


def alive(home: Home, token_id: str) -> list[bool]:
    return [row[0] for row in home.look("SELECT revoked_at IS NULL FROM tokens WHERE id = %s", token_id)]


def test_a_token_whose_keeping_was_not_confirmed_is_found_and_given_out(
    run: Run, store: Store, strait: Strait, database: Home
) -> None:
    strait.lose_answer()
    run(store.add_token(SYSTEM, record(1), Issue(key(1).kid, PLENTY)))
    assert alive(database, record(1).id) == [True]


def test_a_token_whose_request_never_arrived_is_asked_for_again(
    run: Run, store: Store, strait: Strait, database: Home
) -> None:
    strait.hold_next_request()
    run(store.add_token(SYSTEM, record(1), Issue(key(1).kid, PLENTY)))
    assert alive(database, record(1).id) == [True]
    strait.release()  # the first request is late, and finds the token there
    assert alive(database, record(1).id) == [True]


@HASTY
def test_a_token_that_nobody_received_is_ended_even_if_its_request_arrives_late(
    run: Run, store: Store, strait: Strait, database: Home
) -> None:
    strait.hold_next_request(for_good=True)
    with pytest.raises(Fault) as caught:
        run(store.add_token(SYSTEM, record(1), Issue(key(1).kid, PLENTY)))
    assert caught.value.reason is Reason.OUTCOME_UNKNOWN
    strait.calm()

    withdrawn = "SELECT 1 FROM withdrawn WHERE id = %s"
    run(asyncio.to_thread(until, lambda: bool(database.look(withdrawn, record(1).id)), "the token is withdrawn"))
    strait.release()
    assert alive(database, record(1).id) in ([], [False])


@HASTY
def test_a_token_that_was_kept_and_that_nobody_received_is_revoked(
    run: Run, store: Store, strait: Strait, database: Home
) -> None:
    strait.lose_answer(for_good=True)
    with pytest.raises(Fault) as caught:
        run(store.add_token(SYSTEM, record(1), Issue(key(1).kid, PLENTY)))
    assert caught.value.reason is Reason.OUTCOME_UNKNOWN
    assert alive(database, record(1).id) == [True]
    strait.calm()

    run(asyncio.to_thread(until, lambda: alive(database, record(1).id) == [False], "the token is revoked"))


def test_a_revocation_whose_answer_was_lost_is_one_revocation(
    run: Run, store: Store, strait: Strait, database: Home
) -> None:
    parent = record(1, expires_at=None)
    run(store.add_token(SYSTEM, parent, Issue(key(1).kid, PLENTY)))
    run(store.add_token(SYSTEM, derived(2, parent), Issue(key(1).kid, PLENTY)))
    strait.lose_answer()
    at, number = run(store.revoke_token(SYSTEM, record(1).id, None))
    assert number == 2
    assert database.look("SELECT revoked_at FROM tokens WHERE id = %s", record(1).id) == [(at,)]
    events = "SELECT count(*) FROM events WHERE action = 'token.revoked' AND target = %s"
    assert database.look(events, record(1).id) == [(1,)]


def test_a_revocation_by_somebody_else_is_not_taken_for_ones_own(
    run: Run, store: Store, strait: Strait, database: Home
) -> None:
    run(store.add_token(SYSTEM, record(1), Issue(key(1).kid, PLENTY)))
    database.look(
        "SELECT * FROM revoke_token('urn:li:corpuser:eve', NULL, NULL, 'x', 'other', %s, NULL, false, false, false)",
        record(1).id,
    )
    strait.lose_answer()
    with pytest.raises(Fault) as caught:
        run(store.revoke_token(SYSTEM, record(1).id, None))
    assert caught.value.reason is Reason.ALREADY_REVOKED


@pytest.mark.parametrize("step", range(9))
def test_a_change_is_made_once_wherever_its_connection_is_cut(
    run: Run, store: Store, strait: Strait, database: Home, step: int
) -> None:
    """BEGIN, locks, proof, look, change, version, event, number, COMMIT: of each of them in turn the answer is lost."""

    strait.lose_answer(after=step)
    run(store.add_policy(SYSTEM, policy(1, ANN)))
    assert not strait._plan, "it took fewer steps"
    assert database.look("SELECT count(*) FROM policies WHERE urn = %s", policy(1).urn) == [(1,)]
    events = "SELECT count(*) FROM events WHERE action = 'policy.created' AND target = %s"
    assert database.look(events, policy(1).urn) == [(1,)]


@HASTY
def test_a_change_whose_commit_got_no_answer_and_cannot_be_looked_up_is_not_called_undone(
    run: Run, store: Store, strait: Strait, database: Home
) -> None:
    strait.lose_answer(after=8, for_good=True)
    with pytest.raises(Fault) as caught:
        run(store.add_policy(SYSTEM, policy(1, ANN)))
    assert caught.value.reason is Reason.OUTCOME_UNKNOWN
    assert database.look("SELECT count(*) FROM policies WHERE urn = %s", policy(1).urn) == [(1,)]


def test_a_version_of_the_policies_that_was_lost_with_its_server_does_not_come_again(
    run: Run, store: Store, database: Home
) -> None:
    """As after a failover to a standby that had not heard of the last change."""
    before = run(store.policies()).version
    run(store.add_policy(SYSTEM, policy(1, ANN)))
    lost = run(store.policies()).version
    database.look("DELETE FROM policies WHERE urn = %s", policy(1).urn)
    database.look("UPDATE state SET policy_version = %s", before)
    run(store.add_policy(SYSTEM, policy(2, ANN)))
    assert run(store.policies()).version not in (before, lost)


def test_creates_of_the_same_actors_in_any_order_never_wait_for_each_other(
    run: Run, shared_clusters: SharedClusters, tmp_path: Path
) -> None:
    with home(shared_clusters.apart(DEBIAN), tmp_path) as alone:
        there = place(alone, alone.address.port, 60)
        prepare(there)
        waited = "SELECT deadlocks FROM pg_stat_database WHERE datname = current_database()"
        before = alone.look(waited)
        assert run(crowd(there)) == [None] * 96 * 8
        assert [problem for _, problem in check(there) if problem is not None] == []
        assert alone.look(waited) == before


async def crowd(there: PostgresUrl) -> list[object]:
    stores = [await open_store(replace(there, pool=4), lambda: 0, ignore) for _ in range(4)]
    await stores[0].settle_keys(b"sealed salt", key(1), key(2))
    await stores[0].apply_startup_policies(root_policy(ADMIN), ())
    actors = [f"urn:li:corpuser:user{number}" for number in range(20)]

    async def client(number: int) -> list[object]:
        order = random.Random(number)
        said: list[object] = []
        for turn in range(8):
            made = record(number * 100 + turn, order.choice(actors), owner=ADMIN)
            said += await all_of([stores[number % 4].add_token(SYSTEM, made, Issue(key(1).kid, PLENTY))])
        return said

    outcomes = await asyncio.gather(*(client(number) for number in range(96)))
    for store in stores:
        await store.close()
    return [outcome for of_one in outcomes for outcome in of_one]
