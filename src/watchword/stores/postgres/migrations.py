"""Migrate the schema under a lock: of several instances that start together, one migrates and the others wait."""

import asyncio
import time
from typing import Any

from asyncpg import exceptions as pg

from watchword.domain.errors import OperatorError
from watchword.domain.store_urls import PostgresUrl, require_version
from watchword.stores.migrations import latest, migrations
from watchword.stores.postgres.connections import DRIVER_ERRORS, Connection, advice, connect, lacks_right, quoted
from watchword.stores.postgres.maintenance import wait_until_unlocked

DIALECT = "postgres"
PATIENCE = 10.0
MIGRATION_SECONDS = 3_600

_LOCK = "SELECT pg_advisory_xact_lock(pg_catalog.hashtextextended('watchword/migrate/' || $1, 0::bigint))"
_CREATE = "CREATE TABLE migrations (number integer PRIMARY KEY, name text NOT NULL, applied_at bigint NOT NULL)"
_TABLES = """
SELECT coalesce(array_agg(c.relname::text), '{}') FROM pg_class AS c JOIN pg_namespace AS n ON n.oid = c.relnamespace
WHERE n.nspname = $1 AND c.relkind IN ('r', 'p', 'v', 'm')"""

# The owner of a table and a superuser have these rights.
_MISSING_RIGHTS = """
SELECT coalesce(array_agg(c.relname::text ORDER BY c.relname), '{}')
FROM pg_class AS c JOIN pg_namespace AS n ON n.oid = c.relnamespace
WHERE n.nspname = $1 AND c.relkind = 'r' AND NOT (
    has_schema_privilege(n.oid, 'USAGE')
    AND has_table_privilege(c.oid, 'SELECT') AND has_table_privilege(c.oid, 'INSERT')
    AND has_table_privilege(c.oid, 'UPDATE') AND has_table_privilege(c.oid, 'DELETE'))"""

_OTHER_CREATORS = """
SELECT CASE WHEN granted.grantee = 0 THEN 'PUBLIC' ELSE quote_ident(pg_get_userbyid(granted.grantee)) END
FROM pg_namespace AS n, aclexplode(n.nspacl) AS granted
WHERE n.nspname = $1 AND granted.privilege_type = 'CREATE' AND granted.grantee <> n.nspowner
    AND (granted.grantee = 0 OR granted.grantee <> (SELECT oid FROM pg_roles WHERE rolname = current_user))
LIMIT 1"""


async def open_patiently(url: PostgresUrl, patience: float = PATIENCE) -> Connection:
    """A connection at start. Waits for a database server that is starting too."""
    deadline = time.monotonic() + patience
    while True:
        try:
            return await connect(url, seconds=max(url.timeout, 2.0))
        except (pg.CannotConnectNowError, ConnectionRefusedError) as error:
            if time.monotonic() > deadline:
                raise advice(url, error) from error
            await asyncio.sleep(0.2)
        except DRIVER_ERRORS as error:
            raise advice(url, error) from error


async def schema_version(connection: Connection, schema: str) -> int:
    """The schema version; 0 for an empty schema. Raises if the tables are of another program or a newer Watchword."""
    tables: list[str] = await connection.fetchval(_TABLES, schema)
    if not tables:
        return 0
    version: Any = None
    if {"migrations", "tokens"} <= set(tables):
        version = await connection.fetchval(f"SELECT max(number) FROM {quoted(schema)}.migrations")
    if version is None:
        raise OperatorError(
            f"The schema {schema} holds tables of another program. Name another with WATCHWORD_DATABASE_SCHEMA."
        )
    if version > latest(DIALECT):
        raise OperatorError(
            f"The store has schema version {version}; this Watchword supports versions up to {latest(DIALECT)}. "
            "Use the newer Watchword that wrote it, or restore an older backup."
        )
    return int(version)


async def require_latest(connection: Connection, url: PostgresUrl) -> None:
    version = await schema_version(connection, url.schema)
    if not version:
        raise OperatorError(f"There is no store at {url}, schema {url.schema}.")
    require_version(url, version, latest(DIALECT))


async def migrate(url: PostgresUrl, patience: float = PATIENCE, *, may_migrate: bool = True) -> tuple[int, int]:
    """Create the schema if it is missing and apply the missing migrations in one transaction; return the version before
    and after. Raises for another version if it may not migrate.
    """
    connection = await open_patiently(url, patience)
    try:
        await wait_until_unlocked(connection, url)
        await _require_closed(connection, url.schema)
        before = await schema_version(connection, url.schema)
        if not may_migrate:
            require_version(url, before, latest(DIALECT))
        if before < latest(DIALECT):
            before = await _migrate(connection, url.schema)
        elif await missing_rights(connection, url.schema):
            raise OperatorError(lacks_right(url))
        return before, latest(DIALECT)
    except DRIVER_ERRORS as error:
        raise advice(url, error) from error
    finally:
        connection.terminate()


async def _require_closed(connection: Connection, schema: str) -> None:
    """Functions that another role puts into our schema would run with our rights."""
    other = await connection.fetchval(_OTHER_CREATORS, schema)
    if other is not None:
        raise OperatorError(
            f"Other roles may create objects in the schema {schema}. Run: REVOKE CREATE ON SCHEMA {schema} FROM "
            f"{other}; or name another schema with WATCHWORD_DATABASE_SCHEMA."
        )


async def missing_rights(connection: Connection, schema: str) -> list[str]:
    """The tables of the store that our role may not read and change."""
    tables: list[str] = await connection.fetchval(_MISSING_RIGHTS, schema)
    return tables


async def is_migrated(url: PostgresUrl) -> bool:
    connection = await open_patiently(url, 0)
    try:
        return await schema_version(connection, url.schema) > 0
    except DRIVER_ERRORS as error:
        raise advice(url, error) from error
    finally:
        connection.terminate()


async def _migrate(connection: Connection, schema: str) -> int:
    async with connection.transaction():
        await connection.execute(f"SET LOCAL statement_timeout = {MIGRATION_SECONDS * 1000:d}")
        await connection.execute("SET LOCAL idle_in_transaction_session_timeout = 0")
        await lock_migrations(connection, schema)
        await create_schema(connection, schema)
        before = await schema_version(connection, schema)
        await apply_migrations(connection, schema, before)
    return before


async def lock_migrations(connection: Connection, schema: str) -> None:
    """Until the open transaction ends."""
    await connection.execute(_LOCK, schema)


async def create_schema(connection: Connection, schema: str) -> None:
    if not await connection.fetchval("SELECT EXISTS (SELECT 1 FROM pg_namespace WHERE nspname = $1)", schema):
        await connection.execute(f"CREATE SCHEMA {quoted(schema)}")


async def apply_migrations(connection: Connection, schema: str, before: int) -> None:
    """Apply the migrations after number `before` in the open transaction."""
    await connection.execute(f"SET LOCAL search_path = {quoted(schema)}")
    if before == 0:
        await connection.execute(_CREATE)
    for migration in migrations(DIALECT):
        if migration.number > before:
            await connection.execute(migration.sql)
            await connection.execute(
                "INSERT INTO migrations VALUES ($1, $2, now_ms())", migration.number, migration.name
            )
