"""Deletion tasks as the index's file keeps them: order, progress, end.

Starting a task inserts a row here. A task is over when it has an `ended_at`; nothing about it changes after that.
"""

from dataclasses import dataclass, fields
from typing import Any, NamedTuple

import apsw

from watchword.domain.tasks import Counters, TaskId, TaskStatus

RETENTION_MILLIS = 7 * 24 * 3_600_000
NANOS_IN_MILLI = 1_000_000


class DeletionOrder(NamedTuple):
    tag: str
    index_number: int
    until: int
    mark: int
    """The number of the last row written when the task was started. Later rows are skipped."""
    batch: int
    rate: float


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
_READ = f"SELECT {', '.join((*_ORDER, *_PROGRESS))} FROM tasks WHERE number = ? AND ended_at IS NULL"  # noqa: S608
_SAVE = f"UPDATE tasks SET {', '.join(f'{name} = :{name}' for name in _PROGRESS)} WHERE number = :number"  # noqa: S608


def add(connection: apsw.Connection, order: DeletionOrder, now: int) -> int:
    connection.execute(
        f"INSERT INTO tasks ({', '.join(_ORDER)}, started_at) VALUES ({', '.join('?' * len(_ORDER))}, ?)",  # noqa: S608
        (*order, now),
    )
    return connection.last_insert_rowid()


def read(connection: apsw.Connection, number: int) -> tuple[DeletionOrder, DeletionProgress] | None:
    """None where the task is over or unknown."""
    row: Any = connection.execute(_READ, (number,)).fetchone()
    if row is None:
        return None
    return DeletionOrder(*row[: len(_ORDER)]), DeletionProgress(*row[len(_ORDER) :])


def save(connection: apsw.Connection, number: int, progress: DeletionProgress) -> None:
    bound = {name: getattr(progress, name) for name in _PROGRESS}
    connection.execute(_SAVE, {**bound, "number": number})


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


def prune(connection: apsw.Connection, now: int) -> None:
    connection.execute("DELETE FROM tasks WHERE ended_at < ?", (now - RETENTION_MILLIS,))


def status(connection: apsw.Connection, task: TaskId, now: int) -> TaskStatus | None:
    row: Any = connection.execute(
        """SELECT started_at, ended_at, error, tag, rate, ifnull(total, 0), deleted, batches, version_conflicts,
               retries, throttled_millis, min(pause_millis, max(0, resume_at - ?))
           FROM tasks WHERE number = ?""",
        (now, task.number),
    ).fetchone()
    if row is None:
        return None
    started, ended, error, tag, rate, total, deleted, batches, conflicts, retries, throttled, pause = row
    counters = Counters(
        total=total,
        deleted=deleted,
        batches=batches,
        version_conflicts=conflicts,
        bulk_retries=retries,
        throttled_millis=throttled - pause,
        requests_per_second=rate,
        throttled_until_millis=pause,
    )
    run_time = max(0, (now if ended is None else ended) - started) * NANOS_IN_MILLI
    return TaskStatus(task, ended is not None, run_time, counters, error=error, tag=tag)
