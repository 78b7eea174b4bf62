"""Connections to the one file: how it is opened, brought to this version, and what its errors mean.

WAL mode and `synchronous=FULL`: a commit that returned is on disk, and readers never wait for the writer.
"""

from pathlib import Path
from typing import Any
from urllib.parse import quote

import apsw

from watchword.domain.errors import Fault, OperatorError, Reason
from watchword.files import make_private
from watchword.stores.migrate import MigrationError, latest, migrations

DIALECT = "sqlite"
# On a large file each write touches pages of its own, and SQLite's default of 1,000 would have the writer stop for a
# checkpoint every few commits.
CHECKPOINT_PAGES = 4_000
APPLICATION_ID = 0x57575744  # "WWWD": marks the file as ours

_DAMAGED = "The store's file is damaged: restore a backup."

# What the machine or another process does to us. Anything else the driver raises is a defect of ours.
_OUTAGES: dict[type[apsw.Error], str] = {
    apsw.BusyError: "The store is locked by another process.",
    apsw.LockedError: "The store is locked by another process.",
    apsw.FullError: "The store's disk is full.",
    apsw.IOError: "The store's disk failed.",
    apsw.CantOpenError: "The store's file cannot be opened.",
    apsw.ReadOnlyError: "The store's file cannot be written.",
    apsw.CorruptError: _DAMAGED,
    apsw.NotADBError: _DAMAGED,
    apsw.ProtocolError: "The store is locked by another process.",
    apsw.NoMemError: "The store is out of memory.",
    apsw.PermissionsError: "The store's file cannot be opened.",
    apsw.NoLFSError: "The store's disk failed.",
    apsw.InterruptError: "The store was interrupted.",
    apsw.AbortError: "The store was interrupted.",
}


def store_fault(error: apsw.Error) -> Fault:
    """The public face of a driver error."""
    why = f"{type(error).__name__}: {error}"
    sentence = _OUTAGES.get(type(error))
    if sentence is None:
        return Fault(Reason.INTERNAL, "Something went wrong here, not with your request.", why=why)
    return Fault(Reason.STORE_UNAVAILABLE, f"{sentence} Nothing was changed.", why=why)


def connect(path: Path, *, busy_ms: int, read_only: bool = False, cache_mib: int = 8) -> apsw.Connection:
    connection = _open(path)
    connection.set_busy_timeout(busy_ms)
    connection.execute("PRAGMA journal_mode = WAL")
    connection.execute("PRAGMA synchronous = FULL")
    connection.execute("PRAGMA foreign_keys = ON")
    connection.execute("PRAGMA trusted_schema = OFF")
    connection.execute("PRAGMA journal_size_limit = 67108864")
    connection.execute(f"PRAGMA wal_autocheckpoint = {CHECKPOINT_PAGES:d}")
    connection.execute(f"PRAGMA cache_size = {-1024 * cache_mib:d}")
    # No plan depends on what is bound. Else SQLite, which looks at a bound LIMIT, plans each list anew: 25 of 92 µs for
    # 20 tokens.
    connection.config(apsw.SQLITE_DBCONFIG_ENABLE_QPSG, 1)
    connection.create_scalar_function("unicode_lower", _unicode_lower, 1, deterministic=True)
    if read_only:
        connection.execute("PRAGMA query_only = ON")
    return connection


def _open(path: Path) -> apsw.Connection:
    """By its whole path: to SQLite some short names, such as `:memory:`, are no files at all. Never a new file: one
    that was taken away must not be replaced by an empty one.
    """
    return apsw.Connection(str(path.absolute()), flags=apsw.SQLITE_OPEN_READWRITE | apsw.SQLITE_OPEN_URI)


def unchanging(path: Path) -> str:
    """The file's name, in the words of SQLite, for reading what nobody writes: no lock, no companions, no trace."""
    return f"file:{quote(str(path.absolute()))}?immutable=1"


def open_unchanging(path: Path) -> apsw.Connection:
    connection = apsw.Connection(unchanging(path), flags=apsw.SQLITE_OPEN_READONLY | apsw.SQLITE_OPEN_URI)
    connection.execute("PRAGMA trusted_schema = OFF")
    return connection


def folded(column: str) -> str:
    """In lower case, in SQL. SQLite's own function knows ASCII only; ours holds up the event loop for each row."""
    return f"iif(octet_length({column}) = length({column}), lower({column}), unicode_lower({column}))"


def _unicode_lower(*values: Any) -> Any:
    (value,) = values
    return value.lower() if isinstance(value, str) else value


def create_file(path: Path) -> None:
    """Make the file readable by its owner alone before SQLite opens it; its companions take after it."""
    try:
        mode = make_private(path)
    except OSError as error:
        raise OperatorError(f"The store {path} cannot be opened for writing by this user: {error.strerror}.") from None
    if mode & 0o077:
        raise OperatorError(f"The store {path} can be read or changed by others. Run: chmod 600 {path}")


def schema_version(connection: apsw.Connection) -> int:
    """The number of the last migration applied; 0 for an empty file. Raises when the file is not for us."""
    with connection:  # one snapshot: another process may be making the file
        version: int = connection.execute("PRAGMA user_version").get
        application = connection.execute("PRAGMA application_id").get
        tables = connection.execute("SELECT count(*) FROM sqlite_master").get
    if application != APPLICATION_ID and (version or tables):
        raise MigrationError("The file is an SQLite database of another program. Name another data folder.")
    if version > latest(DIALECT):
        raise MigrationError(
            f"The store is of schema version {version}; this Watchword knows versions up to {latest(DIALECT)}. "
            "Start it with the newer Watchword that wrote it, or restore a backup made before."
        )
    return version


def refuse_foreign(path: Path) -> int:
    """The schema version. Raises when the file is not for us: before `connect`, which would already change it to WAL
    mode.
    """
    connection = _open(path)
    try:
        return schema_version(connection)
    finally:
        connection.close()


def migrate(connection: apsw.Connection) -> tuple[int, int]:
    """Apply what is missing, each step in a transaction of its own; returns the version before and after."""
    before = schema_version(connection)
    for migration in migrations(DIALECT):
        if migration.number <= before:
            continue
        connection.execute("BEGIN IMMEDIATE")
        try:
            # Another process may have been quicker while this one waited for the lock.
            if schema_version(connection) < migration.number:
                connection.execute(migration.sql)
                connection.execute(f"PRAGMA user_version = {migration.number:d}")
                connection.execute(f"PRAGMA application_id = {APPLICATION_ID:d}")
            connection.execute("COMMIT")
        except BaseException:
            connection.execute("ROLLBACK")
            raise
    return before, schema_version(connection)
