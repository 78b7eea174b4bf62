"""The usage recorder on a real store loses no use and counts none twice."""

import asyncio
from collections.abc import Awaitable, Callable, Iterator
from contextlib import closing, contextmanager
from functools import partial
from pathlib import Path

import apsw
import pytest

from tests.contract.harness import SYSTEM, Run, StoreHarness, key, record
from tests.support.backends import NOW, AdjustableClock
from tests.support.strategies import numbered_id
from tests.support.waiting import SECONDS
from watchword.database.sqlite.connections import STORE_FILE
from watchword.stores.joined import Store
from watchword.stores.sqlite import open_store
from watchword.tokens.rules import Issue
from watchword.tokens.usage_jobs import UsageRecorder

HOURS = 3_600.0


async def until(true: Callable[[], Awaitable[bool] | bool]) -> None:
    async with asyncio.timeout(SECONDS):
        while True:
            found = true()
            if found if isinstance(found, bool) else await found:
                return
            await asyncio.sleep(0.001)


async def is_used(store: Store, token_id: str) -> bool:
    found = await store.get_token(token_id)
    return found is not None and found.use_count > 0


def test_uses_add_up_and_last_used_never_decreases(harness: StoreHarness) -> None:
    token = harness.token(1)
    for at, client in ((NOW + 5, "10.0.0.1"), (NOW + 9, "10.0.1.1"), (NOW + 7, "10.0.2.1")):
        gathered = UsageRecorder(harness.store)
        for _ in range(3):
            gathered.record(token.id, at, client)
        assert harness.run(gathered.flush())
    kept = harness.stored(token)
    assert kept is not None
    assert (kept.use_count, kept.last_used_at, kept.last_network) == (9, NOW + 9, "10.0.1.0/24")


def test_full_buffer_is_flushed_before_the_interval(harness: StoreHarness) -> None:
    tokens = [harness.token(number) for number in range(2)]

    async def scenario() -> None:
        gathered = UsageRecorder(harness.store, HOURS, many=1_200)
        running = asyncio.ensure_future(gathered.run())
        for token in tokens:
            gathered.record(token.id, NOW, "unix")
            for number in range(2, 1_201):
                gathered.record(numbered_id(number), NOW, "unix")
            await until(partial(is_used, harness.store, token.id))
        running.cancel()

    harness.run(scenario())


@contextmanager
def locked(path: Path) -> Iterator[None]:
    """As a backup tool or a forgotten shell would."""
    with closing(apsw.Connection(str(path))) as connection:
        connection.execute("BEGIN IMMEDIATE")
        yield


@pytest.fixture
def file(tmp_path: Path) -> Path:
    path = tmp_path / "store.db"
    STORE_FILE.prepare(path)
    return path


async def open_with_tokens(path: Path) -> Store:
    store = open_store(path, AdjustableClock())
    await store.settle_keys(b"salt", key(1), key(2))
    for number in range(3):
        await store.add_token(SYSTEM, record(number), Issue(key(1).kid, 10))
    return store


async def counts(store: Store) -> list[int]:
    found = [await store.get_token(numbered_id(number)) for number in range(3)]
    return [token.use_count for token in found if token is not None]


def test_failed_flush_is_retried_with_later_uses(run: Run, file: Path) -> None:
    async def scenario() -> None:
        store = await open_with_tokens(file)
        gathered = UsageRecorder(store)
        gathered.record(numbered_id(0), NOW + 1, "10.0.0.1")
        gathered.record(numbered_id(1), NOW + 2, "10.0.0.1")
        with locked(file):
            assert not await gathered.flush()
            gathered.record(numbered_id(1), NOW + 3, "10.0.1.1")
            gathered.record(numbered_id(2), NOW + 4, "10.0.0.1")
        assert await counts(store) == [0, 0, 0]
        assert await gathered.flush()
        assert await counts(store) == [1, 2, 1]
        twice = await store.get_token(numbered_id(1))
        assert twice is not None
        assert (twice.last_used_at, twice.last_network) == (NOW + 3, "10.0.1.0/24")
        await store.close()

    run(scenario())


def test_flush_during_shutdown_counts_each_use_once(run: Run, file: Path) -> None:
    async def scenario() -> None:
        store = await open_with_tokens(file)
        gathered = UsageRecorder(store, 0.001)
        gathered.record(numbered_id(0), NOW, "unix")
        with locked(file):
            running = asyncio.ensure_future(gathered.run())
            before = len(asyncio.all_tasks())
            await until(lambda: len(asyncio.all_tasks()) > before)
            running.cancel()
            gathered.record(numbered_id(0), NOW + 1, "unix")
            gathered.record(numbered_id(1), NOW + 1, "unix")
        await gathered.flush()
        assert await counts(store) == [2, 1, 0]
        await store.close()

    run(scenario())


def test_buffer_is_limited_while_the_store_is_unavailable(run: Run, file: Path) -> None:
    async def scenario() -> None:
        store = await open_with_tokens(file)
        gathered = UsageRecorder(store, many=1)
        for number in range(3):
            for _ in range(2):
                gathered.record(numbered_id(number), NOW, "unix")
        with locked(file):
            assert not await gathered.flush()
        assert await gathered.flush()
        assert await counts(store) == [2, 2, 0]
        await store.close()

    run(scenario())
