"""Connections and locks for work on a whole store: migrate, back up, restore, copy, check.

Each running instance holds a shared advisory lock on the connections by which it verifies tokens. A restore or a copy
takes the lock exclusively, so no instance verifies meanwhile: a starting instance waits, and a running one that
reconnects gets no connection for verification. PostgreSQL releases the lock with its session.
"""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from asyncpg import exceptions as pg

from watchword.domain.errors import OperatorError
from watchword.domain.store_urls import PostgresUrl
from watchword.stores.postgres.connections import DRIVER_ERRORS, Connection, advice, connect, is_lost

CONNECT_SECONDS = 10.0
WAIT_SECONDS = 30

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


@asynccontextmanager
async def maintenance_connection(url: PostgresUrl) -> AsyncIterator[Connection]:
    """A connection without a statement timeout. Errors of the driver become sentences for the operator."""
    try:
        connection = await connect(url, _LONG_WORK, seconds=max(url.timeout, CONNECT_SECONDS))
    except DRIVER_ERRORS as error:
        raise advice(url, error) from error
    try:
        yield connection
    except DRIVER_ERRORS as error:
        from_file = isinstance(error, OSError) and not isinstance(error, ConnectionError | TimeoutError)
        if from_file and not connection.is_closed():
            raise
        raise advice(url, error) from error
    finally:
        connection.terminate()


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
