"""The SQLite driver: three ways to the one file, and transactions on it.

- A point read runs on the event loop itself: by an index it takes microseconds, less than handing it to a thread.
- `scan` runs in a thread of its own, in one snapshot, and is cut off at a deadline.
- `write` goes through the writer and returns when it is durable, or fails at a deadline.
"""

import asyncio
import re
import threading
import time
from collections.abc import AsyncIterator, Callable, Coroutine, Iterable, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from functools import cache, lru_cache
from pathlib import Path
from typing import Any, TypeVar

import apsw

from watchword.basics.paging import SEARCH_SECONDS
from watchword.basics.processor_time import running
from watchword.basics.times import Clock, system_clock
from watchword.database import rows
from watchword.database.faults import stopping, too_slow
from watchword.database.sqlite.connections import connect, folded, store_fault
from watchword.database.sqlite.file import BUSY_MS, transaction
from watchword.database.sqlite.writer import WRITE_SECONDS, Writer, WriteSet
from watchword.database.transaction import LONG_SECONDS, Dialect, Item, Observe, SetWork, Work, ignore

T = TypeVar("T")
Read = Callable[[apsw.Connection], T]

SCAN_THREADS = 4
THREAD_SECONDS = 0.0001
"""What it costs to hand work to a thread and back."""
STEPS_BETWEEN_LOOKS = 20_000
# Of the reader and of the writer: room for the inner pages of a file with a million tokens. The rest comes from the
# system's cache, at a cost too small to measure.
CACHE_MIB = 4
SCAN_CACHE_MIB = 2
CLOSE_SECONDS = 12.0
"""How long a close waits for writes, and again for scans: longer than for an answer to a write. Workers are killed
after 30 s.
"""


_REVOKE = """
UPDATE tokens SET revoked_at = ?2 WHERE id IN (SELECT value FROM json_each(?1)) AND revoked_at IS NULL
RETURNING id, actor_urn, name"""
_PARAMETER = re.compile(r'\$(\d+)(?:::\w+(?:\[\])?)?(?: COLLATE "C")?')


@lru_cache(1024)
def sqlite_text(sql: str) -> str:
    """`$1::text` becomes `?1`: SQLite's parameters have no types."""
    return _PARAMETER.sub(r"?\1", sql)


@cache
def _insert_text(table: str, names: str) -> str:
    return sqlite_text(rows.insert(table, names))


@lru_cache(64)
def _each_text(sql: str, names: Sequence[str]) -> str:
    return sqlite_text(sql.replace("{wanted}", DIALECT.each_row(names, 2)))


def _each_row(names: Sequence[str], first: int) -> str:
    columns = ", ".join(f"value ->> {number} AS {name}" for number, name in enumerate(names))
    return f"(SELECT key + 1 AS n, {columns} FROM json_each(${first})) AS wanted"


def _any_of(parameter: str) -> str:
    return f"IN (SELECT value FROM json_each({parameter}))"


def _json_objects(names: Sequence[str]) -> str:
    members = ", ".join(f"'{name}', \"{name}\"" for name in names)
    return f"json_group_array(json_object({members}))"


DIALECT = Dialect(
    for_update="",
    skip_locked="",
    next_policy_version="UPDATE state SET policy_version = policy_version + 1",
    policy_users=", json_each(policies.users) AS named",
    any_of=_any_of,
    any_number=_any_of,
    each_of=lambda parameter, _: f"json_each({parameter}) AS each_of",
    stored_folded=None,
    each_row=_each_row,
    left_lookup=lambda table, condition: f"LEFT JOIN {table} AS found ON {condition.replace(table, 'found')}",
    folded=folded,
    position=lambda text, part: f"instr({text}, {part})",
    # By bytes, which are not counted for each token as characters are: a text ends with what its bytes end with.
    ends_with=lambda text, part: (
        f"CASE {part} WHEN '' THEN {text} IS NOT NULL"
        f" ELSE substr(CAST({text} AS BLOB), -octet_length({part})) = CAST({part} AS BLOB) END"
    ),
    json_member=lambda column, name: f"({column} ->> '{name}')",
    json_array=lambda column, source: f"(SELECT json_group_array({column}) FROM (SELECT {column} FROM {source}))",
    json_rows=lambda columns: f"json_group_array(json_array({columns}))",
    json_objects=_json_objects,
    stored_total=lambda kind, urn: f"coalesce((SELECT total FROM token_totals WHERE kind = {kind} AND urn = {urn}), 0)",
    one_process="",
    by_index=lambda name: f"INDEXED BY {name}",
    event_writers=None,
)


