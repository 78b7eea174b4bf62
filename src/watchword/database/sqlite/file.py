"""Open, migrate and check an SQLite file: the store's, and the embedded search index's.

WAL mode and `synchronous=FULL`: a commit that returned is on disk, and readers never wait for the writer.
"""

import time
from collections.abc import Iterator
from contextlib import closing, contextmanager
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import quote

import apsw

from watchword.basics.errors import Fault, OperatorError, Reason
from watchword.basics.files import close_advice, make_private, open_bits
from watchword.database.urls import require_version

BUSY_MS = 2_000
PREPARE_SECONDS = 10.0
READ_WRITE = apsw.SQLITE_OPEN_READWRITE | apsw.SQLITE_OPEN_URI
READ_ONLY = apsw.SQLITE_OPEN_READONLY | apsw.SQLITE_OPEN_URI

_DAMAGED = " is damaged"
_LOCKED = " is locked by another process"
# Errors that the machine or another process causes. Every other error of the driver is a bug in Watchword.
_OUTAGES: dict[type[apsw.Error], str] = {
    apsw.BusyError: _LOCKED,
    apsw.LockedError: _LOCKED,
    apsw.ProtocolError: _LOCKED,
    apsw.FullError: "'s disk is full",
    apsw.IOError: "'s disk failed",
    apsw.NoLFSError: "'s disk failed",
    apsw.CantOpenError: "'s file cannot be opened",
    apsw.PermissionsError: "'s file cannot be opened",
    apsw.ReadOnlyError: "'s file cannot be written",
    apsw.CorruptError: _DAMAGED,
    apsw.NotADBError: _DAMAGED,
    apsw.NoMemError: " is out of memory",
    apsw.InterruptError: " did not answer in time",
    apsw.AbortError: " did not answer in time",
}


@dataclass(frozen=True, slots=True)
class SqliteFormat:
    """One kind of file, marked by its application id. Migration number n brings it to schema version n."""

    name: str
    application_id: int
    migrations: tuple[str, ...]
    unavailable: Reason
    """The reason code of an outage."""
    repair: str
    """What to do with a damaged file."""
    assurance: str = ""
    """Added to the message of every outage."""
    pragmas: tuple[str, ...] = ()
    """Set before migrating."""

    @property
    def latest(self) -> int:
        return len(self.migrations)

    def fault(self, error: apsw.Error) -> Fault:
        cause = f"{type(error).__name__}: {error}"
        outage = _OUTAGES.get(type(error))
        if outage is None:
            return Fault(Reason.INTERNAL, "Internal server error.", cause=cause)
        repair = self.repair if outage == _DAMAGED else ""
        message = " ".join(filter(None, (f"The {self.name}{outage}.", repair, self.assurance)))
        return Fault(self.unavailable, message, cause=cause)

    def version(self, connection: apsw.Connection) -> int:
        """The schema version; 0 for an empty file. Raises if the file is of another program or a newer Watchword."""
        with connection:  # one snapshot: another process may be creating the file
            version: int = connection.execute("PRAGMA user_version").get
            application = connection.execute("PRAGMA application_id").get
            tables = connection.execute("SELECT count(*) FROM sqlite_master").get
        if application != self.application_id and (version or tables):
            raise self.foreign(connection.filename)
        if version > self.latest:
            raise OperatorError(
                f"The {self.name} {connection.filename} has schema version {version}; this Watchword supports versions "
                f"up to {self.latest}. Use the newer Watchword that wrote it, or restore an older backup."
            )
        return version

    def foreign(self, path: str | Path) -> OperatorError:
        return OperatorError(
            f"The file {path} is not a Watchword {self.name}. Use another data folder, or move the file away."
        )

    def version_of(self, path: Path) -> int:
        """Like `version`. Call it before `connect`, which sets WAL mode and so changes a file of another program."""
        with closing(open_existing(path)) as connection:
            return self.version(connection)

    def migrate(self, connection: apsw.Connection) -> tuple[int, int]:
        """Apply the missing migrations in one transaction; return the version before and after."""
        with transaction(connection):
            before = self.version(connection)  # another process may have migrated the file meanwhile
            for migration in self.migrations[before:]:
                connection.execute(migration)
            if before < self.latest:
                connection.execute(f"PRAGMA user_version = {self.latest:d}")
                connection.execute(f"PRAGMA application_id = {self.application_id:d}")
        return before, self.latest

    def prepare(self, path: Path, *, may_migrate: bool = True) -> tuple[int, int]:
        """Create the file if it is missing and migrate it; return the schema version before and after."""
        deadline = time.monotonic() + PREPARE_SECONDS
        while True:
            try:
                self._create(path)
                with closing(open_existing(path)) as connection:
                    connection.set_busy_timeout(BUSY_MS)
                    version = self.version(connection)  # before WAL mode, which changes a file of another program
                    if not may_migrate:
                        require_version(path, version, self.latest)
                    outdated = version < self.latest
                    for pragma in (*(self.pragmas if outdated else ()), "journal_mode = WAL", "synchronous = FULL"):
                        connection.execute(f"PRAGMA {pragma}")
                    return self.migrate(connection) if outdated else (version, version)
            except apsw.Error as error:
                # Setting WAL mode on a new file does not wait for another process that does the same.
                if not isinstance(error, apsw.BusyError) or time.monotonic() > deadline:
                    raise self.fault(error) from error
                time.sleep(0.02)

    def _create(self, path: Path) -> None:
        """Only its owner may read the file. SQLite gives its companions the same mode."""
        try:
            seen = make_private(path)
        except OSError as error:
            raise OperatorError(f"This user cannot write the {self.name} {path}: {error.strerror}.") from None
        if open_bits(seen):
            advice = close_advice(path, seen)
            raise OperatorError(f"Other users can read or change the {self.name} {path}. {advice}")


