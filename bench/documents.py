"""Very many rows in the file of an embedded search index, quickly: as its own `write` would leave it.

A row is what a dataset's operation looks like, about 250 bytes. Rows were written in the order of their time, each up
to an hour late, under ids that lie anywhere. Tables, indexes and triggers are the file's own: only what is kept in step
row by row when rows come one by one, the two indexes and the sums, is made at the end.
"""

from contextlib import closing
from pathlib import Path
from typing import Any

from watchword.index.embedded.index_file import connect, place, prepare

NAME = "dataset_operationaspect_v1"
SERIES = "dataset.operation"
SPAN = 60 * 86_400_000
HOUR = 3_600_000

_ROWS = """
WITH RECURSIVE numbers (n) AS (SELECT 1 UNION ALL SELECT n + 1 FROM numbers WHERE n < :count),
moments AS MATERIALIZED (SELECT n, :first + :span * n / :count - abs(random() % :hour) AS at FROM numbers)
INSERT INTO documents
SELECT :place + n, :index, lower(hex(randomblob(10))), 1, at, CAST(json_object(
    'timestampMillis', at,
    '@timestamp', at,
    'urn', 'urn:li:dataset:(urn:li:dataPlatform:hive,bench.table_' || (n * 7919 % 50000) || ',PROD)',
    'actor', 'urn:li:corpuser:user' || (n % 1000),
    'operationType', 'UPDATE',
    'numAffectedRows', n % 100000,
    'lastUpdatedTimestamp', at) AS BLOB)
FROM moments
"""
_MADE_LATER = """SELECT type, name, sql FROM sqlite_master
WHERE tbl_name = 'documents' AND type IN ('index', 'trigger') AND sql IS NOT NULL"""
_SUMS = """UPDATE indices SET last = :count, (rows, bytes) =
    (SELECT count(*), ifnull(sum(length(source) + length(id)), 0) FROM documents WHERE index_number = :index)
WHERE number = :index"""


def fill_index(path: Path, count: int, *, now: int) -> None:
    """Make the file, with `count` rows of the sixty days up to `now`."""
    prepare(path)
    with closing(connect(path, cache_mib=256)) as file:
        for pragma in ("journal_mode = OFF", "synchronous = OFF", "temp_store = FILE"):
            file.execute(f"PRAGMA {pragma}")
        file.execute("BEGIN")
        later: list[Any] = file.execute(_MADE_LATER).fetchall()
        for kind, name, _ in later:
            file.execute(f"DROP {kind} {name}")
        file.execute("INSERT INTO indices (name) VALUES (?)", (NAME,))
        index = file.last_insert_rowid()
        bound = {"count": count, "index": index, "place": place(index, 0)}
        file.execute(_ROWS, {**bound, "first": now - SPAN, "span": SPAN, "hour": HOUR})
        file.execute(_SUMS, bound)
        for _, _, sql in later:
            file.execute(sql)
        file.execute("COMMIT")
        file.execute("PRAGMA journal_mode = WAL")


def middle(path: Path) -> tuple[int, int]:
    """How many rows such a file has, and the moment up to which they are the older half."""
    with closing(connect(path)) as file:
        found = file.execute("SELECT number, rows FROM indices WHERE name = ?", (NAME,)).fetchone()
        if found is None:
            raise SystemExit(f"{path} has no index {NAME}: take it away, or name another file.")
        index, count = found
        moment = file.execute(
            "SELECT time FROM documents WHERE index_number = ? ORDER BY time LIMIT 1 OFFSET ?", (index, count // 2 - 1)
        ).get
        return count, moment
