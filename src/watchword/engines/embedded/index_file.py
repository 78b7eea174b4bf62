"""The embedded index's SQLite file: schema, migrations, connections, and what its errors mean.

- A row's `place` is the number of its index and a number within that index. Every write of a row takes a new place, so
  a place stands for one version of one row, and rows written after a moment are a range of the primary key.
- Triggers keep `rows` and `bytes` of an index.
- Numbers of indices and tasks are never reused.
- A change of the schema is a further step in STEPS. A released step is never edited.

WAL mode and `synchronous=FULL`: a commit that returned is on disk, and readers never wait for the writer.
"""

import secrets
import time
from collections.abc import Callable
from pathlib import Path
from typing import TypeVar
from urllib.parse import quote

import apsw

from watchword.domain.errors import Fault, OperatorError, Reason
from watchword.files import make_private

T = TypeVar("T")

APPLICATION_ID = 0x57575749  # "WWWI": marks the file as an index of ours

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
VERSION = len(STEPS)

BUSY_SECONDS = 5.0
LOOK_SECONDS = 0.001
_PLACE_BITS = 40  # 10^12 writes per index, 8 million indices
NODE_BYTES = 16  # 22 characters, as search engines' node ids have

_DAMAGED = "The search index's file is damaged: put a backup of it back, or take it away and load the rows again."
_LOCKED = "The search index is locked by another process."

_OUTAGES: dict[type[apsw.Error], str] = {
    apsw.BusyError: _LOCKED,
    apsw.LockedError: _LOCKED,
    apsw.ProtocolError: _LOCKED,
    apsw.FullError: "The search index's disk is full.",
    apsw.IOError: "The search index's disk failed.",
    apsw.NoLFSError: "The search index's disk failed.",
    apsw.CantOpenError: "The search index's file cannot be opened.",
    apsw.PermissionsError: "The search index's file cannot be opened.",
    apsw.ReadOnlyError: "The search index's file cannot be written.",
    apsw.CorruptError: _DAMAGED,
    apsw.NotADBError: _DAMAGED,
    apsw.NoMemError: "The search index is out of memory.",
    apsw.InterruptError: "The search index could not be asked in time.",
    apsw.AbortError: "The search index could not be asked in time.",
}


def place(index: int, number: int) -> int:
    return (index << _PLACE_BITS) + number


def index_fault(error: apsw.Error) -> Fault:
    """The public face of a driver error. What is no outage is a defect of ours."""
    why = f"{type(error).__name__}: {error}"
    sentence = _OUTAGES.get(type(error))
    if sentence is None:
        return Fault(Reason.INTERNAL, "Something went wrong here, not with your request.", why=why)
    return Fault(Reason.INDEX_UNAVAILABLE, sentence, why=why)


def prepare(path: Path, patience: float = 10.0) -> str:
    """Make the file if need be and bring it to this version; returns the id of its node."""
    deadline = time.monotonic() + patience
    while True:
        try:
            _create(path)
            return _migrated(path)
        except apsw.BusyError as error:
            # Turning a new file to WAL mode does not wait for another process that does the same.
            if time.monotonic() > deadline:
                raise index_fault(error) from error
            time.sleep(0.02)
        except apsw.NotADBError:
            raise OperatorError(_foreign(path)) from None
        except apsw.Error as error:
            raise index_fault(error) from error


def look(path: Path) -> str:
    """What is in the file, in a few words. Changes nothing."""
    try:
        connection = _open_unchanging(path)
        try:
            version = _version(connection, path)
            indices = connection.execute("SELECT count(*) FROM indices").get if version else 0
        finally:
            connection.close()
    except apsw.NotADBError:
        raise OperatorError(_foreign(path)) from None
    except apsw.Error as error:
        raise index_fault(error) from error
    return f"embedded, version {version}, indices: {indices}"


