"""A write whose answer is lost is resolved by reading; an undelivered token is revoked."""

import asyncio
import random
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

import pytest

from tests.contract.harness import ADMIN, ANN, EVE, PLENTY, SYSTEM, Run, all_of, derived, key, policy, record
from tests.support.faulty_proxy import FaultyProxy
from tests.support.postgres import DEBIAN, Home, SharedClusters, home
from tests.support.waiting import until
from watchword.admin.check import check
from watchword.authority.policies import root_policy
from watchword.basics.errors import Fault, Reason
from watchword.database.transaction import ignore
from watchword.database.urls import PostgresUrl
from watchword.journal.preconditions import possession_precondition
from watchword.setting_values import database as read_address
from watchword.stores import open_store, prepare
from watchword.stores.joined import Store
from watchword.tokens.rules import Issue


@pytest.fixture
def run() -> Iterator[Run]:
    with asyncio.Runner() as runner:
        yield runner.run


@pytest.fixture
def proxy(database: Home) -> Iterator[FaultyProxy]:
    with FaultyProxy(database.address.port) as made:
        yield made


def store_url(home: Home, port: int, timeout: float) -> PostgresUrl:
    address = read_address(home.url)
    assert isinstance(address, PostgresUrl)
    # One connection, so that the next request is the test's.
    return replace(address, schema=home.schema, hosts=(("127.0.0.1", port),), timeout=timeout, pool=1)


@pytest.fixture
def timeout() -> float:
    """Seconds to wait for an answer; `SHORT_TIMEOUT` where none comes."""
    return 30.0


SHORT_TIMEOUT = pytest.mark.parametrize("timeout", [5.0])


@pytest.fixture
def store(run: Run, database: Home, proxy: FaultyProxy, timeout: float) -> Iterator[Store]:
    """A store behind the proxy, with all its connections open."""
    prepare(store_url(database, database.address.port, 30))
    opened = run(open_store(store_url(database, proxy.port, timeout), lambda: 0, ignore))
    run(opened.settle_keys(b"sealed salt", key(1), key(2)))
    run(opened.apply_start(root_policy(ADMIN), ()))
    run(opened.find_bearer("nobody's"))
    # Run once, so that each is one request from now on.
    run(opened.add_token(SYSTEM, record(99), Issue(key(1).kid, PLENTY)))
    run(opened.revoke_token(SYSTEM, record(99).id, None))
    run(opened.add_policy(SYSTEM, policy(99, ANN)))
    yield opened
    proxy.stop_faults()
    run(opened.close())


COMMIT = 4
"""Requests of a create before it: BEGIN, locks, facts; and token, event and mark in one."""


def is_active(home: Home, token_id: str) -> list[bool]:
    return [row[0] for row in home.look("SELECT revoked_at IS NULL FROM tokens WHERE id = %s", token_id)]


def test_token_with_a_lost_answer_is_found_and_returned(
    run: Run, store: Store, proxy: FaultyProxy, database: Home
) -> None:
    proxy.lose_answer(after=COMMIT)
    run(store.add_token(SYSTEM, record(1), Issue(key(1).kid, PLENTY)))
    assert not proxy._plan, "it took fewer steps"
    assert is_active(database, record(1).id) == [True]


@pytest.mark.parametrize("step", range(COMMIT + 1))
def test_token_request_that_never_arrived_is_retried(
    run: Run, store: Store, proxy: FaultyProxy, database: Home, step: int
) -> None:
    proxy.hold_request(after=step)
    run(store.add_token(SYSTEM, record(1), Issue(key(1).kid, PLENTY)))
    assert is_active(database, record(1).id) == [True]
    proxy.release()  # the session of the delayed first request was ended
    assert is_active(database, record(1).id) == [True]


@SHORT_TIMEOUT
def test_undelivered_token_is_withdrawn_even_if_its_request_arrives_late(
    run: Run, store: Store, proxy: FaultyProxy, database: Home
) -> None:
    proxy.hold_request(after=COMMIT, for_good=True)
    with pytest.raises(Fault) as caught:
        run(store.add_token(SYSTEM, record(1), Issue(key(1).kid, PLENTY)))
    assert caught.value.reason is Reason.OUTCOME_UNKNOWN
    proxy.stop_faults()

    run(store.close())  # close() finishes every withdrawal
    proxy.release()
    assert is_active(database, record(1).id) in ([], [False])


@SHORT_TIMEOUT
def test_stored_but_undelivered_token_is_revoked(run: Run, store: Store, proxy: FaultyProxy, database: Home) -> None:
    proxy.lose_answer(after=COMMIT, for_good=True)
    with pytest.raises(Fault) as caught:
        run(store.add_token(SYSTEM, record(1), Issue(key(1).kid, PLENTY)))
    assert caught.value.reason is Reason.OUTCOME_UNKNOWN
    assert is_active(database, record(1).id) == [True]
    proxy.stop_faults()

    run(asyncio.to_thread(until, lambda: is_active(database, record(1).id) == [False], "the token is revoked"))


