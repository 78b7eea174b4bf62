"""A search or write past its deadline is rejected; the store keeps working."""

import asyncio
import threading
from pathlib import Path

import pytest

from watchword.basics.errors import Fault, Reason
from watchword.database.sqlite.connections import STORE_FILE
from watchword.database.sqlite.database import SCAN_THREADS, SqliteDatabase
from watchword.database.sqlite.writer import MAX_WAITING
from watchword.database.transaction import Transaction


async def endless_query(tx: Transaction) -> object:
    return await tx.fetchval("WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n) SELECT count(*) FROM n")


async def quick_query(tx: Transaction) -> object:
    return await tx.fetchval("SELECT count(*) FROM tokens")


def test_search_past_its_deadline_is_rejected(tmp_path: Path) -> None:
    path = tmp_path / "store.db"
    STORE_FILE.prepare(path)

    async def scenario() -> None:
        database = SqliteDatabase(path)
        cut_off = await asyncio.gather(
            *(database.scan(endless_query, 0.2) for _ in range(SCAN_THREADS)), return_exceptions=True
        )
        assert [fault.reason for fault in cut_off if isinstance(fault, Fault)] == [Reason.DEADLINE] * SCAN_THREADS
        assert (
            await asyncio.gather(*(database.scan(quick_query) for _ in range(2 * SCAN_THREADS)))
            == [0] * 2 * SCAN_THREADS
        )
        await database.close()

    asyncio.run(scenario())


def test_waiting_for_a_thread_counts_towards_the_deadline(tmp_path: Path) -> None:
    path = tmp_path / "store.db"
    STORE_FILE.prepare(path)

    async def scenario() -> None:
        database = SqliteDatabase(path)
        busy = [asyncio.ensure_future(database.scan(endless_query, 0.2)) for _ in range(SCAN_THREADS)]
        await asyncio.sleep(0)
        with pytest.raises(Fault) as late:
            await database.scan(endless_query, 0.2)
        assert late.value.reason is Reason.DEADLINE
        await asyncio.gather(*busy, return_exceptions=True)
        await database.close()

    asyncio.run(scenario())


def test_writes_beyond_the_queue_limit_are_rejected(tmp_path: Path) -> None:
    path = tmp_path / "store.db"
    STORE_FILE.prepare(path)
    stalled, released = threading.Event(), threading.Event()

    async def stall(_: Transaction) -> None:
        stalled.set()
        released.wait()

    async def scenario() -> None:
        database = SqliteDatabase(path)
        first = asyncio.ensure_future(database.write(stall))
        await asyncio.to_thread(stalled.wait)
        writes = [asyncio.ensure_future(database.write(quick_query)) for _ in range(MAX_WAITING + 5)]
        await asyncio.sleep(0)
        released.set()
        results = await asyncio.gather(*writes, return_exceptions=True)
        assert [fault.reason for fault in results if isinstance(fault, Fault)] == [Reason.STORE_UNAVAILABLE] * 5
        assert results[:MAX_WAITING] == [0] * MAX_WAITING
        await first
        await database.close()

    asyncio.run(scenario())


def test_write_withdrawn_at_its_deadline_never_runs(tmp_path: Path) -> None:
    path = tmp_path / "store.db"
    STORE_FILE.prepare(path)
    stalled, released = threading.Event(), threading.Event()
    done: list[str] = []

    async def stall(_: Transaction) -> None:
        stalled.set()
        released.wait()
        done.append("begun")

    async def undo(_: Transaction) -> None:
        done.append("undone")

    async def withdraw(_: Transaction) -> None:
        done.append("withdrawn")

    async def begin(database: SqliteDatabase) -> "asyncio.Future[None]":
        """On a busy machine the deadline may pass before the writer begins: then the write is tried again."""
        while True:
            begun = asyncio.ensure_future(database.write(stall, 0.2, undo))
            while not (stalled.is_set() or begun.done()):  # noqa: ASYNC110 - a thread sets it
                await asyncio.sleep(0.01)
            if stalled.is_set():
                return begun
            assert isinstance(begun.exception(), Fault)

    async def scenario() -> None:
        database = SqliteDatabase(path)
        begun = await begin(database)
        with pytest.raises(Fault) as withdrawn:
            await database.write(withdraw, 0.2)
        assert withdrawn.value.reason is Reason.STORE_UNAVAILABLE
        with pytest.raises(Fault) as unknown:
            await begun
        assert unknown.value.reason is Reason.OUTCOME_UNKNOWN
        released.set()
        await database.write(quick_query)
        assert done == ["begun", "undone"]
        await database.close()

    asyncio.run(scenario())


def test_close_stops_a_search_and_does_not_block_the_event_loop(tmp_path: Path) -> None:
    path = tmp_path / "store.db"
    STORE_FILE.prepare(path)
    began = threading.Event()

    async def search(tx: Transaction) -> object:
        began.set()
        return await endless_query(tx)

    async def scenario() -> None:
        database = SqliteDatabase(path)
        searching = asyncio.ensure_future(database.scan(search, 60.0))
        await asyncio.to_thread(began.wait)
        await database.close()
        with pytest.raises(Fault) as stopped:
            await searching
        assert stopped.value.reason is Reason.STOPPING

    asyncio.run(scenario())


def test_close_does_not_wait_for_what_never_ends(tmp_path: Path) -> None:
    path = tmp_path / "store.db"
    STORE_FILE.prepare(path)
    stalled, released = threading.Barrier(3), threading.Event()

    async def stall(_: Transaction) -> None:
        stalled.wait()
        released.wait()

    async def scenario() -> None:
        database = SqliteDatabase(path)
        stuck = [asyncio.ensure_future(work(stall, 60.0)) for work in (database.scan, database.write)]
        await asyncio.to_thread(stalled.wait)
        await database.close(0.1)
        assert not any(one.done() for one in stuck), "the process may end meanwhile"
        released.set()
        await asyncio.wait(stuck)
        assert [one.exception() for one in stuck] == [None, None]

    asyncio.run(scenario())
