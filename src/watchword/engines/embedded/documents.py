"""Rows: where they stand, when they are old, and how one is written.

Two rows of an index never have the same id. A row that replaces another has its version and one more; a row that
comes again after it was removed begins at one.
"""

from collections.abc import Callable, Sequence
from typing import Any

import apsw
import orjson

from watchword.domain.indices import TIME, Histogram, Row, Spans
from watchword.engines.embedded.file import refusal
from watchword.engines.embedded.indices import Index

_BITS = 40  # a million million writes an index, eight million indices
LAST_PLACE = (1 << _BITS) - 1
_LARGEST = 2**63 - 1
MAX_ID_BYTES = 512

# As SQL, of rows in `documents`, at the moment :until.
STAYS = "(time IS NULL OR time > :until)"


# Both ends are looked up; without the two halves, every time would be read to find them.
_ENDS = """SELECT (SELECT min(time) FROM documents WHERE index_number = :index),
(SELECT max(time) FROM documents WHERE index_number = :index)"""
_SPANS = """SELECT max(0, min(:count - 1, CAST(floor((time - :start) / :step) AS INTEGER))) AS span, count(*)
FROM documents WHERE index_number = :index AND time IS NOT NULL GROUP BY span"""


def place(index: int, number: int) -> int:
    return (index << _BITS) + number


def put(connection: apsw.Connection, index: int, rows: Sequence[Row], new_id: Callable[[], str]) -> None:
    """Inside the caller's transaction. All are taken or none."""
    last: int = connection.execute("SELECT last FROM indices WHERE number = ?", (index,)).get
    for number, row in enumerate(rows, 1):
        _put(connection, index, place(index, last + number), row, number, new_id)
    connection.execute("UPDATE indices SET last = last + ? WHERE number = ?", (len(rows), index))


def _put(connection: apsw.Connection, index: int, where: int, row: Row, number: int, new_id: Callable[[], str]) -> None:
    at = _time(row.source, number)
    row_id = new_id() if row.id is None else _checked(row.id, number)
    found = connection.execute(
        "SELECT place, version FROM documents WHERE index_number = ? AND id = ?", (index, row_id)
    ).fetchone()
    version = 1
    if found is not None:
        version = found[1] + 1
        connection.execute("DELETE FROM documents WHERE place = ?", (found[0],))
    connection.execute(
        "INSERT INTO documents VALUES (?, ?, ?, ?, ?, ?)", (where, index, row_id, version, at, row.source)
    )


def _checked(row_id: str, number: int) -> str:
    try:
        size = len(row_id.encode())
    except UnicodeEncodeError:
        size = 0
    if not 1 <= size <= MAX_ID_BYTES:
        raise refusal(f"The id of row {number} must be text of 1 to {MAX_ID_BYTES} bytes. No row was taken.")
    return row_id


def _time(source: bytes, number: int) -> int | float | None:
    try:
        content: Any = orjson.loads(source)
    except orjson.JSONDecodeError as error:
        raise refusal(f"Row {number} must be a JSON object; it is no JSON: {error}. No row was taken.") from None
    if not isinstance(content, dict):
        raise refusal(f"Row {number} must be a JSON object. No row was taken.")
    at = content.get(TIME)
    if isinstance(at, bool) or not isinstance(at, int | float):
        return None
    return at if isinstance(at, float) or -_LARGEST <= at <= _LARGEST else float(at)


def histogram(connection: apsw.Connection, index: Index, spans: int) -> Histogram:
    oldest, youngest = next(connection.execute(_ENDS, {"index": index.number}))
    if oldest is None:
        return Histogram(index.rows)
    axis = Spans.between(oldest, youngest, spans)
    bound = {"index": index.number, "start": axis.start, "step": float(axis.step), "count": axis.count}
    counts = [0] * axis.count
    for span, rows in connection.execute(_SPANS, bound):
        counts[span] = rows
    return Histogram(index.rows, axis, tuple(counts))
