"""The embedded index's worker: deletes in batches, one task after the other, and gives unused pages back.

A batch is found without the write lock, then deleted and recorded in one transaction. A row is named by its place,
which changes with every write, so a row that changed in between is skipped. The worker may be killed at any moment:
the next one continues after the last committed batch.
"""

import math
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import apsw
import orjson

from watchword.domain.tasks import CANCELLED
from watchword.engines.embedded import deletion_tasks as tasks
from watchword.engines.embedded.deletion_tasks import DeletionOrder, DeletionProgress
from watchword.engines.embedded.index_file import INDEX_FILE, connect, place
from watchword.sqlite_file import transaction

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

Log = Callable[[str], None]


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


class Housekeeping:
    """Between tasks: forget tasks that ended long ago, and give unused pages back to the file system."""

    def __init__(self, connection: apsw.Connection, clock: Callable[[], int]) -> None:
        self._connection = connection
        self._clock = clock
        self._batch_size = AdaptiveBatchSize()
        self._pruned = -math.inf
        self._vacuumed = False

    def is_due(self) -> bool:
        return time.monotonic() - self._pruned > PRUNE_SECONDS

    def do_next(self) -> bool:
        """Whether there was anything to do."""
        if self.is_due():
            self._pruned = time.monotonic()
            tasks.prune(self._connection, self._clock())
            return True
        free: int = self._connection.execute("PRAGMA freelist_count").get
        if free > FREE_PAGES:
            self._vacuum(min(free - FREE_PAGES, self._batch_size.rows(VACUUMED_PAGES)))
            return True
        if self._vacuumed:
            # The file becomes shorter when the whole log is checkpointed. PASSIVE blocks no other process, and stops
            # where a reader still needs the older pages: then the next call tries again.
            log_pages, checkpointed = self._connection.wal_checkpoint(mode=apsw.SQLITE_CHECKPOINT_PASSIVE)
            self._vacuumed = checkpointed < log_pages
        return False

    def _vacuum(self, pages: int) -> None:
        began = time.monotonic()
        self._connection.execute(f"PRAGMA incremental_vacuum({pages:d})").fetchall()
        self._batch_size.note(pages, time.monotonic() - began)
        self._vacuumed = True


class DeletionBatch(NamedTuple):
    places: list[int]
    at_time: float
    at_place: int
    last: bool


def next_batch(c: apsw.Connection, order: DeletionOrder, progress: DeletionProgress, limit: int) -> DeletionBatch:
    """The next old rows by time and place. Two queries, because SQLite answers the combined condition by reading all
    rows of the same time again.
    """
    at, after = -math.inf if progress.at_time is None else progress.at_time, progress.at_place
    select = "SELECT place, time FROM documents WHERE index_number = :index AND "
    bound = {"index": order.index_number, "at": at, "after": after, "until": order.until, "limit": limit}
    found: list[Any] = c.execute(
        f"{select} time = :at AND place > :after ORDER BY place LIMIT :limit", bound
    ).fetchall()
    if len(found) < limit:
        bound["limit"] = limit - len(found)
        later = f"{select} time > :at AND time <= :until ORDER BY time, place LIMIT :limit"
        found += c.execute(later, bound).fetchall()
    if found:
        after, at = found[-1]
    mark = place(order.index_number, order.mark)
    return DeletionBatch([one for one, _ in found if one <= mark], at, after, len(found) < limit)


def count_old(c: apsw.Connection, order: DeletionOrder) -> int:
    """Without rows written after the task was started."""
    count: int = c.execute(
        "SELECT count(*) FROM documents WHERE index_number = ? AND time <= ? AND place <= ?",
        (order.index_number, order.until, place(order.index_number, order.mark)),
    ).get
    return count


class DeletionWorker:
    def __init__(self, path: Path, clock: Callable[[], int], log: Log) -> None:
        self._connection = connect(path, cache_mib=CACHE_MIB, checkpoint_pages=CHECKPOINT_PAGES)
        self._clock = clock
        self._log = log
        self._batch_size = AdaptiveBatchSize()
        self._housekeeping = Housekeeping(self._connection, clock)
        self._last = 0
        self._due: dict[int, float] = {}
        """When a task that pauses continues."""
        self._failures: dict[int, int] = {}
        self._housekeeping_due = 0.0

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
        """Until the file has changed or a pause is over."""
        due = min(self._due.values(), default=math.inf)
        while self._data_version() == version and (now := time.monotonic()) < due:
            time.sleep(min(wait, due - now))
            wait = min(IDLE_POLL_SECONDS, wait * 1.2)
            if self._housekeeping.is_due():
                break
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

    def _keep_house(self) -> bool:
        if time.monotonic() < self._housekeeping_due:
            return False
        try:
            return self._housekeeping.do_next()
        except apsw.Error as error:
            self._log(f"housekeeping: {INDEX_FILE.fault(error).why}")
            self._housekeeping_due = time.monotonic() + LONGEST_RETRY_SECONDS
            return False

    def _next_task(self) -> int | None:
        """Round robin over unfinished tasks that do not pause, or that are to be cancelled."""
        now = time.monotonic()
        found = self._connection.execute("SELECT number, cancel_asked FROM tasks WHERE ended_at IS NULL")
        unfinished: list[Any] = found.fetchall()
        self._due = {number: self._due[number] for number, _ in unfinished if number in self._due}
        ready = [number for number, cancel in unfinished if cancel or self._due.get(number, 0.0) <= now]
        return min(ready, key=lambda number: (number <= self._last, number), default=None)

    def _do_batch(self, number: int) -> None:
        task = tasks.read(self._connection, number)
        if task is None:
            return
        order, progress = task
        if self._is_cancelled(number):
            self._end(number, CANCELLED)
            return
        if progress.total is None:
            progress.total = count_old(self._connection, order)
        began = time.monotonic()
        batch = next_batch(self._connection, order, progress, self._rows(order))
        with transaction(self._connection):
            locked = time.monotonic()
            pause = self._delete(number, order, progress, batch, began)
        if pause:
            self._due[number] = time.monotonic() + pause
        self._batch_size.note(len(batch.places), time.monotonic() - locked)

    def _rows(self, order: DeletionOrder) -> int:
        """A throttled task takes at most one second's rows, so that no pause is long."""
        return self._batch_size.rows(order.batch if order.rate < 0 else min(order.batch, max(1, int(order.rate))))

    def _delete(
        self, number: int, order: DeletionOrder, progress: DeletionProgress, batch: DeletionBatch, began: float
    ) -> float:
        """Inside a transaction; returns how many seconds the task pauses."""
        c = self._connection
        if self._is_cancelled(number):
            tasks.end(c, number, self._clock(), CANCELLED)
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
        tasks.save(c, number, progress)
        if batch.last:
            tasks.end(c, number, self._clock())
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
        self._log(f"task {number}: {fault.why}")
        if not isinstance(error, apsw.BusyError) and failures >= TRIES:
            self._end(number, fault.message)
            return
        self._due[number] = time.monotonic() + min(LONGEST_RETRY_SECONDS, FIRST_RETRY_SECONDS * 2 ** min(failures, 10))
        try:
            self._connection.execute("UPDATE tasks SET retries = retries + 1 WHERE number = ?", (number,))
        except apsw.Error as uncounted:
            self._log(f"task {number}: the retry was not counted: {uncounted}")

    def _end(self, number: int, error: str) -> None:
        tasks.end(self._connection, number, self._clock(), error)
