"""The last rows of each urn in an embedded index, for deletions with `keep_last`.

There is no index on urns: it would slow every write. A walk over all rows with a time, from the newest to the oldest,
puts the limit of each urn into a temporary table of the connection. It is done in steps, so that other tasks can work
in between. Rows written after `mark` are not counted: a row that is rewritten during the walk would count twice. A row
that is not counted moves a limit to an earlier time, which only protects more.
"""

import math
from typing import Any, NamedTuple

import apsw

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
GOES = f"""ifnull((SELECT l.rows >= :keep_last AND documents.time < l.time FROM temp.last_rows l
    WHERE l.task = :task AND l.urn = {_URN}), {_URN} IS NULL)"""  # noqa: S608
"""Whether an old row goes, for a task whose walk is complete."""


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
