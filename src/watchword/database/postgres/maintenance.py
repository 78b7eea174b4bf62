"""Work on a whole store: its schema version and migrations, and the locks against running instances.

Migrations run under a lock: of several instances that start together, one migrates and the others wait.

Each running instance holds a shared advisory lock on the connections by which it verifies tokens. A restore or a copy
takes the lock exclusively, so no instance verifies meanwhile: a starting instance waits, and a running one that
reconnects gets no connection for verification. PostgreSQL releases the lock with its session.
"""

import asyncio
import time
from collections.abc import AsyncIterator
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from typing import Any

from asyncpg import exceptions as pg

from watchword.basics.errors import OperatorError
from watchword.database.migrations import latest, migrations
from watchword.database.postgres.connections import DEFAULT_SETTINGS, LIST_STANDBYS, Connection, SessionSettings
from watchword.database.postgres.dialect import quoted
from watchword.database.postgres.errors import DRIVER_ERRORS, advice, is_lost, lacks_right
from watchword.database.postgres.hosts import connect
from watchword.database.urls import STANDBYS_ADVICE, PostgresUrl, objection_to_standbys, require_version

WAIT_SECONDS = 30
PATIENCE = 10.0
MIGRATION_SECONDS = 3_600
LATEST = latest("postgres")

_LONG_WORK = {"statement_timeout": "0", "lock_timeout": "10000", "idle_in_transaction_session_timeout": "3600000"}
_KEY = "pg_catalog.hashtextextended('watchword/running/' || $1, 0::bigint)"
_SHARE = f"SELECT pg_try_advisory_lock_shared({_KEY})"
_EXCLUDE = f"SELECT pg_try_advisory_lock({_KEY})"
_WAIT = f"SELECT pg_advisory_xact_lock_shared({_KEY})"
_HOLDERS = f"""
SELECT count(*), string_agg(DISTINCT coalesce(host(a.client_addr), 'the database machine'), ', ')
FROM pg_locks AS l LEFT JOIN pg_stat_activity AS a USING (pid)
WHERE l.locktype = 'advisory' AND l.granted AND l.objsubid = 1 AND l.pid <> pg_backend_pid()
    AND l.database = (SELECT oid FROM pg_database WHERE datname = current_database())
    AND (l.classid::bigint << 32 | l.objid::bigint) = {_KEY}"""
_LOCK_MIGRATIONS = "SELECT pg_advisory_xact_lock(pg_catalog.hashtextextended('watchword/migrate/' || $1, 0::bigint))"
_LOCK_IMPORTS = "SELECT pg_try_advisory_lock(pg_catalog.hashtextextended('watchword/import/' || $1, 0::bigint))"
_CREATE = "CREATE TABLE migrations (number integer PRIMARY KEY, name text NOT NULL, applied_at bigint NOT NULL)"
_TABLES = """
SELECT coalesce(array_agg(c.relname::text), '{}') FROM pg_class AS c JOIN pg_namespace AS n ON n.oid = c.relnamespace
WHERE n.nspname = $1 AND c.relkind IN ('r', 'p', 'v', 'm')"""

# Whether there is a table that our role may not read or change. Its owner and a superuser may.
LACKS_RIGHTS = """
SELECT EXISTS (SELECT 1 FROM pg_class AS c JOIN pg_namespace AS n ON n.oid = c.relnamespace
WHERE n.nspname = $1 AND c.relkind = 'r' AND NOT (
    has_schema_privilege(n.oid, 'USAGE')
    AND has_table_privilege(c.oid, 'SELECT') AND has_table_privilege(c.oid, 'INSERT')
    AND has_table_privilege(c.oid, 'UPDATE') AND has_table_privilege(c.oid, 'DELETE')))"""

_OTHER_CREATORS = """
SELECT CASE WHEN granted.grantee = 0 THEN 'PUBLIC' ELSE quote_ident(pg_get_userbyid(granted.grantee)) END
FROM pg_namespace AS n, aclexplode(n.nspacl) AS granted
WHERE n.nspname = $1 AND granted.privilege_type = 'CREATE' AND granted.grantee <> n.nspowner
    AND (granted.grantee = 0 OR granted.grantee <> (SELECT oid FROM pg_roles WHERE rolname = current_user))
LIMIT 1"""


@asynccontextmanager
async def operator_connection(
    url: PostgresUrl, session: SessionSettings = DEFAULT_SETTINGS, *, seconds: float = 2.0, patience: float = 0.0
) -> AsyncIterator[Connection]:
    """A connection for a command: errors of the driver become sentences for the operator. Waits `patience` seconds for
    a database server that is starting.
    """
    connection: Connection | None = None
    deadline = time.monotonic() + patience
    try:
        while connection is None:
            try:
                connection = await connect(url, session, seconds=max(url.timeout, seconds))
            except (pg.CannotConnectNowError, ConnectionRefusedError):
                if time.monotonic() >= deadline:
                    raise
                await asyncio.sleep(0.2)
        yield connection
    except DRIVER_ERRORS as error:
        from_file = isinstance(error, OSError) and not isinstance(error, ConnectionError | TimeoutError)
        if connection is not None and from_file and not connection.is_closed():
            raise
        raise advice(url, error) from error
    finally:
        if connection is not None:
            connection.terminate()


