"""`db backup`: a copy of one moment, made while the service writes. FILE is whole or it is not there.

The copy is made by SQLite's own backup, in small steps inside one read transaction: writers are not held up, and
what they commit meanwhile does not make it begin again. It is written beside FILE, made a single file, checked,
flushed, and only then given its name. It is written in a new folder beside FILE that no other user can look into.
"""

import os
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from pathlib import Path

import apsw

from watchword.domain.backups import Backup, Contents
from watchword.domain.errors import OperatorError
from watchword.files import create, draft_folder, sync
from watchword.files import publish as give_name
from watchword.stores.sqlite.check import check
from watchword.stores.sqlite.connections import connect, open_unchanging, refuse_foreign, schema_version, store_fault
from watchword.stores.sqlite.keys import Sealed, sealed_of

PAGES_A_STEP = 256

Progress = Callable[[int, int], None]
"""Told after each step: pages done, pages in all."""

# Of tokens, at the moment :now.
LIVE = "revoked_at IS NULL AND (expires_at IS NULL OR expires_at > :now)"


def back_up(store: Path, file: Path, now: int, *, force: bool, progress: Progress) -> Backup:
    def refuse() -> None:
        if file.resolve() in [path.resolve() for path in (store, *companions(store))] or _is_same(store, file):
            raise OperatorError(f"FILE must not be the store itself; {file} is. Name another file.")
        refuse_target(file, force=force)

    with drafting(file, "backup", refuse) as draft:
        refuse_foreign(store)
        _copy(store, draft, progress)
        return publish(draft, file, now, "The backup", refuse)


@contextmanager
def drafting(file: Path, what: str, refuse: Callable[[], None]) -> Iterator[Path]:
    """A draft of FILE, for `publish` to give it its name. A failure leaves nothing, and is one sentence."""
    refuse()
    try:
        with draft_folder(file) as folder:
            draft = folder / "draft.db"
            os.close(create(draft))
            yield draft
    except apsw.FullError:
        raise OperatorError(f"There is no room for the {what} at {file.parent}. Nothing was left there.") from None
    except apsw.Error as error:
        raise OperatorError(f"The {what} was not made: {store_fault(error).message}") from error


def publish(draft: Path, file: Path, now: int, what: str, refuse: Callable[[], None]) -> Backup:
    refuse_unsound(draft, what, older_too=True)
    contents = make_single(draft, now)
    sync(draft)
    refuse()
    give_name(draft, file)
    return Backup(file, file.stat().st_size, contents)


def sealed_in(file: Path) -> Sealed:
    """What of a backup its master key has sealed."""
    with closing(open_unchanging(file)) as backup:
        return sealed_of(backup)


def companions(path: Path) -> list[Path]:
    """The files that SQLite keeps beside this one."""
    return [path.with_name(path.name + ending) for ending in ("-wal", "-shm", "-journal")]


def refuse_unsound(path: Path, what: str, *, older_too: bool = False) -> None:
    for law, problem in check(path, older_too=older_too):
        if problem is not None:
            raise OperatorError(f"{what} is not sound; nothing was changed. What must hold: {law}. It is: {problem}")


def make_single(path: Path, now: int) -> Contents:
    """Fold everything into the one file; says what it holds."""
    with closing(connect(path, busy_ms=2_000)) as connection:
        connection.execute("PRAGMA journal_mode = DELETE")
        return contents_of(connection, now)


def contents_of(connection: apsw.Connection, now: int) -> Contents:
    return Contents(
        schema_version=schema_version(connection),
        tokens=connection.execute("SELECT count(*) FROM tokens").get,
        unrevoked=connection.execute("SELECT count(*) FROM tokens WHERE revoked_at IS NULL").get,
        live=connection.execute(f"SELECT count(*) FROM tokens WHERE {LIVE}", {"now": now}).get,  # noqa: S608 - literal
        last_change=connection.execute("SELECT at FROM events ORDER BY seq DESC LIMIT 1").get,
    )


def refuse_target(file: Path, *, force: bool, word: str = "FILE") -> None:
    if not file.parent.is_dir():
        raise OperatorError(f"{word} must be in a folder that exists; there is no folder {file.parent}.")
    if file.is_dir():
        raise OperatorError(f"{word} must name a file; {file} is a folder. Name a file in it.")
    if file.is_symlink() or (file.exists() and not file.is_file()):
        raise OperatorError(
            f"{word} must be a new or a regular file; {file} is a link, a device or a pipe. Name another."
        )
    if file.exists() and not force:
        raise OperatorError(f"{word} must not exist yet; {file} does. Name another, or replace it with --force.")


def _is_same(store: Path, file: Path) -> bool:
    return file.exists() and file.samefile(store)


def _copy(store: Path, draft: Path, progress: Progress) -> None:
    with closing(connect(store, busy_ms=2_000, read_only=True)) as source, closing(apsw.Connection(str(draft))) as copy:
        # Nothing of a draft needs to survive a crash; it is flushed once, at the end.
        copy.execute("PRAGMA journal_mode = OFF")
        copy.execute("PRAGMA synchronous = OFF")
        source.execute("BEGIN")
        if not schema_version(source):  # the first read: from here on the source is of one moment
            raise OperatorError(f"There is nothing in the store {store} yet. Make it with: watchword db migrate")
        with copy.backup("main", source, "main") as backup:
            while not backup.done:
                backup.step(PAGES_A_STEP)
                progress(backup.page_count - backup.remaining, backup.page_count)
        source.execute("COMMIT")
