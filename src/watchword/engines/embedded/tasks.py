"""Tasks as they are kept: what is to be done, how far it has come, how it ended.

Starting one is a row here and nothing more. A task is over when it has an end; nothing about it changes after that.
"""

from dataclasses import dataclass, fields
from enum import Enum
from typing import Any, NamedTuple

import apsw

from watchword.domain.tasks import Counters, TaskId, TaskStatus

CANCELLED = "cancelled"
KEPT_MILLIS = 7 * 24 * 3_600_000
MILLION = 1_000_000


class Kind(Enum):
    DELETE = "delete"
    COPY = "copy"
    CATCH_UP = "catch up"
    RECONCILE = "reconcile"


class Order(NamedTuple):
    """What is to be done. Indices by their numbers: one that takes a name over is not meant."""

    kind: Kind
    tag: str | None
    source: int
    target: int | None
    until: int
    since: int
    """Places of the source after this one, for a catch-up."""
    mark: int
    """And up to this one: the last there was when it was asked for."""
    batch: int
    rate: float


@dataclass(slots=True)
class Progress:
    """How far a task has come; written in the same transaction as what it did."""

    total: int | None
    updated: int
    created: int
    deleted: int
    batches: int
    version_conflicts: int
    noops: int
    retries: int
    throttled_millis: int
    """All pauses together, the one that is under way in full."""
    pause_millis: int
    resume_at: int
    stage: int
    at_time: float | int | None
    at_place: int
    up_to: float | int | None

    @property
    def done(self) -> int:
        return self.updated + self.created + self.deleted + self.version_conflicts + self.noops


_PROGRESS = tuple(field.name for field in fields(Progress))
_ORDER = Order._fields
_READ = f"SELECT {', '.join((*_ORDER, *_PROGRESS))} FROM tasks WHERE number = ? AND ended_at IS NULL"  # noqa: S608
_SAVE = f"UPDATE tasks SET {', '.join(f'{name} = :{name}' for name in _PROGRESS)} WHERE number = :number"  # noqa: S608


def add(connection: apsw.Connection, order: Order, now: int) -> int:
    connection.execute(
        f"INSERT INTO tasks ({', '.join(_ORDER)}, started_at) VALUES ({', '.join('?' * len(_ORDER))}, ?)",  # noqa: S608
        (order.kind.value, *order[1:], now),
    )
    return connection.last_insert_rowid()


def read(connection: apsw.Connection, number: int) -> tuple[Order, Progress] | None:
    """None where it is over, or never was."""
    row: Any = connection.execute(_READ, (number,)).fetchone()
    if row is None:
        return None
    kind, *rest = row[: len(_ORDER)]
    return Order(Kind(kind), *rest), Progress(*row[len(_ORDER) :])


def save(connection: apsw.Connection, number: int, progress: Progress) -> None:
    bound = {name: getattr(progress, name) for name in _PROGRESS}
    connection.execute(_SAVE, {**bound, "number": number})


def end(connection: apsw.Connection, number: int, now: int, error: str | None = None) -> None:
    """A pause that was under way ends with it."""
    connection.execute(
        """UPDATE tasks SET ended_at = :now, error = :error, pause_millis = 0, resume_at = 0,
               throttled_millis = throttled_millis - min(pause_millis, max(0, resume_at - :now))
           WHERE number = :number AND ended_at IS NULL""",
        {"number": number, "now": now, "error": error},
    )


def end_writers(connection: apsw.Connection, target: int, now: int, error: str) -> None:
    """Tasks that copy into this index, or remove from it what a source does not hold."""
    found: Any = connection.execute("SELECT number FROM tasks WHERE ended_at IS NULL AND target = ?", (target,))
    for (number,) in found.fetchall():
        end(connection, number, now, error)


def running(connection: apsw.Connection, tag: str) -> list[int]:
    found: Any = connection.execute("SELECT number FROM tasks WHERE ended_at IS NULL AND tag = ? ORDER BY 1", (tag,))
    return [number for (number,) in found]


def ask_to_cancel(connection: apsw.Connection, number: int) -> None:
    connection.execute("UPDATE tasks SET cancel_asked = 1 WHERE number = ? AND ended_at IS NULL", (number,))


def prune(connection: apsw.Connection, now: int) -> None:
    connection.execute("DELETE FROM tasks WHERE ended_at < ?", (now - KEPT_MILLIS,))


def status(connection: apsw.Connection, task: TaskId, now: int) -> TaskStatus | None:
    row: Any = connection.execute(
        """SELECT started_at, ended_at, error, tag, rate, ifnull(total, 0), updated, created, deleted, batches,
               version_conflicts, noops, retries, throttled_millis, min(pause_millis, max(0, resume_at - ?))
           FROM tasks WHERE number = ?""",
        (now, task.number),
    ).fetchone()
    if row is None:
        return None
    started, ended, error, tag, rate, total, updated, created, deleted, batches, conflicts, noops, *rest = row
    retries, throttled, pause = rest
    counters = Counters(
        total=total,
        updated=updated,
        created=created,
        deleted=deleted,
        batches=batches,
        version_conflicts=conflicts,
        noops=noops,
        bulk_retries=retries,
        throttled_millis=throttled - pause,
        requests_per_second=rate,
        throttled_until_millis=pause,
    )
    run_time = max(0, (now if ended is None else ended) - started) * MILLION
    return TaskStatus(task, ended is not None, run_time, counters, error=error, tag=tag)
