"""The store: open it at a URL. The driver of the other database is not loaded."""

import asyncio
import fcntl
import os
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager, closing

from watchword.domain.errors import OperatorError
from watchword.domain.ports import Clock, Store
from watchword.domain.stores import SchemaVersions, SqliteUrl, StoreUrl
from watchword.files import open_lock
from watchword.stores.sql.transaction import Observe

LOCK_SECONDS = 5.0
"""How long an import waits for another one."""


def prepare(url: StoreUrl, *, may_migrate: bool = True) -> SchemaVersions:
    """Create the store if it is missing and migrate it. Raises for another schema version if it may not migrate: an
    older service may be running on the store.
    """
    if isinstance(url, SqliteUrl):
        from watchword.stores.sqlite.connections import STORE_FILE

        return SchemaVersions(*STORE_FILE.prepare(url.path, may_migrate=may_migrate))
    from watchword.stores.postgres.maintenance import migrate

    return SchemaVersions(*asyncio.run(migrate(url, may_migrate=may_migrate)))


def exists(url: StoreUrl) -> bool:
    if isinstance(url, SqliteUrl):
        return url.path.exists()
    from watchword.stores.postgres.maintenance import is_migrated

    return asyncio.run(is_migrated(url))


def is_sealed(url: StoreUrl) -> bool:
    """Whether the store holds secrets that a master key has sealed."""
    if isinstance(url, SqliteUrl):
        from watchword.stores.sqlite.connections import connect

        with closing(connect(url.path, read_only=True)) as connection:
            return bool(connection.execute("SELECT sealed_salt IS NOT NULL FROM state").get)
    return True  # the operator always provides its master key


async def open_store(url: StoreUrl, clock: Clock, observe: Observe) -> Store:
    """`prepare` must have migrated the store. A PostgreSQL store uses the database's clock."""
    if isinstance(url, SqliteUrl):
        from watchword.stores import sqlite

        return sqlite.open_store(url.path, clock, observe)
    from watchword.stores import postgres

    return await postgres.open_store(url, observe)


@asynccontextmanager
async def import_lock(url: StoreUrl) -> AsyncIterator[None]:
    """One import at a time, so that none writes what it read before another one. The lock ends with the process."""
    if isinstance(url, SqliteUrl):
        descriptor = open_lock(url.path.with_name(url.path.name + ".import-lock"))

        async def lock_file() -> bool:
            try:
                fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                return False
            return True

        try:
            await _until_locked(lock_file)
            yield
        finally:
            os.close(descriptor)
    else:
        from watchword.stores.postgres.maintenance import lock_imports, maintenance_connection

        async with maintenance_connection(url) as connection:
            await _until_locked(lambda: lock_imports(connection, url.schema))
            yield


async def _until_locked(is_locked: Callable[[], Awaitable[bool]]) -> None:
    deadline = time.monotonic() + LOCK_SECONDS
    while not await is_locked():
        if time.monotonic() >= deadline:
            raise OperatorError("Another import into this store is running. Try again when it has ended.")
        await asyncio.sleep(0.2)