@pytest.mark.parametrize("step", [0, 1, 8])
def test_revocation_with_a_lost_answer_happens_once(
    run: Run, store: Store, proxy: FaultyProxy, database: Home, step: int
) -> None:
    """BEGIN, locks, facts, relatives (prepared first) of both tokens, change, events with mark, COMMIT."""
    parent = record(1, expires_at=None)
    run(store.add_token(SYSTEM, parent, Issue(key(1).kid, PLENTY)))
    run(store.add_token(SYSTEM, derived(2, parent), Issue(key(1).kid, PLENTY)))
    proxy.lose_answer(after=step)
    at, number = run(store.revoke_token(SYSTEM, record(1).id, None))
    assert not proxy._plan, "it took fewer steps"
    assert number == 2
    assert database.look("SELECT revoked_at FROM tokens WHERE id = %s", record(1).id) == [(at,)]
    events = "SELECT count(*) FROM events WHERE action = 'token.revoked' AND target = %s"
    assert database.look(events, record(1).id) == [(1,)]


def test_revocation_by_another_actor_is_reported(run: Run, store: Store, proxy: FaultyProxy, database: Home) -> None:
    run(store.add_token(SYSTEM, record(1), Issue(key(1).kid, PLENTY)))
    other = run(open_store(store_url(database, database.address.port, 30), lambda: 0, ignore))
    run(other.revoke_token(possession_precondition(EVE, record(1).id, "x", "other"), record(1).id, None))
    run(other.close())
    proxy.lose_answer()
    with pytest.raises(Fault) as caught:
        run(store.revoke_token(SYSTEM, record(1).id, None))
    assert caught.value.reason is Reason.ALREADY_REVOKED


@pytest.mark.parametrize("step", range(8))
def test_change_happens_once_wherever_the_connection_breaks(
    run: Run, store: Store, proxy: FaultyProxy, database: Home, step: int
) -> None:
    """BEGIN, locks, precondition, read, change, version, event with mark, COMMIT: each answer is lost in turn."""

    proxy.lose_answer(after=step)
    run(store.add_policy(SYSTEM, policy(1, ANN)))
    assert not proxy._plan, "it took fewer steps"
    assert database.look("SELECT count(*) FROM policies WHERE urn = %s", policy(1).urn) == [(1,)]
    events = "SELECT count(*) FROM events WHERE action = 'policy.created' AND target = %s"
    assert database.look(events, policy(1).urn) == [(1,)]


@SHORT_TIMEOUT
def test_unconfirmed_commit_is_reported_as_unknown(run: Run, store: Store, proxy: FaultyProxy, database: Home) -> None:
    proxy.lose_answer(after=7, for_good=True)
    with pytest.raises(Fault) as caught:
        run(store.add_policy(SYSTEM, policy(1, ANN)))
    assert caught.value.reason is Reason.OUTCOME_UNKNOWN
    assert database.look("SELECT count(*) FROM policies WHERE urn = %s", policy(1).urn) == [(1,)]


def test_lost_policy_version_is_not_reused(run: Run, store: Store, database: Home) -> None:
    """As after a failover to a standby without the last change."""
    before = run(store.policies()).version
    run(store.add_policy(SYSTEM, policy(1, ANN)))
    lost = run(store.policies()).version
    database.look("DELETE FROM policies WHERE urn = %s", policy(1).urn)
    database.look("UPDATE state SET policy_version = %s", before)
    run(store.add_policy(SYSTEM, policy(2, ANN)))
    assert run(store.policies()).version not in (before, lost)


@contextmanager
def without_deadlocks(shared_clusters: SharedClusters, tmp_path: Path) -> Iterator[PostgresUrl]:
    """An empty store. At the end it must be sound, and its database must have had no deadlock."""
    with home(shared_clusters.apart(DEBIAN), tmp_path) as alone:
        there = store_url(alone, alone.address.port, 60)
        prepare(there)
        waited = "SELECT deadlocks FROM pg_stat_database WHERE datname = current_database()"
        before = alone.look(waited)
        yield there
        assert [problem for _, problem in check(there) if problem is not None] == []
        assert alone.look(waited) == before


def test_concurrent_creates_for_the_same_actors_do_not_deadlock(
    run: Run, shared_clusters: SharedClusters, tmp_path: Path
) -> None:
    with without_deadlocks(shared_clusters, tmp_path) as there:
        assert run(create_concurrently(there)) == [None] * 96 * 8


async def create_concurrently(there: PostgresUrl) -> list[object]:
    stores = [await open_store(replace(there, pool=4), lambda: 0, ignore) for _ in range(4)]
    await stores[0].settle_keys(b"sealed salt", key(1), key(2))
    await stores[0].apply_start(root_policy(ADMIN), ())
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
