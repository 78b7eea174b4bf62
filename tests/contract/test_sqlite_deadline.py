"""A search that takes too long is cut off, and leaves the store as ready as before."""

import asyncio
from pathlib import Path

import apsw
import pytest

from watchword.domain.errors import Fault, Reason
from watchword.stores.sqlite import prepare
from watchword.stores.sqlite.database import SCAN_THREADS, Database


def endless(connection: apsw.Connection) -> object:
    return connection.execute(
        "WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n) SELECT count(*) FROM n"
    ).get


def quick(connection: apsw.Connection) -> object:
    return connection.execute("SELECT count(*) FROM tokens").get


def test_a_search_beyond_its_deadline_is_refused_and_the_next_ones_are_answered(tmp_path: Path) -> None:
    path = tmp_path / "store.db"
    prepare(path)

    async def story() -> None:
        database = Database(path)
        cut_off = await asyncio.gather(
            *(database.scan(endless, 0.2) for _ in range(SCAN_THREADS)), return_exceptions=True
        )
        assert [fault.reason for fault in cut_off if isinstance(fault, Fault)] == [Reason.DEADLINE] * SCAN_THREADS
        assert await asyncio.gather(*(database.scan(quick) for _ in range(2 * SCAN_THREADS))) == [0] * 2 * SCAN_THREADS
        await database.close()

    asyncio.run(story())


def test_the_wait_for_a_thread_counts_into_the_deadline(tmp_path: Path) -> None:
    path = tmp_path / "store.db"
    prepare(path)

    async def story() -> None:
        database = Database(path)
        busy = [asyncio.ensure_future(database.scan(endless, 0.2)) for _ in range(SCAN_THREADS)]
        await asyncio.sleep(0)
        with pytest.raises(Fault) as late:
            await database.scan(endless, 0.2)
        assert late.value.reason is Reason.DEADLINE
        await asyncio.gather(*busy, return_exceptions=True)
        await database.close()

    asyncio.run(story())