class SqliteTransaction:
    """A transaction that is open on this connection. Nothing in it waits: it is run to its end in one go."""

    __slots__ = ("clock", "connection")
    dialect: Dialect = DIALECT

    def __init__(self, connection: apsw.Connection, clock: Clock = system_clock) -> None:
        self.connection = connection
        self.clock = clock

    async def execute(self, sql: str, *bound: Any) -> int:
        self.connection.execute(sqlite_text(sql), bound_values(bound)).fetchall()
        return self.connection.changes()

    async def executemany(self, sql: str, bound: Iterable[Sequence[Any]]) -> None:
        self.connection.executemany(sqlite_text(sql), bound)

    async def fetch(self, sql: str, *bound: Any) -> Sequence[rows.Row]:
        return self.connection.execute(sqlite_text(sql), bound_values(bound)).fetchall()

    search = fetch

    async def fetch_each(self, sql: str, names: Sequence[str], each: Sequence[rows.Row]) -> Sequence[rows.Row]:
        return self.connection.execute(_each_text(sql, names), (self.clock(), rows.json_text(each))).fetchall()

    async def fetchrow(self, sql: str, *bound: Any) -> rows.Row | None:
        return self.connection.execute(sqlite_text(sql), bound_values(bound)).fetchone()

    async def fetchval(self, sql: str, *bound: Any) -> Any:
        row = self.connection.execute(sqlite_text(sql), bound_values(bound)).fetchone()
        return None if row is None else row[0]

    async def stream(self, sql: str, *bound: Any, prefetch: int = 100) -> AsyncIterator[rows.Row]:
        for row in self.connection.execute(sqlite_text(sql), bound_values(bound)):
            yield row

    async def now(self) -> int:
        return self.clock()

    async def lock(self, *_: Any, **__: Any) -> None:
        """There is one writer at a time."""

    take_slot = lock_tokens = lock

    async def insert_rows(self, table: str, names: str, values: Iterable[rows.Row]) -> None:
        self.connection.executemany(_insert_text(table, names), values)

    async def mark_revoked(self, ids: Sequence[str], now: int, *, lock_rows: bool) -> Sequence[rows.Row]:
        return await self.fetch(_REVOKE, list(ids), now)


def bound_values(bound: Sequence[Any]) -> Sequence[Any]:
    """A list is bound as JSON."""
    for value in bound:
        if type(value) is list:
            return tuple([rows.json_text(value) if type(value) is list else value for value in bound])
    return bound


def run(coroutine: Coroutine[Any, Any, T]) -> T:
    """Run a coroutine that never suspends."""
    try:
        coroutine.send(None)
    except StopIteration as done:
        result: T = done.value
        return result
    coroutine.close()
    raise AssertionError("a transaction waited for something other than its database")


