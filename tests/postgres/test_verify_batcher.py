"""Verification by shared reads: who waits together is answered together, and nobody holds up anybody."""

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
from watchword.domain.actors import Bearer
from watchword.domain.errors import Fault, Reason
from watchword.domain.policies import root_policy
from watchword.domain.ports import Issue, Store
from watchword.domain.store_urls import PostgresUrl
from watchword.setting_values import database as read_address
from watchword.stores.open import open_store, prepare
from watchword.stores.sql.transaction import ignore

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
def place(cluster: Cluster, tmp_path_factory: pytest.TempPathFactory) -> PostgresUrl:
    home = Home(cluster, tmp_path_factory.mktemp("home"))
    address = read_address(home.url)
    assert isinstance(address, PostgresUrl)
    made = replace(address, schema=home.schema, timeout=TIMEOUT)
    prepare(made)

    async def first_start() -> None:
        store = await open_store(made, lambda: 0, ignore)
        await store.settle_keys(b"sealed salt", key(1), key(2))
        await store.apply_startup_policies(root_policy(ADMIN), ())
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
    """How long each shared read took."""
    return []


@pytest.fixture
def store(run: Run, place: PostgresUrl, reads: list[float]) -> Iterator[Store]:
    def observe(what: str, seconds: float) -> None:
        if what == "verify":
            reads.append(seconds)

    opened = run(open_store(place, lambda: 0, observe))
    run(opened.find_bearer(TOKENS[0].id))
    run(opened_lanes(opened))
    reads.clear()
    yield opened
    run(opened.close())


async def opened_lanes(store: Store) -> None:
    """Who asks first waits for one lane; the others open meanwhile."""
    async with asyncio.timeout(TIMEOUT):
        lanes = store._verifier._lanes  # type: ignore[attr-defined]
        while any(lane.connection is None for lane in lanes):  # noqa: ASYNC110 - nobody tells of it
            await asyncio.sleep(0.01)


async def find_all(store: Store, ids: list[str]) -> list[Bearer | BaseException | None]:
    return await asyncio.gather(*(store.find_bearer(one) for one in ids), return_exceptions=True)


def lanes(cluster: Cluster) -> list[int]:
    """The processes of the server that serve the lanes."""
    rows = cluster.ask(
        "SELECT pid FROM pg_stat_activity WHERE query LIKE '%AS wanted (id)%' AND pid <> pg_backend_pid()"
    )
    assert rows
    return [row[0] for row in rows]


@contextmanager
def stopped(*pids: int) -> Iterator[None]:
    for pid in pids:
        os.kill(pid, signal.SIGSTOP)
    try:
        yield
    finally:
        for pid in pids:
            with suppress(ProcessLookupError):
                os.kill(pid, signal.SIGCONT)


def test_those_who_wait_together_share_a_read(run: Run, store: Store, reads: list[float]) -> None:
    found = run(find_all(store, [token.id for token in TOKENS] * 10))
    assert [bearer.token_id for bearer in found if isinstance(bearer, Bearer)] == [token.id for token in TOKENS] * 10
    assert len(reads) <= 2


def test_many_more_than_one_read_may_ask_for_are_all_answered(run: Run, store: Store, reads: list[float]) -> None:
    ids = [record(number).id for number in range(2_000)]
    found = run(find_all(store, ids))
    assert [one is not None for one in found] == [number < len(TOKENS) for number in range(2_000)]
    assert len(reads) >= 4


@pytest.mark.parametrize(
    "odd", ["", "\0", "a\0b", "ü", "\ud800", "x" * 100_000, "'; DROP TABLE tokens; --", "{}", "NULL"]
)
def test_an_odd_digest_is_unknown_and_spoils_nothing(run: Run, store: Store, odd: str) -> None:
    found = run(find_all(store, [TOKENS[0].id, odd, TOKENS[1].id]))
    assert [getattr(one, "token_id", one) for one in found] == [TOKENS[0].id, None, TOKENS[1].id]


