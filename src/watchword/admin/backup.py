"""`db backup` and `db copy`: write a whole store to a file while the service runs, or to another store while it is
stopped.

A backup of either database is an SQLite file, and can be restored into either. It is written in a private folder beside
FILE, checked and flushed, and then renamed to FILE.

A copy needs the service stopped: a token revoked in the source would stay valid in the copy. The target is empty. It is
filled in one step, a rename or a commit, after it was compared with the source and checked.
"""

import errno
import os
from collections.abc import AsyncIterator, Iterator
from contextlib import ExitStack, asynccontextmanager, closing, contextmanager
from pathlib import Path

import apsw

from watchword.admin import tables
from watchword.admin.check import POSTGRES_RULES, file_verdicts, require_sound, verdicts_on
from watchword.admin.rules import Backup, BackupContents, CheckMasterKey, CopyResult, SealedSecrets, describe_rows
from watchword.admin.tables import PostgresTarget, Progress, copy_tables, count_rows, lock_tables, sealed_secrets
from watchword.basics.errors import OperatorError
from watchword.basics.files import create, draft_folder, publish, sync
from watchword.database.postgres import maintenance
from watchword.database.postgres.connections import NOW, SNAPSHOT, Connection
from watchword.database.postgres.maintenance import commit, lock_exclusively, maintenance_connection, require_latest
from watchword.database.sqlite.connections import STORE_FILE, connect, store_fault
from watchword.database.sqlite.database import SqliteTransaction
from watchword.database.sqlite.file import companions, open_immutable
from watchword.database.transaction import Transaction
from watchword.database.urls import PostgresUrl, SqliteUrl, StoreUrl, require_version

PAGES_A_STEP = 256
LIVE = "revoked_at IS NULL AND (expires_at IS NULL OR expires_at > :now)"
_CONTENTS = f"""
SELECT count(*), count(*) FILTER (WHERE revoked_at IS NULL), count(*) FILTER (WHERE {LIVE}),
    (SELECT at FROM events ORDER BY seq DESC LIMIT 1) FROM tokens"""


async def back_up(url: StoreUrl, file: Path, now: int, *, force: bool, progress: Progress) -> Backup:
    def check_target() -> None:
        if isinstance(url, SqliteUrl) and _is_store(file, url.path):
            raise OperatorError(f"FILE must not be the store itself; {file} is. Name another file.")
        _require_target(file, force=force)

    check_target()
    with draft_file(file, "backup") as draft:
        if isinstance(url, SqliteUrl):
            _back_up_file(url.path, draft, progress)
        else:
            now = await _back_up_schema(url, draft, progress)
        contents = await finish_draft(draft, now, "The backup")
        check_target()
        publish(draft, file)
        return Backup(file, file.stat().st_size, contents)


def _is_store(file: Path, store: Path) -> bool:
    same_path = file.resolve() in [path.resolve() for path in (store, *companions(store))]
    return same_path or (file.exists() and file.samefile(store))


def _back_up_file(store: Path, draft: Path, progress: Progress) -> None:
    """By SQLite's backup, in small steps in one read transaction: writers do not wait, and their commits do not
    restart it.
    """
    with closing(open_to_read(store)) as source, closing(apsw.Connection(str(draft))) as copy:
        copy.execute("PRAGMA journal_mode = OFF")
        copy.execute("PRAGMA synchronous = OFF")
        source.execute("BEGIN")
        if not STORE_FILE.version(source):  # the first read begins the snapshot
            raise OperatorError(f"The store {store} is empty. Create it with: watchword db migrate")
        with copy.backup("main", source, "main") as backup:
            while not backup.done:
                backup.step(PAGES_A_STEP)
                progress(backup.page_count - backup.remaining, backup.page_count)
        source.execute("COMMIT")


async def _back_up_schema(url: PostgresUrl, draft: Path, progress: Progress) -> int:
    """Returns the database's time."""
    async with maintenance_connection(url) as connection:
        await connection.execute(SNAPSHOT)
        await require_latest(connection, url)
        now: int = await connection.fetchval(NOW)
        await _fill_file(connection, draft, progress)
        return now


async def sealed_in(file: Path) -> SealedSecrets:
    with closing(open_immutable(file)) as connection:
        return await sealed_secrets(SqliteTransaction(connection))


async def copy(
    source: StoreUrl, target: StoreUrl, now: int, check_master_key: CheckMasterKey, progress: Progress
) -> CopyResult:
    same = source == target
    if isinstance(source, SqliteUrl) and isinstance(target, SqliteUrl):
        same = source.path.resolve() == target.path.resolve()
    if same:
        raise OperatorError(f"--to must be another store than --from; both are {source}.")
    async with _opened(source) as opened:
        check_master_key(await sealed_secrets(opened))
        await _require_no_running_operation(opened)
        if isinstance(target, SqliteUrl):
            return await _copy_to_file(opened, target, now, progress)
        async with maintenance_connection(target) as connection:
            await lock_exclusively(connection, target)
            await connection.execute("BEGIN")
            return await fill_schema(opened, connection, target, "The copy", progress)


@asynccontextmanager
async def _opened(url: StoreUrl) -> AsyncIterator[Transaction]:
    """The source of a copy, locked, in one read transaction."""
    if isinstance(url, PostgresUrl):
        async with maintenance_connection(url) as connection:
            await require_latest(connection, url)
            await lock_exclusively(connection, url)
            await connection.execute(SNAPSHOT)
            await lock_tables(connection, url, "SHARE")
            yield connection
            return
    if not url.path.is_file():
        raise OperatorError(f"--from must be a store; there is none at {url}.")
    try:
        with closing(open_exclusively(url.path)) as file:
            require_version(url, STORE_FILE.version(file), STORE_FILE.latest)
            yield SqliteTransaction(file)
    except apsw.Error as error:
        raise OperatorError(f"The store {url} cannot be copied: {store_fault(error).message}") from error


