"""Deletions in the embedded index: tasks as its file keeps them, and the worker that executes them in batches.

Starting a task inserts a row. A task is over when it has an `ended_at`; nothing about it changes after that.

A batch is found without the write lock, then deleted and recorded in one transaction. A row is named by its place,
which changes with every write, so a row that changed in between is skipped. The worker may be killed at any moment:
the next one continues after the last committed batch.

Deletions with `keep_last` spare the last rows of each urn. There is no index on urns: it would slow every write. A walk
over all rows with a time, from the newest to the oldest, puts the limit of each urn into a temporary table of the
connection. It is done in steps, so that other tasks can work in between. Rows written after `mark` are not counted: a
row that is rewritten during the walk would count twice. A row that is not counted moves a limit to an earlier time,
which only protects more.
"""

import math
import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import asdict, dataclass, fields
from pathlib import Path
from typing import Any, NamedTuple

import apsw
import orjson

from watchword.database.sqlite.file import transaction
from watchword.index.embedded.index_file import INDEX_FILE, connect, place
from watchword.index.engine import CANCELLED, Counters, TaskId, TaskStatus

STEP_ROWS = 10_000

# As text, because SQLite may take bytes for its own binary form. It reads no more than a thousand levels. The rows that
# it cannot read are one group, which has no limit: they stay.
_TEXT = "CAST(source AS TEXT)"
_URN = f"""CASE WHEN NOT json_valid({_TEXT}) THEN x'' ELSE CASE json_type({_TEXT}, '$.urn')
WHEN 'text' THEN json_extract({_TEXT}, '$.urn')
WHEN 'integer' THEN {_TEXT} -> '$.urn' WHEN 'real' THEN {_TEXT} -> '$.urn'
WHEN 'true' THEN 'true' WHEN 'false' THEN 'false' END END"""
_TABLE = """CREATE TEMP TABLE IF NOT EXISTS last_rows (
    task INTEGER NOT NULL, urn TEXT NOT NULL, rows INTEGER NOT NULL, time, old INTEGER NOT NULL,
    PRIMARY KEY (task, urn)) WITHOUT ROWID"""
# A step ends with all rows of one time.
_STEP = """SELECT time FROM documents WHERE index_number = :index_number AND time < :at
ORDER BY time DESC LIMIT 1 OFFSET :rows"""
_NOTE = f"""INSERT INTO temp.last_rows
SELECT :task, urn, 1, time, time <= :until FROM (SELECT time, {_URN} AS urn FROM documents
    WHERE index_number = :index_number AND time < :at AND time >= :down AND place <= :mark)
WHERE urn IS NOT NULL ORDER BY time DESC
ON CONFLICT (task, urn) DO UPDATE SET rows = rows + 1, time = excluded.time, old = old + excluded.old
WHERE rows < :keep_last OR time = excluded.time OR urn = x''"""  # noqa: S608 - our own text
_COUNT = """SELECT
    (SELECT count(*) FROM documents WHERE index_number = :index_number AND time <= :until AND place <= :mark)
    - (SELECT ifnull(sum(old), 0) FROM temp.last_rows WHERE task = :task)"""
DELETABLE = f"""ifnull((SELECT l.rows >= :keep_last AND documents.time < l.time FROM temp.last_rows l
    WHERE l.task = :task AND l.urn = {_URN}), {_URN} IS NULL)"""  # noqa: S608
"""Whether an old row is deleted, for a task whose walk is complete."""


class Walk(NamedTuple):
    task: int
    index_number: int
    mark: int
    """The place of the last row that counts."""
    keep_last: int
    until: int


class LastRows:
    """Limits by task. The connection may have a transaction."""

    def __init__(self, connection: apsw.Connection) -> None:
        self._connection = connection
        self._at: dict[int, float | None] = {}
        """Down to which time each walk has come; None where it is complete."""
        connection.execute(_TABLE)

    def step(self, walk: Walk) -> bool:
        """Do a part of the walk; whether it is complete."""
        at = self._at.get(walk.task, math.inf)
        if at is None:
            return True
        bound: dict[str, Any] = {**walk._asdict(), "at": at, "rows": STEP_ROWS}
        down: float | None = self._connection.execute(_STEP, bound).get
        self._connection.execute(_NOTE, bound | {"down": -math.inf if down is None else down})
        self._at[walk.task] = down
        return down is None

    def count(self, walk: Walk) -> int:
        """How many rows go. The walk is complete, and no row was deleted since it began."""
        rows: int = self._connection.execute(_COUNT, walk._asdict()).get
        return rows

    def forget(self, task: int) -> None:
        if self._at.pop(task, 0.0) != 0.0:
            self._connection.execute("DELETE FROM temp.last_rows WHERE task = ?", (task,))


