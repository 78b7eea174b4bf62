"""Three ways to the one file: a point read, a search, a write.

- `read` runs on the event loop itself: an indexed point read takes microseconds, less than handing it to a thread.
- `scan` runs in a thread of its own, in one snapshot, and is cut off at a deadline.
- `write` goes through the writer and returns when it is durable, or refuses at a deadline.
"""

import asyncio
import threading
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any, TypeVar

import apsw

from watchword.domain.errors import Fault, Reason, Stale
from watchword.domain.filters import SEARCH_SECONDS
from watchword.stores.sqlite.connections import connect, store_fault
from watchword.stores.sqlite.writer import WRITE_SECONDS, Work, Writer

T = TypeVar("T")
Observe = Callable[[str, float], None]

SCAN_THREADS = 4
STEPS_BETWEEN_LOOKS = 20_000
# Of the reader and of the writer: the inner pages of a file of millions of tokens. Leaves come from the system's own
# cache, at a cost that could not be measured.
CACHE_MIB = 8
SCAN_CACHE_MIB = 2


def ignore(operation: str, seconds: float) -> None:
    """An observer that notes nothing."""


class Database:
    def __init__(self, path: Path, *, patience: float = 2.0, observe: Observe = ignore) -> None:
        self.path = path
        self._patience = patience
        self._observe = observe
        self._closed = False
        self._reader = connect(path, busy_ms=int(patience * 1000), read_only=True, cache_mib=CACHE_MIB)
        self._reader.set_busy_timeout(0)
        self._cursor = self._reader.cursor()
        self._scanners = ThreadPoolExecutor(SCAN_THREADS, thread_name_prefix="watchword-scan")
        self._local = threading.local()
        self._scan_connections: list[apsw.Connection] = []
        self._writer = Writer(self._connect_writer)

    def define(self, view: str) -> None:
        """Give a long query of point reads a short name: the driver looks at the whole text of a statement each time it
        is asked for it.
        """
        self._reader.execute("PRAGMA query_only = OFF")
        self._reader.execute(f"CREATE TEMP VIEW {view}")
        self._reader.execute("PRAGMA query_only = ON")

    @property
    def at_once(self) -> Callable[[str, tuple[Any, ...]], apsw.Cursor]:
        """Executes a point read where every microsecond counts: it is not observed, and waits for nobody. The cursor is
        always the same, and its `get` leaves it at its end, so that no snapshot outlives the read. After an
        `apsw.Error`, `row` finds out what is wrong.
        """
        return self._cursor.execute

    async def row(self, statement: str, *bound: Any) -> tuple[Any, ...] | None:
        """The one row of a point read, or None."""
        return await self.read(lambda c: c.execute(statement, bound).fetchone())

    async def read(self, work: Work[T]) -> T:
        """A point read of the committed state. Waits, without holding up others, while the file is locked."""
        self._check_open()
        began = time.perf_counter()
        pause = 0.002
        while True:
            try:
                result = work(self._reader)
            except apsw.BusyError as error:
                if time.perf_counter() - began + pause > self._patience:
                    raise store_fault(error) from error
            except apsw.Error as error:
                raise store_fault(error) from error
            else:
                self._observe("read", time.perf_counter() - began)
                return result
            await asyncio.sleep(pause)
            pause *= 1.5

    async def scan(self, work: Work[T], seconds: float = SEARCH_SECONDS) -> T:
        """A search in one snapshot, in a thread, under the deadline, which counts the wait for a thread too."""
        self._check_open()
        began = time.perf_counter()
        deadline = time.monotonic() + seconds
        result = await asyncio.get_running_loop().run_in_executor(self._scanners, self._scan, work, deadline)
        self._observe("scan", time.perf_counter() - began)
        return result

    async def write(self, work: Work[T], seconds: float = WRITE_SECONDS, undo: Work[Any] | None = None) -> T:
        """A transaction, durable when this returns, within so many seconds. See `Writer.run` for `undo`."""
        began = time.perf_counter()
        try:
            return await self._writer.run(work, seconds, undo)
        except (Fault, Stale):
            raise
        except apsw.Error as error:
            raise store_fault(error) from error
        finally:
            self._observe("write", time.perf_counter() - began)

    async def close(self) -> None:
        self._closed = True
        await self._writer.close()
        self._scanners.shutdown()
        for connection in (*self._scan_connections, self._reader):
            connection.close(True)

    def _connect_writer(self) -> apsw.Connection:
        connection = connect(self.path, busy_ms=int(self._patience * 1000), cache_mib=CACHE_MIB)
        # What a savepoint would put back is kept in memory: in a file it was a third of all that was written.
        connection.execute("PRAGMA temp_store = MEMORY")
        return connection

    def _check_open(self) -> None:
        if self._closed:
            raise Fault(Reason.STOPPING, "The service is stopping.")

    def _scan(self, work: Work[T], deadline: float) -> T:
        if time.monotonic() > deadline:
            raise _too_slow()
        connection = getattr(self._local, "connection", None)
        try:
            if connection is None:
                patience = int(self._patience * 1000)
                connection = connect(self.path, busy_ms=patience, read_only=True, cache_mib=SCAN_CACHE_MIB)
                self._local.connection = connection
                self._scan_connections.append(connection)
            return in_snapshot(connection, lambda c: _until(deadline, c, work))
        except apsw.InterruptError as error:
            raise _too_slow() from error
        except apsw.Error as error:
            raise store_fault(error) from error


def _too_slow() -> Fault:
    return Fault(
        Reason.DEADLINE, "The search took too long; narrow it with actorUrn or ownerUrn, or ask for less at once."
    )


def _until(deadline: float, connection: apsw.Connection, work: Work[T]) -> T:
    connection.set_progress_handler(lambda: time.monotonic() > deadline, STEPS_BETWEEN_LOOKS)
    try:
        return work(connection)
    finally:
        # What ends the snapshot must not be cut off too.
        connection.set_progress_handler(None)


def in_snapshot(connection: apsw.Connection, work: Work[T]) -> T:
    """Run several reads on one state of the file."""
    connection.execute("BEGIN")
    try:
        return work(connection)
    finally:
        if connection.in_transaction:
            connection.execute("COMMIT")
