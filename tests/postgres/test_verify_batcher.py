"""Verification in shared reads: concurrent requests share a query, and a slow one delays no other."""

import asyncio
import os
import signal
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import replace

import pytest

from tests.contract.harness import ADMIN, PLENTY, SYSTEM, Run, key, record
from tests.support.postgres import Cluster, Home, own_cluster
from tests.support.waiting import until
from watchword.authority.callers import Bearer
from watchword.authority.policies import root_policy
from watchword.basics.errors import Fault, Reason
from watchword.database.transaction import ignore
from watchword.database.urls import PostgresUrl
from watchword.setting_values import database as read_address
from watchword.stores import open_store, prepare
from watchword.stores.joined import Store
from watchword.tokens.rules import Issue

TIMEOUT = 30.0
"""More than anybody is stopped for on a busy machine."""
SHORT = 4.0
"""For those who will not be answered."""
TOKENS = [record(number) for number in range(40)]


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    with own_cluster(tmp_path_factory.mktemp("lanes")) as made:
        yield made


@pytest.fixture(scope="module")
def store_url(cluster: Cluster, tmp_path_factory: pytest.TempPathFactory) -> PostgresUrl:
    home = Home(cluster, tmp_path_factory.mktemp("home"))
    address = read_address(home.url)
    assert isinstance(address, PostgresUrl)
    made = replace(address, schema=home.schema, timeout=TIMEOUT)
    prepare(made)

    async def first_start() -> None:
        store = await open_store(made, lambda: 0, ignore)
        await store.settle_keys(b"sealed salt", key(1), key(2))
        await store.apply_start(root_policy(ADMIN), ())
        for token in TOKENS:
            await store.add_token(SYSTEM, token._replace(expires_at=None), Issue(key(1).kid, PLENTY))
        await store.close()

    asyncio.run(first_start())
    return made


@pytest.fixture
def run() -> Iterator[Run]:
    with asyncio.Runner() as runner:
        yield runner.run


@pytest.fixture
def reads() -> list[float]:
    """Durations of the shared reads."""
    return []


@pytest.fixture
def store(run: Run, store_url: PostgresUrl, reads: list[float]) -> Iterator[Store]:
    def observe(what: str, seconds: float) -> None:
        if what == "verify":
            reads.append(seconds)

    opened = run(open_store(store_url, lambda: 0, observe))
    run(opened.find_bearer(TOKENS[0].id))
    run(wait_for_lanes(opened))
    reads.clear()
    yield opened
    run(opened.close())


async def wait_for_lanes(store: Store) -> None:
    """The first request opens one lane; the others open in the background."""
    async with asyncio.timeout(TIMEOUT):
        lanes = store._verifier._lanes  # type: ignore[attr-defined]
        while any(lane.connection is None for lane in lanes):  # noqa: ASYNC110 - nobody tells of it
            await asyncio.sleep(0.01)


async def find_all(store: Store, ids: list[str]) -> list[Bearer | BaseException | None]:
    return await asyncio.gather(*(store.find_bearer(one) for one in ids), return_exceptions=True)


def lane_backends(cluster: Cluster) -> list[int]:
    """The server processes of the lanes."""
    rows = cluster.ask(
        "SELECT pid FROM pg_stat_activity WHERE query LIKE '%AS wanted (id)%' AND pid <> pg_backend_pid()"
    )
    assert rows
    return [row[0] for row in rows]


@contextmanager
def paused(*pids: int) -> Iterator[None]:
    for pid in pids:
        os.kill(pid, signal.SIGSTOP)
    try:
        yield
    finally:
        for pid in pids:
            with suppress(ProcessLookupError):
                os.kill(pid, signal.SIGCONT)


def test_concurrent_requests_share_a_read(run: Run, store: Store, reads: list[float]) -> None:
    found = run(find_all(store, [token.id for token in TOKENS] * 10))
    assert [bearer.token_id for bearer in found if isinstance(bearer, Bearer)] == [token.id for token in TOKENS] * 10
    assert len(reads) <= 2


def test_more_requests_than_one_read_are_all_answered(run: Run, store: Store, reads: list[float]) -> None:
    ids = [record(number).id for number in range(2_000)]
    found = run(find_all(store, ids))
    assert [one is not None for one in found] == [number < len(TOKENS) for number in range(2_000)]
    assert len(reads) >= 4


@pytest.mark.parametrize(
    "odd", ["", "\0", "a\0b", "ü", "\ud800", "x" * 100_000, "'; DROP TABLE tokens; --", "{}", "NULL"]
)
def test_odd_digest_is_unknown_and_does_not_affect_others(run: Run, store: Store, odd: str) -> None:
    found = run(find_all(store, [TOKENS[0].id, odd, TOKENS[1].id]))
    assert [getattr(one, "token_id", one) for one in found] == [TOKENS[0].id, None, TOKENS[1].id]


