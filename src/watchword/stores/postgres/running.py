"""Who runs on a store: each instance holds a lock of the database on the connections by which it verifies.

Whoever has the lock alone knows that no instance verifies meanwhile, and none begins to: an instance that starts waits,
and one that comes back gets no lane, so it answers nothing. The lock goes with its session, however that ends.
"""

from asyncpg import exceptions as pg

from watchword.domain.errors import OperatorError
from watchword.domain.store_urls import PostgresUrl
from watchword.stores.postgres.connections import Connection

_KEY = "pg_catalog.hashtextextended('watchword/running/' || $1, 0::bigint)"
_JOIN = f"SELECT pg_try_advisory_lock_shared({_KEY})"
_ALONE = f"SELECT pg_try_advisory_lock({_KEY})"
_AWAIT = f"SELECT pg_advisory_xact_lock_shared({_KEY})"
_HOLDERS = f"""
SELECT count(*), string_agg(DISTINCT coalesce(host(a.client_addr), 'its own machine'), ', ')
FROM pg_locks AS l LEFT JOIN pg_stat_activity AS a USING (pid)
WHERE l.locktype = 'advisory' AND l.granted AND l.objsubid = 1 AND l.pid <> pg_backend_pid()
    AND l.database = (SELECT oid FROM pg_database WHERE datname = current_database())
    AND (l.classid::bigint << 32 | l.objid::bigint) = {_KEY}"""  # noqa: S608


WAIT_SECONDS = 30


class ClosedForNow(OperatorError):
    """The store is being restored or copied."""


async def join(connection: Connection, place: PostgresUrl) -> None:
    """Count as running for as long as this connection lives."""
    if not await connection.fetchval(_JOIN, place.schema):
        raise ClosedForNow("The store is being restored or copied.")


async def await_end(connection: Connection, place: PostgresUrl) -> None:
    """Return when nobody restores or copies the store; raises when that takes long."""
    try:
        async with connection.transaction():
            await connection.execute(f"SET LOCAL statement_timeout = {WAIT_SECONDS * 1000:d}")
            await connection.execute(_AWAIT, place.schema)
    except pg.QueryCanceledError:
        raise ClosedForNow(
            f"The store at {place}, schema {place.schema}, is being restored or copied. Start again when that is over."
        ) from None


async def hold_alone(connection: Connection, place: PostgresUrl) -> None:
    """For as long as this connection lives no instance runs; raises when one does."""
    if await connection.fetchval(_ALONE, place.schema):
        return
    row = await connection.fetchrow(_HOLDERS, place.schema)
    sessions, addresses = row if row is not None else (0, None)
    seen = f": {sessions} connections from {addresses}" if sessions else ""
    raise OperatorError(
        f"A service, a restore or a copy is at work on {place} (schema {place.schema}{seen}). "
        "Stop every instance first, then try again."
    )
