"""The embedded index's SQLite file: schema, migrations, connections, and what its errors mean.

- A row's `place` is the number of its index and a number within that index. Every write of a row takes a new place, so
  a place stands for one version of one row, and rows written after a moment are a range of the primary key.
- Triggers keep `rows` and `bytes` of an index.
- Numbers of indices and tasks are never reused.
- A change of the schema is a further step in STEPS. A released step is never edited.
"""

import secrets
import time
from collections.abc import Callable
from contextlib import closing
from pathlib import Path

import apsw

from watchword import sqlite_file
from watchword.domain.errors import Fault, Reason
from watchword.sqlite_file import SqliteFormat, open_read_only

STEPS = (
    """
CREATE TABLE meta (
    one INTEGER PRIMARY KEY CHECK (one = 1),
    node TEXT NOT NULL
);

CREATE TABLE indices (
    number INTEGER PRIMARY KEY AUTOINCREMENT,
    name TEXT UNIQUE,
    uuid TEXT NOT NULL,
    blocked INTEGER NOT NULL DEFAULT 0,
    rows INTEGER NOT NULL DEFAULT 0,
    bytes INTEGER NOT NULL DEFAULT 0,
    last INTEGER NOT NULL DEFAULT 0
);
CREATE INDEX indices_dropped ON indices (number) WHERE name IS NULL;

CREATE TABLE aliases (
    name TEXT PRIMARY KEY,
    index_number INTEGER NOT NULL REFERENCES indices
) WITHOUT ROWID;
CREATE INDEX aliases_by_index ON aliases (index_number);

CREATE TABLE documents (
    place INTEGER PRIMARY KEY,
    index_number INTEGER NOT NULL,
    id TEXT NOT NULL,
    version INTEGER NOT NULL,
    time,
    source BLOB NOT NULL
);
CREATE UNIQUE INDEX documents_by_id ON documents (index_number, id);
CREATE INDEX documents_by_time ON documents (index_number, time);

CREATE TRIGGER documents_added AFTER INSERT ON documents BEGIN
    UPDATE indices SET rows = rows + 1, bytes = bytes + length(NEW.source) + length(NEW.id)
    WHERE number = NEW.index_number;
END;
CREATE TRIGGER documents_removed AFTER DELETE ON documents BEGIN
    UPDATE indices SET rows = rows - 1, bytes = bytes - length(OLD.source) - length(OLD.id)
    WHERE number = OLD.index_number;
END;

CREATE TABLE tasks (
    number INTEGER PRIMARY KEY AUTOINCREMENT,
    kind TEXT NOT NULL,
    tag TEXT,
    source INTEGER NOT NULL,
    target INTEGER,
    until INTEGER NOT NULL,
    since INTEGER NOT NULL,
    mark INTEGER NOT NULL,
    batch INTEGER NOT NULL,
    rate REAL NOT NULL,
    total INTEGER,
    updated INTEGER NOT NULL DEFAULT 0,
    created INTEGER NOT NULL DEFAULT 0,
    deleted INTEGER NOT NULL DEFAULT 0,
    batches INTEGER NOT NULL DEFAULT 0,
    version_conflicts INTEGER NOT NULL DEFAULT 0,
    noops INTEGER NOT NULL DEFAULT 0,
    retries INTEGER NOT NULL DEFAULT 0,
    throttled_millis INTEGER NOT NULL DEFAULT 0,
    pause_millis INTEGER NOT NULL DEFAULT 0,
    resume_at INTEGER NOT NULL DEFAULT 0,
    stage INTEGER NOT NULL DEFAULT 0,
    at_time,
    at_place INTEGER NOT NULL DEFAULT 0,
    up_to,
    cancel_asked INTEGER NOT NULL DEFAULT 0,
    started_at INTEGER NOT NULL,
    ended_at INTEGER,
    error TEXT
);
CREATE INDEX tasks_unfinished ON tasks (number) WHERE ended_at IS NULL;
CREATE INDEX tasks_ended ON tasks (ended_at) WHERE ended_at IS NOT NULL;
""",
    # The index deletes in batches: no copies any more, hence no aliases, write blocks or dropped indices.
    """
DELETE FROM documents WHERE index_number IN (SELECT number FROM indices WHERE name IS NULL);
DELETE FROM indices WHERE name IS NULL;
UPDATE indices SET name = (SELECT min(name) FROM aliases WHERE index_number = number)
WHERE number IN (SELECT index_number FROM aliases);
DROP INDEX indices_dropped;
DROP TABLE aliases;
ALTER TABLE indices DROP COLUMN blocked;
ALTER TABLE indices DROP COLUMN uuid;
DELETE FROM tasks WHERE kind <> 'delete';
ALTER TABLE tasks RENAME COLUMN source TO index_number;
ALTER TABLE tasks DROP COLUMN kind;
ALTER TABLE tasks DROP COLUMN target;
ALTER TABLE tasks DROP COLUMN since;
ALTER TABLE tasks DROP COLUMN updated;
ALTER TABLE tasks DROP COLUMN created;
ALTER TABLE tasks DROP COLUMN noops;
ALTER TABLE tasks DROP COLUMN stage;
ALTER TABLE tasks DROP COLUMN up_to;
""",
)
BUSY_SECONDS = 5.0
POLL_SECONDS = 0.001
_PLACE_BITS = 40  # 10^12 writes per index, 8 million indices
LOG_MIB = 16
NODE_BYTES = 16  # 22 characters, as search engines' node ids have