def connect(path: Path, *, cache_mib: int = 4, checkpoint_pages: int = 16_000) -> apsw.Connection:
    """The engine's process turns up sooner for a checkpoint than others, so that they seldom pay for one."""
    connection = _open(path)
    connection.set_busy_handler(_patience())
    connection.execute("PRAGMA journal_mode = WAL")
    connection.execute("PRAGMA synchronous = FULL")
    connection.execute("PRAGMA trusted_schema = OFF")
    connection.execute("PRAGMA mmap_size = 0")
    connection.execute("PRAGMA temp_store = MEMORY")
    connection.execute("PRAGMA journal_size_limit = 16777216")
    connection.execute(f"PRAGMA wal_autocheckpoint = {checkpoint_pages:d}")
    connection.execute(f"PRAGMA cache_size = {-1024 * cache_mib:d}")
    return connection


def transact(connection: apsw.Connection, work: Callable[[apsw.Connection], T], how: str = "IMMEDIATE") -> T:
    """Run the work as one transaction: all of it is kept, durably, or nothing."""
    connection.execute(f"BEGIN {how}")
    try:
        result = work(connection)
        connection.execute("COMMIT")
    except BaseException:
        if connection.in_transaction:
            connection.execute("ROLLBACK")
        raise
    return result


def _patience() -> Callable[[int], bool]:
    since = 0.0

    def look_again(tries: int) -> bool:
        nonlocal since
        if tries == 0:
            since = time.monotonic()
        time.sleep(LOOK_SECONDS)
        return time.monotonic() - since < BUSY_SECONDS

    return look_again


def _open(path: Path) -> apsw.Connection:
    """By its whole path, and never a new file: one that was taken away must not be replaced by an empty one."""
    return apsw.Connection(str(path.absolute()), flags=apsw.SQLITE_OPEN_READWRITE)


def _open_unchanging(path: Path) -> apsw.Connection:
    """Beside a file that nobody has open, SQLite would leave a log of its own: such a file is read as it lies there."""
    address = f"file:{quote(str(path.absolute()))}"
    if not path.with_name(f"{path.name}-wal").exists():
        address += "?immutable=1"
    return apsw.Connection(address, flags=apsw.SQLITE_OPEN_READONLY | apsw.SQLITE_OPEN_URI)


def _create(path: Path) -> None:
    """Readable by its owner alone before SQLite opens it; its companions take after it."""
    try:
        mode = make_private(path)
    except OSError as error:
        raise OperatorError(
            f"The search index {path} cannot be opened for writing by this user: {error.strerror}."
        ) from None
    if mode & 0o077:
        raise OperatorError(f"The search index {path} can be read or changed by others. Run: chmod 600 {path}")


def _migrated(path: Path) -> str:
    connection = _open(path)
    try:
        # Before WAL mode, which would already change a file that is not for us.
        if _version(connection, path) < VERSION:
            _make_current(connection, path)
        node: str = connection.execute("SELECT node FROM meta").get
        return node
    finally:
        connection.close()


def _make_current(connection: apsw.Connection, path: Path) -> None:
    connection.set_busy_handler(_patience())
    connection.execute("PRAGMA auto_vacuum = INCREMENTAL")  # counts before the first page is written
    connection.execute("PRAGMA journal_mode = WAL")
    connection.execute("PRAGMA synchronous = FULL")

    def steps(c: apsw.Connection) -> None:
        before = _version(c, path)  # another process may have been quicker
        for step in STEPS[before:]:
            c.execute(step)
        if before == 0:
            c.execute("INSERT INTO meta VALUES (1, ?)", (secrets.token_urlsafe(NODE_BYTES),))
        c.execute(f"PRAGMA user_version = {VERSION:d}")
        c.execute(f"PRAGMA application_id = {APPLICATION_ID:d}")

    transact(connection, steps)


def _version(connection: apsw.Connection, path: Path) -> int:
    """0 for an empty file. Raises when the file is not for us."""
    with connection:  # one snapshot: another process may be making the file
        version: int = connection.execute("PRAGMA user_version").get
        application = connection.execute("PRAGMA application_id").get
        tables = connection.execute("SELECT count(*) FROM sqlite_master").get
    if application != APPLICATION_ID and (version or tables):
        raise OperatorError(_foreign(path))
    if version > VERSION:
        raise OperatorError(
            f"The search index {path} is of version {version}; this Watchword knows versions up to {VERSION}. "
            "Start it with the newer Watchword that wrote it."
        )
    return version


def _foreign(path: Path) -> str:
    return f"The file {path} is no search index of Watchword. Name another data folder, or take the file away."
