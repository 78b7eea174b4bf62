"""The store: open it at a URL. The driver of the other database is not loaded."""

import asyncio
from contextlib import closing

from watchword.basics.times import Clock
from watchword.database.transaction import Observe
from watchword.database.urls import SchemaVersions, SqliteUrl, StoreUrl
from watchword.stores.joined import Store


def prepare(url: StoreUrl, *, may_migrate: bool = True) -> SchemaVersions:
    """Create the store if it is missing and migrate it. Raises for another schema version if it may not migrate: an
    older service may be running on the store.
    """
    if isinstance(url, SqliteUrl):
        from watchword.database.sqlite.connections import STORE_FILE

        return SchemaVersions(*STORE_FILE.prepare(url.path, may_migrate=may_migrate))
    from watchword.database.postgres.maintenance import migrate

    return SchemaVersions(*asyncio.run(migrate(url, may_migrate=may_migrate)))


def exists(url: StoreUrl) -> bool:
    if isinstance(url, SqliteUrl):
        return url.path.exists()
    from watchword.database.postgres.maintenance import is_migrated

    return asyncio.run(is_migrated(url))


def is_sealed(url: StoreUrl) -> bool:
    """Whether the store holds secrets that a master key has sealed."""
    if isinstance(url, SqliteUrl):
        from watchword.database.sqlite.connections import connect

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
