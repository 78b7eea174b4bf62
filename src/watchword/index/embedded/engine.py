"""The embedded search engine, on one SQLite file: queries run in threads, deletions in the engine's own process."""

import asyncio
import math
import secrets
import threading
import time
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any, NamedTuple, TypeVar

import apsw
import orjson

from watchword.basics.errors import Fault, Reason
from watchword.database.sqlite.file import transaction
from watchword.index.embedded import deletions
from watchword.index.embedded.deletions import LastRows, Walk
from watchword.index.embedded.index_file import INDEX_FILE, connect, place, prepare
from watchword.index.engine import DeletionPage, Pace, TaskId, TaskStatus
from watchword.index.indices import TIME, Histogram, IndexSize, Resolved, Row, RowCount, Spans

T = TypeVar("T")
Query = Callable[[apsw.Connection], T]

THREADS = 4
ANSWER_SECONDS = 20.0
WALK_SECONDS = 60.0
"""For counts that read every row."""
STEPS_BETWEEN_DEADLINE_CHECKS = 50_000
MAX_ID_BYTES = 512
_LARGEST = 2**63 - 1

# Each end by its own query: SQLite finds both by the index, where one query would read every time.
_ENDS = """SELECT (SELECT min(time) FROM documents WHERE index_number = :index),
(SELECT max(time) FROM documents WHERE index_number = :index)"""
_NTH_TIME = """SELECT time FROM documents WHERE index_number = :index AND time <= :latest
ORDER BY time LIMIT 1 OFFSET :before"""
_SPANS = """SELECT max(0, min(:count - 1, CAST(floor((time - :start) / :step) AS INTEGER))) AS span, count(*)
FROM documents WHERE index_number = :index AND time IS NOT NULL GROUP BY span"""


class EmbeddedIndex(NamedTuple):
    number: int
    rows: int
    bytes: int
    last: int
    """How many rows were ever written."""