RETENTION_MILLIS = 7 * 24 * 3_600_000
NANOS_IN_MILLI = 1_000_000
CACHE_MIB = 32
CHECKPOINT_PAGES = 2_000
"""Fewer than other connections have, so that this process does most checkpoints."""
GAP_SECONDS = 0.002
"""Between two transactions, so that writers waiting for the lock get it."""
POLL_SECONDS, IDLE_POLL_SECONDS = 0.005, 0.05
TRIES = 7
FIRST_RETRY_SECONDS, LONGEST_RETRY_SECONDS = 0.05, 5.0
LOCK_SECONDS = 0.012
"""How long one batch may hold the write lock."""
FIRST_ROWS, LEAST_ROWS = 100, 10
FREE_PAGES = 1_000
"""Kept for the next writes."""
VACUUMED_PAGES = 500
PRUNE_SECONDS = 3_600.0


class DeletionOrder(NamedTuple):
    tag: str
    index_number: int
    until: int
    mark: int
    """The number of the last row written when the task was started. Later rows are skipped."""
    batch: int
    rate: float
    keep_last: int | None = None

    @property
    def last_place(self) -> int:
        return place(self.index_number, self.mark)


@dataclass(slots=True)
class DeletionProgress:
    """Written in the same transaction as the deletions it counts."""

    total: int | None
    deleted: int
    batches: int
    version_conflicts: int
    throttled_millis: int
    """The sum of all pauses, the current one in full."""
    pause_millis: int
    resume_at: int
    at_time: float | None
    """Time and place of the last row that was looked at."""
    at_place: int


_ORDER = DeletionOrder._fields
_PROGRESS = tuple(field.name for field in fields(DeletionProgress))
_ADD = f"INSERT INTO tasks ({', '.join(_ORDER)}, started_at) VALUES ({'?, ' * len(_ORDER)} ?)"  # noqa: S608 - our names
_READ = f"SELECT {', '.join((*_ORDER, *_PROGRESS))} FROM tasks WHERE number = ? AND ended_at IS NULL"  # noqa: S608
_SAVE = f"UPDATE tasks SET {', '.join(f'{name} = :{name}' for name in _PROGRESS)} WHERE number = :number"  # noqa: S608
# From the fifth column on: the fields of Counters.
_STATUS = """SELECT started_at, ended_at, error, tag, ifnull(total, 0), 0, 0, deleted, batches, version_conflicts, 0,
    retries, 0, throttled_millis - pause, rate, pause
FROM (SELECT *, min(pause_millis, max(0, resume_at - ?)) AS pause FROM tasks WHERE number = ?)"""


def add(connection: apsw.Connection, order: DeletionOrder, now: int) -> int:
    connection.execute(_ADD, (*order, now))
    return connection.last_insert_rowid()


def end(connection: apsw.Connection, number: int, now: int, error: str | None = None) -> None:
    """Ends a current pause too."""
    connection.execute(
        """UPDATE tasks SET ended_at = :now, error = :error, pause_millis = 0, resume_at = 0,
               throttled_millis = throttled_millis - min(pause_millis, max(0, resume_at - :now))
           WHERE number = :number AND ended_at IS NULL""",
        {"number": number, "now": now, "error": error},
    )


def running(connection: apsw.Connection, tag: str) -> list[int]:
    found: Any = connection.execute("SELECT number FROM tasks WHERE ended_at IS NULL AND tag = ? ORDER BY 1", (tag,))
    return [number for (number,) in found]


def request_cancel(connection: apsw.Connection, number: int) -> None:
    connection.execute("UPDATE tasks SET cancel_asked = 1 WHERE number = ? AND ended_at IS NULL", (number,))


def status(connection: apsw.Connection, task: TaskId, now: int) -> TaskStatus | None:
    row: Any = connection.execute(_STATUS, (now, task.number)).fetchone()
    if row is None:
        return None
    started, ended, error, tag, *counters = row
    run_time = max(0, (now if ended is None else ended) - started) * NANOS_IN_MILLI
    return TaskStatus(task, ended is not None, run_time, Counters(*counters), error=error, tag=tag)


class AdaptiveBatchSize:
    """As many rows as hold the write lock for LOCK_SECONDS.

    This process has the lowest priority, so the same batch takes much longer on a busy machine: the size follows the
    wall-clock time of recent batches.
    """

    def __init__(self) -> None:
        self._rows = float(FIRST_ROWS)

    def rows(self, most: int) -> int:
        return min(most, int(self._rows))

    def note(self, rows: int, held: float) -> None:
        """Shrinks fast, grows slowly."""
        if not rows:
            return
        fitting = rows * LOCK_SECONDS / max(held, 1e-6)
        if fitting < self._rows:
            self._rows = max(LEAST_ROWS, fitting, self._rows / 2)
        elif rows >= int(self._rows):  # a batch that was small for another reason says nothing about larger ones
            self._rows = min(fitting, self._rows * 1.3)