def place(index: int, number: int) -> int:
    return (index << _PLACE_BITS) + number


def _fill(connection: apsw.Connection) -> None:
    connection.execute("INSERT INTO meta VALUES (1, ?)", (secrets.token_urlsafe(NODE_BYTES),))


INDEX_FILE = SqliteFormat(
    name="search index",
    application_id=0x57575749,  # "WWWI"
    migrations=STEPS,
    unavailable=Reason.INDEX_UNAVAILABLE,
    repair="Put a backup of the file back, or move the file away and load the rows again.",
    pragmas=("auto_vacuum = INCREMENTAL",),  # takes effect only before the first page is written
    fill=_fill,
)


def prepare(path: Path) -> str:
    """Create the file if it is missing and migrate it; return the id of its node."""
    try:
        connection, _ = INDEX_FILE.open_prepared(path)
    except Fault as fault:
        if isinstance(fault.__cause__, apsw.NotADBError):
            raise INDEX_FILE.foreign(path) from None
        raise
    with closing(connection):
        node: str = connection.execute("SELECT node FROM meta").get
        return node


def describe(path: Path) -> str:
    """Describe the file in a few words. Changes nothing."""
    try:
        with closing(open_read_only(path)) as connection:
            version = INDEX_FILE.version(connection)
            indices = connection.execute("SELECT count(*) FROM indices").get if version else 0
    except apsw.NotADBError:
        raise INDEX_FILE.foreign(path) from None
    except apsw.Error as error:
        raise INDEX_FILE.fault(error) from error
    return f"embedded, version {version}, indices: {indices}"


def connect(path: Path, *, cache_mib: int = 4, checkpoint_pages: int = 16_000) -> apsw.Connection:
    """The engine's process checkpoints sooner than other processes, so that they seldom have to."""
    connection = sqlite_file.connect(path, cache_mib=cache_mib, checkpoint_pages=checkpoint_pages, log_mib=LOG_MIB)
    connection.set_busy_handler(_poll_for_lock())
    connection.execute("PRAGMA mmap_size = 0")
    connection.execute("PRAGMA temp_store = MEMORY")
    return connection


def _poll_for_lock() -> Callable[[int], bool]:
    """Polls often: the engine's process leaves short gaps between its transactions."""
    since = 0.0

    def poll(tries: int) -> bool:
        nonlocal since
        if tries == 0:
            since = time.monotonic()
        time.sleep(POLL_SECONDS)
        return time.monotonic() - since < BUSY_SECONDS

    return poll