def open_engine(path: Path) -> "EmbeddedEngine":
    """Creates the file where it is missing. `EngineProcess` runs the tasks."""
    return EmbeddedEngine(path, prepare(path), lambda: time.time_ns() // 1_000_000)


class EmbeddedEngine:
    def __init__(self, path: Path, node: str, clock: Callable[[], int]) -> None:
        self._path = path
        self.node = node
        self._clock = clock
        self._closed = False
        self._threads = ThreadPoolExecutor(THREADS, thread_name_prefix="watchword-index")
        self._local = threading.local()
        self._connections: list[apsw.Connection] = []

    async def probe(self) -> str:
        await self._read(lambda c: c.execute("SELECT node FROM meta").get, seconds=1.0)
        return f"embedded {apsw.sqlite_lib_version()}"

    async def resolve(self, name: str) -> Resolved | None:
        found = await self._read(lambda c: find_index(c, name))
        return None if found is None else Resolved(name, str(found.number), by_alias=False)

    async def sizes(self, head: str, ending: str) -> tuple[IndexSize, ...]:
        def sizes(c: apsw.Connection) -> tuple[IndexSize, ...]:
            query = """SELECT name, bytes, rows FROM indices WHERE length(name) >= length(:head || :ending)
                AND substr(name, 1, length(:head)) = :head AND substr(name, -length(:ending)) = :ending ORDER BY name"""
            found: Any = c.execute(query, {"head": head, "ending": ending})
            return tuple(IndexSize(*row) for row in found)

        return await self._read(sizes)

    async def count(self, index: str, until: int, keep_last: int | None = None) -> RowCount:
        def count(c: apsw.Connection) -> RowCount:
            found = _require_index(c, index)
            if keep_last is not None:
                return RowCount(found.rows, _count_with_limits(c, found, until, keep_last), found.bytes)
            query = "SELECT count(*) FROM documents WHERE index_number = ? AND time <= ?"
            return RowCount(found.rows, c.execute(query, (found.number, until)).get, found.bytes)

        return await self._read(count, ANSWER_SECONDS if keep_last is None else WALK_SECONDS)

    async def moment(self, index: str, rows: int, latest: int) -> int | None:
        def moment(c: apsw.Connection) -> int | None:
            bound = {"index": _require_index(c, index).number, "latest": latest, "before": rows - 1}
            at: float | None = c.execute(_NTH_TIME, bound).get
            if at is None:
                return None if c.execute(_NTH_TIME, bound | {"before": 0}).get is None else latest
            return math.ceil(at)

        return await self._read(moment)

    async def histogram(self, index: str, spans: int) -> Histogram:
        return await self._read(lambda c: _histogram(c, _require_index(c, index), spans))

    async def deletion_page(self, index: str, until: int, keep_last: int, after: str | None) -> DeletionPage:
        """One page for all urns: the engine's process finds their rows."""
        return DeletionPage(keep_last)

    async def start_delete(self, index: str, until: int, pace: Pace, page: DeletionPage | None = None) -> TaskId:
        keep_last: int | None = None if page is None else page.rows

        def start(c: apsw.Connection) -> int:
            found = _require_index(c, index)
            order = deletions.DeletionOrder(
                pace.tag, found.number, until, found.last, max(1, pace.batch), pace.rate, keep_last
            )
            return deletions.add(c, order, self._clock())

        return TaskId(self.node, await self._write(start))

    async def task(self, task: TaskId) -> TaskStatus | None:
        if task.node != self.node:
            return None
        return await self._read(lambda c: deletions.status(c, task, self._clock()))

    async def cancel(self, task: TaskId) -> None:
        if task.node == self.node:
            await self._write(lambda c: deletions.request_cancel(c, task.number))

    async def running(self, tag: str) -> tuple[TaskId, ...]:
        found = await self._read(lambda c: deletions.running(c, tag))
        return tuple(TaskId(self.node, number) for number in found)

    async def make(self, name: str) -> None:
        await self._write(lambda c: c.execute("INSERT INTO indices (name) VALUES (?) ON CONFLICT DO NOTHING", (name,)))

    async def write(self, name: str, rows: Sequence[Row]) -> None:
        await self._write(lambda c: put_rows(c, _require_index(c, name), rows))

    async def close(self) -> None:
        if self._closed:
            return
        self._closed = True
        await asyncio.to_thread(self._threads.shutdown)
        for connection in self._connections:
            connection.close(True)

    async def _read(self, query: Query[T], seconds: float = ANSWER_SECONDS) -> T:
        return await self._run(query, "DEFERRED", seconds)

    async def _write(self, query: Query[T]) -> T:
        return await self._run(query, "IMMEDIATE", ANSWER_SECONDS)

    async def _run(self, query: Query[T], mode: str, seconds: float) -> T:
        if self._closed:
            raise Fault(Reason.STOPPING, "The service is stopping.")
        deadline = time.monotonic() + seconds
        return await asyncio.get_running_loop().run_in_executor(self._threads, self._in_thread, query, mode, deadline)

    def _in_thread(self, query: Query[T], mode: str, deadline: float) -> T:
        try:
            connection = self._connection()
            connection.set_progress_handler(lambda: time.monotonic() > deadline, STEPS_BETWEEN_DEADLINE_CHECKS)
            with transaction(connection, mode):
                return query(connection)
        except apsw.Error as error:
            raise INDEX_FILE.fault(error) from error

    def _connection(self) -> apsw.Connection:
        connection: apsw.Connection | None = getattr(self._local, "connection", None)
        if connection is None:
            connection = self._local.connection = connect(self._path)
            self._connections.append(connection)
        return connection


def find_index(c: apsw.Connection, name: str) -> EmbeddedIndex | None:
    row: Any = c.execute("SELECT number, rows, bytes, last FROM indices WHERE name = ?", (name,)).fetchone()
    return None if row is None else EmbeddedIndex(*row)


def _require_index(c: apsw.Connection, name: str) -> EmbeddedIndex:
    index = find_index(c, name)
    if index is None:
        raise _refused(f"There is no index {name}.")
    return index


def _refused(message: str) -> Fault:
    return Fault(Reason.INDEX_REFUSED, message, cause=message)


def put_rows(c: apsw.Connection, index: EmbeddedIndex, rows: Sequence[Row]) -> None:
    """Inside the caller's transaction: all rows or none."""
    for number, row in enumerate(rows, 1):
        at, row_id = _time(row.source, number), _id(row.id, number)
        found: Any = c.execute(
            "SELECT place, version FROM documents WHERE index_number = ? AND id = ?", (index.number, row_id)
        ).fetchone()
        version = 1
        if found is not None:
            version = found[1] + 1
            c.execute("DELETE FROM documents WHERE place = ?", (found[0],))
        c.execute(
            "INSERT INTO documents VALUES (?, ?, ?, ?, ?, ?)",
            (place(index.number, index.last + number), index.number, row_id, version, at, row.source),
        )
    c.execute("UPDATE indices SET last = last + ? WHERE number = ?", (len(rows), index.number))


def _count_with_limits(c: apsw.Connection, index: EmbeddedIndex, until: int, keep_last: int) -> int:
    """Inside one transaction, so that all steps of the walk see the same rows."""
    limits = LastRows(c)
    walk = Walk(0, index.number, place(index.number, index.last), keep_last, until)
    while not limits.step(walk):
        pass
    rows = limits.count(walk)
    limits.forget(walk.task)
    return rows


def _id(row_id: str | None, number: int) -> str:
    if row_id is None:
        return secrets.token_urlsafe(15)  # 20 characters, like the ids that search engines make
    try:
        size = len(row_id.encode())
    except UnicodeEncodeError:
        size = 0
    if not 1 <= size <= MAX_ID_BYTES:
        raise _refused(f"The id of row {number} must be text of 1 to {MAX_ID_BYTES} bytes. No row was written.")
    return row_id


def _time(source: bytes, number: int) -> int | float | None:
    try:
        content: Any = orjson.loads(source)
    except orjson.JSONDecodeError as error:
        raise _refused(f"Row {number} must be a JSON object: {error}. No row was written.") from None
    if not isinstance(content, dict):
        raise _refused(f"Row {number} must be a JSON object. No row was written.")
    at = content.get(TIME)
    if isinstance(at, bool) or not isinstance(at, int | float):
        return None
    return at if isinstance(at, float) or -_LARGEST <= at <= _LARGEST else float(at)


def _histogram(c: apsw.Connection, index: EmbeddedIndex, spans: int) -> Histogram:
    oldest, youngest = next(c.execute(_ENDS, {"index": index.number}))
    if oldest is None:
        return Histogram(index.rows)
    axis = Spans.between(oldest, youngest, spans)
    bound = {"index": index.number, "start": axis.start, "step": float(axis.step), "count": axis.count}
    counts = [0] * axis.count
    for span, rows in c.execute(_SPANS, bound):
        counts[span] = rows
    return Histogram(index.rows, axis, tuple(counts))