def connect(
    path: Path, *, cache_mib: int, checkpoint_pages: int, log_mib: int, busy_ms: int = BUSY_MS
) -> apsw.Connection:
    connection = open_existing(path)
    connection.set_busy_timeout(busy_ms)
    connection.execute("PRAGMA journal_mode = WAL")
    connection.execute("PRAGMA synchronous = FULL")
    connection.execute("PRAGMA trusted_schema = OFF")
    connection.execute(f"PRAGMA journal_size_limit = {log_mib * 1024 * 1024:d}")
    connection.execute(f"PRAGMA wal_autocheckpoint = {checkpoint_pages:d}")
    connection.execute(f"PRAGMA cache_size = {-1024 * cache_mib:d}")
    return connection


def open_existing(path: Path) -> apsw.Connection:
    """Never creates a file: a file that was moved away must not be replaced by an empty one. The path is absolute
    because SQLite gives some short names, such as `:memory:`, another meaning.
    """
    return apsw.Connection(str(path.absolute()), flags=READ_WRITE)


def immutable_uri(path: Path) -> str:
    """For a file that no process writes: SQLite takes no lock and creates no companions."""
    return f"file:{quote(str(path.absolute()))}?immutable=1"


def open_immutable(path: Path) -> apsw.Connection:
    connection = apsw.Connection(immutable_uri(path), flags=READ_ONLY)
    connection.execute("PRAGMA trusted_schema = OFF")
    return connection


def open_read_only(path: Path) -> apsw.Connection:
    """Leaves no trace, whether other processes have the file open or not."""
    wal, *_ = companions(path)
    if not wal.exists():
        return open_immutable(path)
    connection = apsw.Connection(str(path.absolute()), flags=READ_ONLY)
    connection.config(apsw.SQLITE_DBCONFIG_NO_CKPT_ON_CLOSE, 1)
    connection.set_busy_timeout(BUSY_MS)
    return connection


def companions(path: Path) -> list[Path]:
    """The files that SQLite keeps beside this one, the write-ahead log first."""
    return [path.with_name(path.name + ending) for ending in ("-wal", "-shm", "-journal")]


@contextmanager
def transaction(connection: apsw.Connection, mode: str = "IMMEDIATE") -> Iterator[None]:
    """Commit at the end of the block, or roll back."""
    connection.execute(f"BEGIN {mode}")
    try:
        yield
        connection.execute("COMMIT")
    except BaseException:
        if connection.in_transaction:
            connection.execute("ROLLBACK")
        raise
