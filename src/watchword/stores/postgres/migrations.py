"""Bringing the schema to this version, under a lock: of ten instances that start at once one does it, all go on."""

import asyncio
import time
from typing import Any

from asyncpg import exceptions as pg

from watchword.domain.errors import OperatorError
from watchword.domain.store_urls import PostgresUrl
from watchword.stores.migrate import MigrationError, latest, migrations, refuse_older
from watchword.stores.postgres.connections import DRIVER_ERRORS, Connection, advice, connect, lacks_right, quoted
from watchword.stores.postgres.running import await_end

DIALECT = "postgres"
PATIENCE = 10.0
MIGRATION_SECONDS = 3_600

_LOCK = "SELECT pg_advisory_xact_lock(pg_catalog.hashtextextended('watchword/migrate/' || $1, 0::bigint))"
_MARK = "CREATE TABLE migrations (number integer PRIMARY KEY, name text NOT NULL, applied_at bigint NOT NULL)"
_TABLES = """
SELECT coalesce(array_agg(c.relname::text), '{}') FROM pg_class AS c JOIN pg_namespace AS n ON n.oid = c.relnamespace
WHERE n.nspname = $1 AND c.relkind IN ('r', 'p', 'v', 'm')"""

# Who owns a table has these of it, and so has a superuser.
_LACKING = """
SELECT coalesce(array_agg(c.relname::text ORDER BY c.relname), '{}')
FROM pg_class AS c JOIN pg_namespace AS n ON n.oid = c.relnamespace
WHERE n.nspname = $1 AND c.relkind = 'r' AND NOT (
    has_schema_privilege(n.oid, 'USAGE')
    AND has_table_privilege(c.oid, 'SELECT') AND has_table_privilege(c.oid, 'INSERT')
    AND has_table_privilege(c.oid, 'UPDATE') AND has_table_privilege(c.oid, 'DELETE'))"""

_OPEN = """
SELECT CASE WHEN granted.grantee = 0 THEN 'PUBLIC' ELSE quote_ident(pg_get_userbyid(granted.grantee)) END
FROM pg_namespace AS n, aclexplode(n.nspacl) AS granted
WHERE n.nspname = $1 AND granted.privilege_type = 'CREATE' AND granted.grantee <> n.nspowner
    AND (granted.grantee = 0 OR granted.grantee <> (SELECT oid FROM pg_roles WHERE rolname = current_user))
LIMIT 1"""


async def open_patiently(place: PostgresUrl, patience: float = PATIENCE) -> Connection:
    """A connection at start: a server that is itself just starting is waited for. Raises a sentence."""
    deadline = time.monotonic() + patience
    while True:
        try:
            return await connect(place, seconds=max(place.timeout, 2.0))
        except (pg.CannotConnectNowError, ConnectionRefusedError) as error:
            if time.monotonic() > deadline:
                raise advice(place, error) from error
            await asyncio.sleep(0.2)
        except DRIVER_ERRORS as error:
            raise advice(place, error) from error


async def schema_version(connection: Connection, schema: str) -> int:
    """The number of the last migration applied; 0 for none. Raises when the schema is not for us."""
    tables: list[str] = await connection.fetchval(_TABLES, schema)
    if "migrations" not in tables:
        if tables:
            raise MigrationError(
                f"The schema {schema} holds tables of another program. Name another with WATCHWORD_DATABASE_SCHEMA."
            )
        return 0
    version: Any = await connection.fetchval(f"SELECT max(number) FROM {quoted(schema)}.migrations")  # noqa: S608
    if version is None or "tokens" not in tables:
        raise MigrationError(
            f"The schema {schema} holds tables of another program. Name another with WATCHWORD_DATABASE_SCHEMA."
        )
    if version > latest(DIALECT):
        raise MigrationError(
            f"The store is of schema version {version}; this Watchword knows versions up to {latest(DIALECT)}. "
            "Start it with the newer Watchword that wrote it, or restore a backup made before."
        )
    return int(version)


async def migrate(place: PostgresUrl, patience: float = PATIENCE, *, may_migrate: bool = True) -> tuple[int, int]:
    """Make the schema if need be and apply what is missing, whole or not at all; returns the version before and
    after. Where it may not be migrated, refuse one of another version.
    """
    connection = await open_patiently(place, patience)
    try:
        await await_end(connection, place)
        await _refuse_open(connection, place.schema)
        found = await schema_version(connection, place.schema)
        if not may_migrate:
            refuse_older(place, found, DIALECT)
        if found == latest(DIALECT):
            await _need_rights(connection, place)
            return latest(DIALECT), latest(DIALECT)
        return await apply(connection, place.schema)
    except OperatorError:
        raise
    except DRIVER_ERRORS as error:
        raise advice(place, error) from error
    finally:
        connection.terminate()


async def _refuse_open(connection: Connection, schema: str) -> None:
    """What strangers put into our schema would be called in place of what we mean, with our rights."""
    other = await connection.fetchval(_OPEN, schema)
    if other is not None:
        raise OperatorError(
            f"Others may create objects in the schema {schema}. Close it: REVOKE CREATE ON SCHEMA {schema} FROM "
            f"{other}; or name another with WATCHWORD_DATABASE_SCHEMA."
        )


async def lacking(connection: Connection, schema: str) -> list[str]:
    """The tables of the store that we may not read and change."""
    tables: list[str] = await connection.fetchval(_LACKING, schema)
    return tables


async def _need_rights(connection: Connection, place: PostgresUrl) -> None:
    if await lacking(connection, place.schema):
        raise OperatorError(lacks_right(place))


async def is_migrated(place: PostgresUrl) -> bool:
    connection = await open_patiently(place, 0)
    try:
        return await schema_version(connection, place.schema) > 0
    except DRIVER_ERRORS as error:
        raise advice(place, error) from error
    finally:
        connection.terminate()


async def apply(connection: Connection, schema: str) -> tuple[int, int]:
    async with connection.transaction():
        await connection.execute(f"SET LOCAL statement_timeout = {MIGRATION_SECONDS * 1000:d}")
        await connection.execute("SET LOCAL idle_in_transaction_session_timeout = 0")
        await hold_migrations(connection, schema)
        await make_schema(connection, schema)
        before = await schema_version(connection, schema)
        await fill_in(connection, schema, before)
    return before, latest(DIALECT)


async def hold_migrations(connection: Connection, schema: str) -> None:
    """Until the transaction that is open ends nobody else changes the schema."""
    await connection.execute(_LOCK, schema)


async def make_schema(connection: Connection, schema: str) -> None:
    if not await connection.fetchval("SELECT EXISTS (SELECT 1 FROM pg_namespace WHERE nspname = $1)", schema):
        await connection.execute(f"CREATE SCHEMA {quoted(schema)}")


async def fill_in(connection: Connection, schema: str, before: int) -> None:
    """Apply the migrations after this one, in the transaction that is open."""
    await connection.execute(f"SET LOCAL search_path = {quoted(schema)}")
    if before == 0:
        await connection.execute(_MARK)
    for migration in migrations(DIALECT):
        if migration.number > before:
            await connection.execute(migration.sql)
            await connection.execute(
                "INSERT INTO migrations VALUES ($1, $2, now_ms())", migration.number, migration.name
            )