class DeletionBatch(NamedTuple):
    places: list[int]
    at_time: float
    at_place: int
    last: bool


def next_batch(
    c: apsw.Connection, number: int, order: DeletionOrder, progress: DeletionProgress, limit: int
) -> DeletionBatch:
    """The next rows to delete by time and place. Two queries, because SQLite answers the combined condition by reading
    all rows of the same time again.
    """
    at, after = -math.inf if progress.at_time is None else progress.at_time, progress.at_place
    select = "SELECT place, time FROM documents WHERE index_number = :index AND "
    bound = {"index": order.index_number, "at": at, "after": after, "until": order.until, "limit": limit}
    if order.keep_last is not None:
        select += f"{DELETABLE} AND "
        bound |= {"task": number, "keep_last": order.keep_last}
    found: list[Any] = c.execute(
        f"{select} time = :at AND place > :after ORDER BY place LIMIT :limit", bound
    ).fetchall()
    if len(found) < limit:
        bound["limit"] = limit - len(found)
        later = f"{select} time > :at AND time <= :until ORDER BY time, place LIMIT :limit"
        found += c.execute(later, bound).fetchall()
    if found:
        after, at = found[-1]
    return DeletionBatch([one for one, _ in found if one <= order.last_place], at, after, len(found) < limit)