def test_a_caller_who_went_away_holds_up_nobody(run: Run, store: Store) -> None:
    async def some_leave() -> list[Bearer | BaseException | None]:
        tasks = [asyncio.ensure_future(store.find_bearer(token.id)) for token in TOKENS]
        await asyncio.sleep(0)
        for task in tasks[::2]:
            task.cancel()
        return await asyncio.gather(*tasks, return_exceptions=True)

    found = run(some_leave())
    assert [one.token_id for one in found[1::2] if isinstance(one, Bearer)] == [token.id for token in TOKENS[1::2]]
    assert all(isinstance(one, asyncio.CancelledError) for one in found[::2])
    assert run(store.find_bearer(TOKENS[0].id)) is not None


def test_a_lane_that_hangs_holds_up_nobody_for_long(run: Run, store: Store, cluster: Cluster) -> None:
    for pid in lanes(cluster):
        with stopped(pid):
            began = time.monotonic()
            found = run(find_all(store, [token.id for token in TOKENS]))
            assert all(isinstance(one, Bearer) for one in found)
            again = run(find_all(store, [token.id for token in TOKENS]))
            assert all(isinstance(one, Bearer) for one in again)
            assert time.monotonic() - began < TIMEOUT


def test_nobody_is_accepted_while_every_lane_hangs_and_all_are_told_in_time(
    run: Run, place: PostgresUrl, cluster: Cluster
) -> None:
    store = run(open_store(replace(place, timeout=SHORT), lambda: 0, ignore))
    run(opened_lanes(store))
    cluster.pause()
    try:
        found = run(find_all(store, [token.id for token in TOKENS]))  # while it is still paused
    finally:
        cluster.resume()
    assert {one.reason for one in found if isinstance(one, Fault)} == {Reason.STORE_UNAVAILABLE}
    assert len([one for one in found if isinstance(one, Fault)]) == len(TOKENS)
    until(lambda: run(find_all(store, [TOKENS[0].id]))[0].__class__ is Bearer, "it is accepted again")
    run(store.close())


def test_connections_that_are_ended_are_replaced_and_nobody_notices(run: Run, store: Store, cluster: Cluster) -> None:
    async def through_it() -> list[Bearer | BaseException | None]:
        found = []
        for _ in range(5):
            await asyncio.to_thread(cluster.terminate_backends, "application_name = 'watchword'")
            found += await find_all(store, [token.id for token in TOKENS])
        return found

    assert all(isinstance(one, Bearer) for one in run(through_it()))


def test_a_server_that_is_restarted_is_waited_for(run: Run, store: Store, cluster: Cluster) -> None:
    async def through_it() -> list[Bearer | BaseException | None]:
        await asyncio.to_thread(cluster.stop, immediate=True)
        asked = asyncio.ensure_future(find_all(store, [token.id for token in TOKENS]))
        await asyncio.to_thread(cluster.start)
        return await asked

    assert all(isinstance(one, Bearer) for one in run(through_it()))


def test_a_revocation_is_seen_by_whoever_asks_after_it(run: Run, store: Store, place: PostgresUrl) -> None:
    async def storm() -> None:
        other = await open_store(place, lambda: 0, ignore)
        stop = asyncio.Event()

        async def noise() -> None:
            while not stop.is_set():
                await find_all(store, [token.id for token in TOKENS])

        noises = [asyncio.ensure_future(noise()) for _ in range(8)]
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

    run(storm())


def test_a_closed_store_answers_those_who_wait_and_refuses_others(run: Run, place: PostgresUrl) -> None:
    async def close() -> list[Bearer | BaseException | None]:
        store = await open_store(place, lambda: 0, ignore)
        waiting = asyncio.ensure_future(find_all(store, [token.id for token in TOKENS]))
        for _ in range(3):  # turns of the loop, in which all of them come to wait
            await asyncio.sleep(0)
        await store.close()
        return [*await waiting, *await find_all(store, [TOKENS[0].id])]

    *served, refused = run(close())
    assert all(isinstance(one, Bearer) for one in served)
    assert isinstance(refused, Fault)
    assert refused.reason is Reason.STOPPING


def test_a_connection_found_closed_before_its_answer_is_missed_takes_nobody_with_it(run: Run, store: Store) -> None:
    """The watch may see that a connection is gone before the statement on it fails."""

    async def lose() -> list[Bearer | BaseException | None]:
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

    assert all(isinstance(one, Bearer) for one in run(lose()))