def maintenance_connection(url: PostgresUrl) -> AbstractAsyncContextManager[Connection]:
    """A connection without a statement timeout."""
    return operator_connection(url, _LONG_WORK, seconds=10.0)


async def lock_as_running(connection: Connection, url: PostgresUrl) -> None:
    if not await connection.fetchval(_SHARE, url.schema):
        raise OperatorError("The store is being restored or copied.")


async def wait_until_unlocked(connection: Connection, url: PostgresUrl) -> None:
    try:
        async with connection.transaction():
            await connection.execute(f"SET LOCAL statement_timeout = {WAIT_SECONDS * 1000:d}")
            await connection.execute(_WAIT, url.schema)
    except pg.QueryCanceledError:
        raise OperatorError(
            f"The store at {url}, schema {url.schema}, is being restored or copied. Start again when that is done."
        ) from None


async def lock_exclusively(connection: Connection, url: PostgresUrl) -> None:
    if await connection.fetchval(_EXCLUDE, url.schema):
        return
    row = await connection.fetchrow(_HOLDERS, url.schema)
    sessions, addresses = row if row is not None else (0, None)
    seen = f": {sessions} connections from {addresses}" if sessions else ""
    raise OperatorError(
        f"A service, a restore or a copy uses {url} (schema {url.schema}{seen}). Stop every instance, then try again."
    )


async def commit(connection: Connection, url: PostgresUrl) -> None:
    try:
        await connection.execute("COMMIT")
    except DRIVER_ERRORS as error:
        if is_lost(error):
            raise OperatorError(
                f"PostgreSQL at {url.where} closed the connection before it confirmed the commit. "
                "See whether this was done: watchword db check"
            ) from error
        raise


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
    if version > LATEST:
        raise OperatorError(
            f"The store has schema version {version}; this Watchword supports versions up to {LATEST}. "
            "Use the newer Watchword that wrote it, or restore an older backup."
        )
    return int(version)


async def require_latest(connection: Connection, url: PostgresUrl) -> None:
    version = await schema_version(connection, url.schema)
    if not version:
        raise OperatorError(f"There is no store at {url}, schema {url.schema}.")
    require_version(url, version, LATEST)


async def migrate(url: PostgresUrl, *, may_migrate: bool = True) -> tuple[int, int]:
    """Create the schema if it is missing and apply the missing migrations in one transaction; return the version before
    and after. Raises for another version if it may not migrate.
    """
    async with operator_connection(url, patience=PATIENCE) as connection:
        await wait_until_unlocked(connection, url)
        await _require_closed(connection, url.schema)
        if url.reads_confirmed and not url.patroni:  # it changes the list as standbys come and go
            await _require_confirming_standbys(connection)
        before = await schema_version(connection, url.schema)
        if not may_migrate:
            require_version(url, before, LATEST)
        if before < LATEST:
            async with connection.transaction():
                await connection.execute(f"SET LOCAL statement_timeout = {MIGRATION_SECONDS * 1000:d}")
                await connection.execute("SET LOCAL idle_in_transaction_session_timeout = 0")
                before = await migrate_schema(connection, url.schema)
        elif await connection.fetchval(LACKS_RIGHTS, url.schema):
            raise OperatorError(lacks_right(url))
        return before, LATEST


async def _require_closed(connection: Connection, schema: str) -> None:
    """Functions that another role puts into our schema would run with our rights."""
    other = await connection.fetchval(_OTHER_CREATORS, schema)
    if other is not None:
        raise OperatorError(
            f"Other roles may create objects in the schema {schema}. Run: REVOKE CREATE ON SCHEMA {schema} FROM "
            f"{other}; or name another schema with WATCHWORD_DATABASE_SCHEMA."
        )


async def _require_confirming_standbys(connection: Connection) -> None:
    names = await connection.fetchval(LIST_STANDBYS)
    problem = objection_to_standbys(names)
    if problem is not None:
        raise OperatorError(f"WATCHWORD_DATABASE_READS is confirmed, but {problem}. {STANDBYS_ADVICE}")


async def is_migrated(url: PostgresUrl) -> bool:
    async with operator_connection(url) as connection:
        return await schema_version(connection, url.schema) > 0


async def lock_migrations(connection: Connection, schema: str) -> None:
    """Until the open transaction ends."""
    await connection.execute(_LOCK_MIGRATIONS, schema)


async def lock_imports(connection: Connection, schema: str) -> bool:
    """Whether we have the lock now, until the connection ends."""
    return bool(await connection.fetchval(_LOCK_IMPORTS, schema))


async def migrate_schema(connection: Connection, schema: str) -> int:
    """Create the schema if it is missing and apply the missing migrations, in the open transaction. Returns the version
    before.
    """
    await lock_migrations(connection, schema)
    if not await connection.fetchval("SELECT EXISTS (SELECT 1 FROM pg_namespace WHERE nspname = $1)", schema):
        await connection.execute(f"CREATE SCHEMA {quoted(schema)}")
    before = await schema_version(connection, schema)
    await connection.execute(f"SET LOCAL search_path = {quoted(schema)}")
    if before == 0:
        await connection.execute(_CREATE)
    for migration in migrations("postgres"):
        if migration.number > before:
            await connection.execute(migration.sql)
            await connection.execute(
                "INSERT INTO migrations VALUES ($1, $2, now_ms())", migration.number, migration.name
            )
    return before
