"""`db backup`: copy a store to a file while the service runs. The file is complete, or it does not exist.

A backup of either database is an SQLite file, so it can be restored into either. It is written in a private folder
beside FILE, checked and flushed, and then renamed to FILE.
"""

import asyncio
import os
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Any

import apsw

from watchword.domain.backups import Backup, BackupContents, SealedSecrets
from watchword.domain.errors import OperatorError
from watchword.domain.store_urls import PostgresUrl, SqliteUrl, StoreUrl
from watchword.files import create, draft_folder, publish, sync
from watchword.sqlite_file import companions, open_immutable
from watchword.stores.admin.check import require_sound_file
from watchword.stores.admin.tables import PostgresSource, Progress, SqliteTarget, copy_tables
from watchword.stores.postgres.connections import NOW, SNAPSHOT
from watchword.stores.postgres.maintenance import maintenance_connection
from watchword.stores.postgres.migrations import require_latest
from watchword.stores.sqlite.connections import STORE_FILE, connect, store_fault

PAGES_A_STEP = 256

LIVE = "revoked_at IS NULL AND (expires_at IS NULL OR expires_at > :now)"


def back_up(url: StoreUrl, file: Path, now: int, *, force: bool, progress: Progress) -> Backup:
    return asyncio.run(_back_up(url, file, now, force=force, progress=progress))


async def _back_up(url: StoreUrl, file: Path, now: int, *, force: bool, progress: Progress) -> Backup:
    def check_target() -> None:
        if isinstance(url, SqliteUrl) and _is_store(file, url.path):
            raise OperatorError(f"FILE must not be the store itself; {file} is. Name another file.")
        require_target(file, force=force)

    with draft_file(file, "backup", check_target) as draft:
        if isinstance(url, SqliteUrl):
            _copy_file(url.path, draft, progress)
        else:
            now = await _copy_schema(url, draft, progress)
        contents = await finish_draft(draft, now, "The backup")
        check_target()
        publish(draft, file)
        return Backup(file, file.stat().st_size, contents)


def _is_store(file: Path, store: Path) -> bool:
    same_path = file.resolve() in [path.resolve() for path in (store, *companions(store))]
    return same_path or (file.exists() and file.samefile(store))


@contextmanager
def draft_file(file: Path, what: str, check_target: Callable[[], None]) -> Iterator[Path]:
    """A draft to be renamed to the file. It is deleted at the end of the block unless it was renamed."""
    check_target()
    try:
        with draft_folder(file) as folder:
            draft = folder / "draft.db"
            os.close(create(draft))
            yield draft
    except apsw.FullError:
        raise OperatorError(f"There is no space for the {what} in {file.parent}. Nothing was left there.") from None
    except apsw.Error as error:
        raise OperatorError(f"The {what} failed: {store_fault(error).message}") from error


async def finish_draft(draft: Path, now: int, what: str, *, older_too: bool = True) -> BackupContents:
    """Check the draft, fold its log into the file and flush it."""
    with closing(connect(draft)) as connection:
        await require_sound_file(connection, what, older_too=older_too)
        connection.execute("PRAGMA journal_mode = DELETE")
        contents = contents_of(connection, now)
    sync(draft)
    return contents


def contents_of(connection: apsw.Connection, now: int) -> BackupContents:
    return BackupContents(
        schema_version=STORE_FILE.version(connection),
        tokens=connection.execute("SELECT count(*) FROM tokens").get,
        unrevoked=connection.execute("SELECT count(*) FROM tokens WHERE revoked_at IS NULL").get,
        live=connection.execute(f"SELECT count(*) FROM tokens WHERE {LIVE}", {"now": now}).get,
        last_change=connection.execute("SELECT at FROM events ORDER BY seq DESC LIMIT 1").get,
    )


def sealed_in(file: Path) -> SealedSecrets:
    with closing(open_immutable(file)) as connection:
        return sealed_of(connection)


def sealed_of(connection: apsw.Connection) -> SealedSecrets:
    salt = connection.execute("SELECT sealed_salt FROM state").get
    keys: list[Any] = connection.execute("SELECT kid, sealed_private FROM keys").fetchall()
    # Older schema versions lack this table.
    if connection.execute("SELECT 1 FROM sqlite_master WHERE name = 'next_key'").get:
        keys += connection.execute("SELECT kid, sealed_private FROM next_key").fetchall()
    return SealedSecrets(salt, keys)


def require_target(file: Path, *, force: bool, word: str = "FILE") -> None:
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


def _copy_file(store: Path, draft: Path, progress: Progress) -> None:
    """By SQLite's backup, in small steps in one read transaction: writers do not wait, and their commits do not
    restart it.
    """
    STORE_FILE.version_of(store)
    with closing(connect(store, read_only=True)) as source, closing(apsw.Connection(str(draft))) as copy:
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


async def _copy_schema(url: PostgresUrl, draft: Path, progress: Progress) -> int:
    """Returns the database's time."""
    async with maintenance_connection(url) as connection:
        await connection.execute(SNAPSHOT)
        await require_latest(connection, url)
        now: int = await connection.fetchval(NOW)
        with closing(connect(draft)) as copy:
            STORE_FILE.migrate(copy)
            await copy_tables(PostgresSource(connection), SqliteTarget(copy), progress)
        return now