def test_cancelled_request_does_not_affect_others(run: Run, store: Store) -> None:
    async def cancel_half() -> list[Bearer | BaseException | None]:
        tasks = [asyncio.ensure_future(store.find_bearer(token.id)) for token in TOKENS]
        await asyncio.sleep(0)
        for task in tasks[::2]:
            task.cancel()
        return await asyncio.gather(*tasks, return_exceptions=True)

    found = run(cancel_half())
    assert [one.token_id for one in found[1::2] if isinstance(one, Bearer)] == [token.id for token in TOKENS[1::2]]
    assert all(isinstance(one, asyncio.CancelledError) for one in found[::2])
    assert run(store.find_bearer(TOKENS[0].id)) is not None


def test_hanging_lane_does_not_block_requests(run: Run, store: Store, cluster: Cluster) -> None:
    for pid in lane_backends(cluster):
        with paused(pid):
            began = time.monotonic()
            found = run(find_all(store, [token.id for token in TOKENS]))
            assert all(isinstance(one, Bearer) for one in found)
            again = run(find_all(store, [token.id for token in TOKENS]))
            assert all(isinstance(one, Bearer) for one in again)
            assert time.monotonic() - began < TIMEOUT


def test_hanging_database_rejects_all_requests_in_time(run: Run, store_url: PostgresUrl, cluster: Cluster) -> None:
    store = run(open_store(replace(store_url, timeout=SHORT), lambda: 0, ignore))
    run(wait_for_lanes(store))
    cluster.pause()
    try:
        found = run(find_all(store, [token.id for token in TOKENS]))  # still paused
    finally:
        cluster.resume()
    assert {one.reason for one in found if isinstance(one, Fault)} == {Reason.STORE_UNAVAILABLE}
    assert len([one for one in found if isinstance(one, Fault)]) == len(TOKENS)
    until(lambda: run(find_all(store, [TOKENS[0].id]))[0].__class__ is Bearer, "it is accepted again")
    run(store.close())


def test_terminated_connections_are_replaced_without_errors(run: Run, store: Store, cluster: Cluster) -> None:
    async def terminate_and_find() -> list[Bearer | BaseException | None]:
        found = []
        for _ in range(5):
            await asyncio.to_thread(cluster.terminate_backends, "application_name = 'watchword'")
            found += await find_all(store, [token.id for token in TOKENS])
        return found

    assert all(isinstance(one, Bearer) for one in run(terminate_and_find()))


def test_requests_wait_for_a_restarting_server(run: Run, store: Store, cluster: Cluster) -> None:
    async def terminate_and_find() -> list[Bearer | BaseException | None]:
        await asyncio.to_thread(cluster.stop, immediate=True)
        asked = asyncio.ensure_future(find_all(store, [token.id for token in TOKENS]))
        await asyncio.to_thread(cluster.start)
        return await asked

    assert all(isinstance(one, Bearer) for one in run(terminate_and_find()))


def test_revocation_is_visible_to_every_later_read(run: Run, store: Store, store_url: PostgresUrl) -> None:
    async def revoke_under_load() -> None:
        other = await open_store(store_url, lambda: 0, ignore)
        stop = asyncio.Event()

        async def load() -> None:
            while not stop.is_set():
                await find_all(store, [token.id for token in TOKENS])

        noises = [asyncio.ensure_future(load()) for _ in range(8)]
        for number in range(1_000, 1_050):
            await other.add_token(SYSTEM, record(number)._replace(expires_at=None), Issue(key(1).kid, PLENTY))
            bearer = await store.find_bearer(record(number).id)
            assert bearer is not None
            assert bearer.revoked_at is None
            await other.revoke_token(SYSTEM, record(number).id, None)
            bearer = await store.find_bearer(record(number).id)
            assert bearer is not None
            assert bearer.revoked_at is not None
        stop.set()
        await asyncio.gather(*noises)
        await other.close()

    run(revoke_under_load())


def test_closed_store_answers_waiting_requests_and_rejects_new_ones(run: Run, store_url: PostgresUrl) -> None:
    async def close() -> list[Bearer | BaseException | None]:
        store = await open_store(store_url, lambda: 0, ignore)
        waiting = asyncio.ensure_future(find_all(store, [token.id for token in TOKENS]))
        for _ in range(3):  # let all requests start waiting
            await asyncio.sleep(0)
        await store.close()
        return [*await waiting, *await find_all(store, [TOKENS[0].id])]

    *served, refused = run(close())
    assert all(isinstance(one, Bearer) for one in served)
    assert isinstance(refused, Fault)
    assert refused.reason is Reason.STOPPING


def test_connection_lost_before_its_query_fails_does_not_affect_requests(run: Run, store: Store) -> None:
    """The watchdog may see a closed connection before its statement fails."""

    async def lose_connections() -> list[Bearer | BaseException | None]:
        lanes = store._verifier  # type: ignore[attr-defined]
        found: list[Bearer | BaseException | None] = []
        for _ in range(20):
            asked = asyncio.ensure_future(find_all(store, [token.id for token in TOKENS]))
            while not any(lane.batch for lane in lanes._lanes):  # noqa: ASYNC110 - turns of the loop, to the very one
                await asyncio.sleep(0)
            for lane in lanes._lanes:
                if lane.connection is not None:
                    lane.connection.terminate()
            lanes._look()
            found += await asyncio.wait_for(asked, 3 * TIMEOUT)
        return found

    assert all(isinstance(one, Bearer) for one in run(lose_connections()))
