"""What is done with a store as a whole, whichever kind of place it lies in. A kind is loaded when a place is of it."""

import asyncio
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING

from watchword.domain.actors import WritePrecondition
from watchword.domain.backups import Backup, Choice, Restored, RestorePreview
from watchword.domain.ports import Clock, Store
from watchword.domain.store_urls import SchemaVersions, SqliteUrl, StoreUrl

if TYPE_CHECKING:
    from watchword.stores.sqlite.keys import Sealed
    from watchword.stores.transfer import Progress

Observe = Callable[[str, float], None]
Prove = Callable[["Sealed"], None]
"""Raises unless our master key opens these seals."""


def ignore(operation: str, seconds: float) -> None:
    """An observer that notes nothing."""


def prepare(place: StoreUrl, *, may_migrate: bool = True) -> SchemaVersions:
    """Make the store if need be and bring it to this version. Where it may not be migrated, a store of another version
    is refused: an older service may be running on it.
    """
    if isinstance(place, SqliteUrl):
        from watchword.stores import sqlite

        return SchemaVersions(*sqlite.prepare(place.path, may_migrate=may_migrate))
    from watchword.stores.postgres.migrations import migrate

    return SchemaVersions(*asyncio.run(migrate(place, may_migrate=may_migrate)))


def is_there(place: StoreUrl) -> bool:
    if isinstance(place, SqliteUrl):
        return place.path.exists()
    from watchword.stores.postgres.migrations import is_migrated

    return asyncio.run(is_migrated(place))


def is_sealed(place: StoreUrl) -> bool:
    """Whether the store holds secrets that a master key has sealed."""
    if isinstance(place, SqliteUrl):
        from watchword.stores import sqlite

        return sqlite.is_sealed(place.path)
    return True  # its key is never made by us


async def open_store(place: StoreUrl, clock: Clock, observe: Observe) -> Store:
    """The store, which `prepare` has brought to this version. A database's clock is its own."""
    if isinstance(place, SqliteUrl):
        from watchword.stores import sqlite

        return sqlite.open_store(place.path, clock, observe)
    from watchword.stores import postgres

    return await postgres.open_store(place, observe)


def check(place: StoreUrl) -> Iterator[tuple[str, str | None]]:
    """Each law with what is wrong, or None where it holds."""
    if isinstance(place, SqliteUrl):
        from watchword.stores.sqlite import check as file

        return file.check(place.path)
    from watchword.stores.postgres import check as database

    return database.check(place)


def back_up(place: StoreUrl, file: Path, now: int, *, force: bool, progress: "Progress") -> Backup:
    if isinstance(place, SqliteUrl):
        from watchword.stores.sqlite import backup

        return backup.back_up(place.path, file, now, force=force, progress=progress)
    from watchword.stores.postgres.backup import back_up as from_database

    return asyncio.run(from_database(place, file, force=force, progress=progress))


def preview(place: StoreUrl, file: Path, now: int, prove: Prove) -> RestorePreview:
    """What putting the file back means. Changes nothing."""
    if isinstance(place, SqliteUrl):
        from watchword.stores.sqlite import restore as of_file

        return of_file.preview(_where_it_lies(place.path), file, now, prove)
    from watchword.stores.postgres import restore as of_database

    return asyncio.run(of_database.preview(place, file, prove))


def examine(place: StoreUrl, file: Path, now: int, prove: Prove) -> None:
    """Raise unless the file can be put back."""
    from watchword.stores.sqlite import restore as of_file

    of_file.examine(_where_it_lies(place.path) if isinstance(place, SqliteUrl) else None, file, now, prove)


def restore(
    place: StoreUrl, file: Path, choice: Choice, precondition: WritePrecondition, now: int, prove: Prove
) -> Restored:
    """With no service running."""
    if isinstance(place, SqliteUrl):
        from watchword.stores.sqlite import restore as of_file

        return of_file.restore(_where_it_lies(place.path), file, choice, precondition, now, prove)
    from watchword.stores.postgres import restore as of_database

    return asyncio.run(of_database.restore(place, file, choice, precondition, prove))


def _where_it_lies(store: Path) -> Path:
    """Behind a link, the file itself: what replaces it must lie on its disk, and what is kept must be it."""
    return store.resolve() if store.is_symlink() else store