class DeletionWorker:
    """One batch of each task in turn. Between tasks: forget tasks that ended long ago, and give unused pages back to
    the file system.
    """

    def __init__(self, path: Path, clock: Callable[[], int], log: Callable[[str], None]) -> None:
        self._connection = connect(path, cache_mib=CACHE_MIB, checkpoint_pages=CHECKPOINT_PAGES)
        self._clock = clock
        self._log = log
        self._last_rows = LastRows(self._connection)
        self._batch_size = AdaptiveBatchSize()
        self._vacuum_size = AdaptiveBatchSize()
        self._last = 0
        self._due: dict[int, float] = {}
        """When a task that pauses continues."""
        self._failures: dict[int, int] = {}
        self._prune_due = 0.0
        self._housekeeping_due = 0.0
        self._vacuumed = False

    def run(self) -> None:
        wait = POLL_SECONDS
        while True:
            version = self._data_version()
            if self._do_next():
                wait = POLL_SECONDS
                time.sleep(GAP_SECONDS)
            else:
                wait = self._wait_for_change(version, wait)

    def _data_version(self) -> int:
        """Changes whenever another connection has changed the file."""
        version: int = self._connection.execute("PRAGMA data_version").get
        return version

    def _wait_for_change(self, version: int, wait: float) -> float:
        """Until the file has changed, a pause is over or old tasks are to be pruned."""
        due = min((*self._due.values(), max(self._prune_due, self._housekeeping_due)))
        while self._data_version() == version and (now := time.monotonic()) < due:
            time.sleep(min(wait, due - now))
            wait = min(IDLE_POLL_SECONDS, wait * 1.2)
        return wait

    def _do_next(self) -> bool:
        """One batch of the next task, or some housekeeping; whether there was anything to do."""
        number = self._next_task()
        if number is None:
            return self._keep_house()
        self._last = number
        self._due.pop(number, None)
        try:
            self._do_batch(number)
            self._failures.pop(number, None)
        except apsw.Error as error:
            self._retry_later(number, error)
        except Exception as bug:  # noqa: BLE001 - a bug in one task must not stop the others
            self._log(f"task {number}: {bug!r}")
            self._end(number, "A bug in the search index ended the task; see its log.")
        return True

    def _next_task(self) -> int | None:
        """Round robin over unfinished tasks that do not pause, or that are to be cancelled."""
        now = time.monotonic()
        found = self._connection.execute("SELECT number, cancel_asked FROM tasks WHERE ended_at IS NULL")
        unfinished: list[Any] = found.fetchall()
        self._due = {number: self._due[number] for number, _ in unfinished if number in self._due}
        ready = [number for number, cancel in unfinished if cancel or self._due.get(number, 0.0) <= now]
        return min(ready, key=lambda number: (number <= self._last, number), default=None)

    def _do_batch(self, number: int) -> None:
        c = self._connection
        row: Any = c.execute(_READ, (number,)).fetchone()
        if row is None:
            return
        order, progress = DeletionOrder(*row[: len(_ORDER)]), DeletionProgress(*row[len(_ORDER) :])
        if self._is_cancelled(number):
            self._end(number, CANCELLED)
            return
        if order.keep_last is not None:
            walk = Walk(number, order.index_number, order.last_place, order.keep_last, order.until)
            if not self._last_rows.step(walk):
                return
            if progress.total is None:
                progress.total = self._last_rows.count(walk)
        if progress.total is None:  # without rows written after the task was started
            count = "SELECT count(*) FROM documents WHERE index_number = ? AND time <= ? AND place <= ?"
            progress.total = c.execute(count, (order.index_number, order.until, order.last_place)).get
        began = time.monotonic()
        # A throttled task takes at most one second's rows, so that no pause is long.
        most = order.batch if order.rate < 0 else min(order.batch, max(1, int(order.rate)))
        batch = next_batch(c, number, order, progress, self._batch_size.rows(most))
        with transaction(c):
            locked = time.monotonic()
            pause = self._delete(number, order, progress, batch, began)
        if pause:
            self._due[number] = time.monotonic() + pause
        self._batch_size.note(len(batch.places), time.monotonic() - locked)

    def _delete(
        self, number: int, order: DeletionOrder, progress: DeletionProgress, batch: DeletionBatch, began: float
    ) -> float:
        """Inside a transaction; returns how many seconds the task pauses."""
        c = self._connection
        if self._is_cancelled(number):
            self._end(number, CANCELLED)
            return 0.0
        places = orjson.dumps(batch.places).decode()
        c.execute("DELETE FROM documents WHERE place IN (SELECT value FROM json_each(?))", (places,))
        progress.deleted += c.changes()
        progress.batches += 1
        progress.at_time, progress.at_place = batch.at_time, batch.at_place
        pause = 0.0
        if batch.last:
            # Rows that were counted at the start and not found since have changed.
            progress.version_conflicts = max(0, (progress.total or 0) - progress.deleted)
        elif order.rate > 0:
            # By rows deleted, not rows seen: writers faster than the rate must not keep the task busy for ever.
            pause = max(0.0, len(batch.places) / order.rate - (time.monotonic() - began))
        progress.pause_millis = round(pause * 1_000)
        progress.throttled_millis += progress.pause_millis
        progress.resume_at = self._clock() + progress.pause_millis
        c.execute(_SAVE, {**asdict(progress), "number": number})
        if batch.last:
            self._end(number)
        return pause

    def _is_cancelled(self, number: int) -> bool:
        query = "SELECT cancel_asked FROM tasks WHERE number = ? AND ended_at IS NULL"
        return bool(self._connection.execute(query, (number,)).get != 0)

    def _retry_later(self, number: int, error: apsw.Error) -> None:
        """After TRIES failures the task fails. If that cannot be written either, this process exits, and the process
        that started it starts another.
        """
        fault = INDEX_FILE.fault(error)
        failures = self._failures[number] = self._failures.get(number, 0) + 1
        self._log(f"task {number}: {fault.cause}")
        if not isinstance(error, apsw.BusyError) and failures >= TRIES:
            self._end(number, fault.message)
            return
        self._due[number] = time.monotonic() + min(LONGEST_RETRY_SECONDS, FIRST_RETRY_SECONDS * 2 ** min(failures, 10))
        with suppress(apsw.Error):
            self._connection.execute("UPDATE tasks SET retries = retries + 1 WHERE number = ?", (number,))

    def _end(self, number: int, error: str | None = None) -> None:
        end(self._connection, number, self._clock(), error)
        self._last_rows.forget(number)

    def _keep_house(self) -> bool:
        """Whether there was anything to do."""
        if time.monotonic() < self._housekeeping_due:
            return False
        try:
            return self._prune_or_vacuum()
        except apsw.Error as error:
            self._log(f"housekeeping: {INDEX_FILE.fault(error).cause}")
            self._housekeeping_due = time.monotonic() + LONGEST_RETRY_SECONDS
            return False

    def _prune_or_vacuum(self) -> bool:
        c = self._connection
        began = time.monotonic()
        if began >= self._prune_due:
            self._prune_due = began + PRUNE_SECONDS
            c.execute("DELETE FROM tasks WHERE ended_at < ?", (self._clock() - RETENTION_MILLIS,))
            return True
        free: int = c.execute("PRAGMA freelist_count").get
        if free > FREE_PAGES:
            pages = min(free - FREE_PAGES, self._vacuum_size.rows(VACUUMED_PAGES))
            c.execute(f"PRAGMA incremental_vacuum({pages:d})").fetchall()
            self._vacuum_size.note(pages, time.monotonic() - began)
            self._vacuumed = True
            return True
        if self._vacuumed:
            # The file becomes shorter when the whole log is checkpointed. PASSIVE blocks no other process, and stops
            # where a reader still needs the older pages: then the next call tries again.
            log_pages, checkpointed = c.wal_checkpoint(mode=apsw.SQLITE_CHECKPOINT_PASSIVE)
            self._vacuumed = checkpointed < log_pages
        return False