class SqliteDatabase:
    dialect: Dialect = DIALECT

    def __init__(self, path: Path, clock: Clock = system_clock, *, observe: Observe = ignore) -> None:
        self.path = path
        self.clock = clock
        self._observe = observe
        self._closed = False
        """Scans that run then stop at their next look."""
        self._scans: set[Future[Any]] = set()
        self._reader = self._connect(CACHE_MIB, read_only=True)
        self._reader.set_busy_timeout(0)
        self._scanners = ThreadPoolExecutor(SCAN_THREADS, thread_name_prefix="watchword-scan")
        self._local = threading.local()
        self._scan_connections: list[apsw.Connection] = []
        self._writer = Writer(self._connect_writer)
        self._sets: dict[Any, WriteSet] = {}
        """By the work of `write_together`."""

    def define(self, view: str) -> Callable[[str, tuple[Any, ...]], apsw.Cursor]:
        """Give a long query a short name: the driver looks at the whole text of a statement each time it runs it.

        Returns a function that executes a point read where every microsecond counts: it is not observed and does not
        wait for a lock. The cursor is always the same, and its `get` leaves it at its end, so that no snapshot outlives
        the read. After an `apsw.Error`, ask `row`, which reports what is wrong.
        """
        for statement in ("PRAGMA query_only = OFF", f"CREATE TEMP VIEW {view}", "PRAGMA query_only = ON"):
            self._reader.execute(statement)
        return self._reader.cursor().execute

    async def row(self, sql: str, *bound: Any) -> rows.Row | None:
        text, values = sqlite_text(sql), bound_values(bound)
        return await self.read(lambda c: c.execute(text, values).fetchone())

    confirmed_row = row

    async def fetch(self, sql: str, *bound: Any) -> Sequence[rows.Row]:
        text, values = sqlite_text(sql), bound_values(bound)
        return await self.read(lambda c: c.execute(text, values).fetchall())

    async def read(self, read: Read[T]) -> T:
        """A point read of the committed state. Waits, without blocking the event loop, while the file is locked."""
        self._check_open()
        began = time.perf_counter()
        pause = 0.002
        while True:
            try:
                result = read(self._reader)
            except apsw.Error as error:
                if not isinstance(error, apsw.BusyError) or time.perf_counter() - began + pause > BUSY_MS / 1000:
                    raise store_fault(error) from error
            else:
                self._observe("read", time.perf_counter() - began)
                return result
            await asyncio.sleep(pause)
            pause *= 1.5

    async def scan(self, work: Work[T], seconds: float = SEARCH_SECONDS) -> T:
        """Reads in one snapshot, in a thread, under a deadline, which counts the wait for a thread too."""
        account, used = running(), 0.0

        def read(c: apsw.Connection) -> T:
            nonlocal used
            began = time.thread_time()
            try:
                return run(work(SqliteTransaction(c, self.clock)))
            finally:
                used = time.thread_time() - began

        try:
            return await self.scan_file(read, seconds)
        finally:
            if account is not None:
                account.add(used + THREAD_SECONDS)

    async def scan_file(self, read: Read[T], seconds: float = SEARCH_SECONDS) -> T:
        self._check_open()
        began = time.perf_counter()
        scan = self._scanners.submit(self._scan, read, time.monotonic() + seconds)
        self._scans.add(scan)
        scan.add_done_callback(self._scans.discard)
        result = await asyncio.wrap_future(scan)
        self._observe("scan", time.perf_counter() - began)
        return result

    async def write(self, work: Work[T], seconds: float = WRITE_SECONDS, undo: Work[Any] | None = None) -> T:
        """A transaction, durable when this returns, within `seconds`. See `Writer.run` for `undo`."""
        result: T = await self._write(self._job(work), seconds, undo)
        return result

    async def write_together(self, work: SetWork[Item, T], item: Item, undo: Work[Any] | None = None) -> T:
        if work not in self._sets:
            self._sets[work] = lambda c, items: run(work(SqliteTransaction(c, self.clock), items))
        result: T = await self._write(self._sets[work], WRITE_SECONDS, undo, item)
        return result

    async def _write(self, job: WriteSet, seconds: float, undo: Work[Any] | None, item: Any = None) -> Any:
        began = time.perf_counter()
        try:
            return await self._writer.run(job, seconds, None if undo is None else self._job(undo), item)
        except apsw.Error as error:
            raise store_fault(error) from error
        finally:
            self._observe("write", time.perf_counter() - began)

    async def write_long(self, work: Work[T]) -> T:
        return await self.write(work, LONG_SECONDS)

    def _job(self, work: Work[T]) -> WriteSet:
        return lambda c, _: [run(work(SqliteTransaction(c, self.clock)))]

    async def close(self, seconds: float = CLOSE_SECONDS) -> None:
        """Finish the writes that were handed in, and stop the scans. What has not ended by then, as on a disk that
        hangs, is left to the end of the process.
        """
        self._closed = True
        await self._writer.close(seconds)
        running = [asyncio.wrap_future(scan) for scan in tuple(self._scans)]
        if running:
            await asyncio.wait(running, timeout=seconds)
        is_idle = all(scan.done() for scan in running)
        self._scanners.shutdown(wait=is_idle)
        for connection in (*(self._scan_connections if is_idle else ()), self._reader):
            connection.close(True)

    def _connect_writer(self) -> apsw.Connection:
        connection = self._connect(CACHE_MIB)
        # The journal of savepoints stays in memory: in a file it was a third of all that was written.
        connection.execute("PRAGMA temp_store = MEMORY")
        return connection

    def _connect(self, cache_mib: int, *, read_only: bool = False) -> apsw.Connection:
        connection = connect(self.path, read_only=read_only, cache_mib=cache_mib)
        connection.create_scalar_function("now_ms", lambda *_: self.clock(), 0)
        return connection

    def _check_open(self) -> None:
        if self._closed:
            raise stopping()

    def _scan(self, read: Read[T], deadline: float) -> T:
        self._check_open()
        if time.monotonic() > deadline:
            raise too_slow()
        connection = getattr(self._local, "connection", None)
        try:
            if connection is None:
                connection = self._connect(SCAN_CACHE_MIB, read_only=True)
                self._local.connection = connection
                self._scan_connections.append(connection)
            with transaction(connection, "DEFERRED"):
                connection.set_progress_handler(
                    lambda: self._closed or time.monotonic() > deadline, STEPS_BETWEEN_LOOKS
                )
                try:
                    return read(connection)
                finally:
                    # The COMMIT that follows must not be cut off.
                    connection.set_progress_handler(None)
        except apsw.InterruptError as error:
            raise (stopping() if self._closed else too_slow()) from error
        except apsw.Error as error:
            raise store_fault(error) from error