async def _require_no_running_operation(source: Transaction) -> None:
    """It is unknown which instance of the target would continue the operation."""
    number = await source.fetchval("SELECT number FROM operations WHERE finished_at IS NULL ORDER BY number LIMIT 1")
    if number is not None:
        raise OperatorError(
            f"Operation {number} in the search index has not finished. Start the service, wait for it or cancel it "
            "(watchword operation list), and stop the service again."
        )


async def _copy_to_file(source: Transaction, target: SqliteUrl, now: int, progress: Progress) -> CopyResult:
    file = target.path
    try:
        file.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    except OSError as error:
        raise OperatorError(f"--to must be in a folder that can be created; {file.parent}: {error.strerror}.") from None
    replaces = file.exists()
    _require_target(file, force=replaces, word="--to")
    with ExitStack() as locks, draft_file(file, "copy") as draft:
        if replaces:
            existing = locks.enter_context(closing(open_exclusively(file)))
            if STORE_FILE.version(existing):
                await _require_empty(SqliteTransaction(existing), target)
        copied = await _fill_file(source, draft, progress)
        await finish_draft(draft, now, "The copy")
        _require_target(file, force=replaces, word="--to")
        publish(draft, file)
        return copied


def _require_target(file: Path, *, force: bool, word: str = "FILE") -> None:
    if not file.parent.is_dir():
        raise OperatorError(f"{word} must be in an existing folder; there is no folder {file.parent}.")
    if file.is_dir():
        raise OperatorError(f"{word} must name a file; {file} is a folder. Name a file in it.")
    if file.is_symlink() or (file.exists() and not file.is_file()):
        raise OperatorError(
            f"{word} must be a new or a regular file; {file} is a link, a device or a pipe. Name another."
        )
    if file.exists() and not force:
        raise OperatorError(f"{word} must not exist yet; {file} does. Name another, or replace it with --force.")


@contextmanager
def draft_file(file: Path, what: str) -> Iterator[Path]:
    """A draft to be renamed to the file. It is deleted at the end of the block unless it was renamed."""
    with draft_errors(what, file.parent), draft_folder(file) as folder:
        draft = folder / "draft.db"
        os.close(create(draft))
        yield draft


@contextmanager
def draft_errors(what: str, where: object) -> Iterator[None]:
    try:
        yield
    except (apsw.Error, OSError) as error:
        if isinstance(error, apsw.FullError) or (isinstance(error, OSError) and error.errno == errno.ENOSPC):
            raise OperatorError(f"There is no space for the {what} in {where}. Nothing was changed.") from None
        if isinstance(error, OSError):
            raise
        raise OperatorError(f"The {what} failed: {store_fault(error).message}") from error


async def _fill_file(source: Transaction, draft: Path, progress: Progress) -> CopyResult:
    with closing(connect(draft)) as connection:
        STORE_FILE.migrate(connection)
        return await copy_tables(source, tables.SqliteTarget(connection), progress)


async def finish_draft(draft: Path, now: int, what: str) -> BackupContents:
    """Check the draft, fold its log into the file and flush it."""
    with closing(connect(draft)) as connection:
        await require_sound(file_verdicts(connection, older_too=True), what)
        connection.execute("PRAGMA journal_mode = DELETE")
        contents = contents_of(connection, now)
    sync(draft)
    return contents


def contents_of(connection: apsw.Connection, now: int) -> BackupContents:
    return BackupContents(STORE_FILE.version(connection), *connection.execute(_CONTENTS, {"now": now}).get)


def open_to_read(store: Path) -> apsw.Connection:
    STORE_FILE.version_of(store)
    return connect(store, read_only=True)


def open_exclusively(store: Path) -> apsw.Connection:
    """No other process may have the file open: its writes would be lost. The write-ahead log is folded into the file,
    because SQLite would apply a log that is left behind to the new file.
    """
    STORE_FILE.version_of(store)
    connection = connect(store)
    try:
        connection.execute("PRAGMA journal_mode = DELETE")
        connection.execute("PRAGMA locking_mode = EXCLUSIVE")
        connection.execute("BEGIN EXCLUSIVE")
        connection.execute("COMMIT")
    except (apsw.BusyError, apsw.LockedError):
        connection.close(True)
        raise OperatorError(f"Another process has the store {store} open. Stop it first, then try again.") from None
    except BaseException:
        connection.close(True)
        raise
    return connection


async def _require_empty(target: Transaction, url: StoreUrl) -> None:
    found = describe_rows(await count_rows(target))
    if found:
        raise OperatorError(f"--to must be empty; {url} holds a store already ({found}). Name another.")


async def fill_schema(
    source: Transaction, connection: Connection, url: PostgresUrl, what: str, progress: Progress
) -> CopyResult:
    """Create the schema if it is missing, fill it and commit the open transaction."""
    await maintenance.migrate_schema(connection, url.schema)
    await lock_tables(connection, url, "ACCESS EXCLUSIVE")
    await _require_empty(connection, url)
    copied = await copy_tables(source, PostgresTarget(connection), progress)
    await require_sound(verdicts_on(connection, POSTGRES_RULES), what)
    await commit(connection, url)
    return copied
