"""A store as a whole: connections for work that takes as long as it takes, and what such work holds meanwhile."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from asyncpg import exceptions as pg

from watchword.domain.errors import OperatorError
from watchword.domain.store_urls import PostgresUrl
from watchword.stores.migrate import refuse_older
from watchword.stores.postgres.connections import DRIVER_ERRORS, Connection, Session, advice, connect, is_lost
from watchword.stores.postgres.migrations import DIALECT, schema_version
from watchword.stores.transfer import TABLES

CONNECT_SECONDS = 10.0
_LOCKED = ", ".join([*(table.name for table in TABLES), "sessions", "token_totals", "probes"])

LONG_WORK = Session(
    (
        ("statement_timeout", "0"),
        ("lock_timeout", "10000"),
        ("idle_in_transaction_session_timeout", "3600000"),
    )
)


@asynccontextmanager
async def at_work(place: PostgresUrl) -> AsyncIterator[Connection]:
    """A connection of its own; what the driver says on it becomes a sentence. What is not committed is undone."""
    try:
        connection = await connect(place, LONG_WORK, seconds=max(place.timeout, CONNECT_SECONDS))
    except DRIVER_ERRORS as error:
        raise advice(place, error) from error
    try:
        yield connection
    except DRIVER_ERRORS as error:
        ours = isinstance(error, OSError) and not isinstance(error, ConnectionError | TimeoutError)
        if ours and not connection.is_closed():
            raise  # of a file that is read or made meanwhile
        raise advice(place, error) from error
    finally:
        connection.terminate()


async def need_this_version(connection: Connection, place: PostgresUrl) -> None:
    version = await schema_version(connection, place.schema)
    if not version:
        raise OperatorError(f"There is no store at {place}, schema {place.schema}.")
    refuse_older(place, version, DIALECT)


async def lock_tables(connection: Connection, place: PostgresUrl, mode: str) -> None:
    """Until the transaction ends, against whoever is no running instance."""
    try:
        await connection.execute(f"LOCK TABLE {_LOCKED} IN {mode} MODE")
    except pg.LockNotAvailableError:
        raise OperatorError(
            f"Another session is at work on the store at {place}. Stop it first, then try again."
        ) from None


async def commit(connection: Connection, place: PostgresUrl) -> None:
    try:
        await connection.execute("COMMIT")
    except DRIVER_ERRORS as error:
        if is_lost(error):
            raise OperatorError(
                f"PostgreSQL at {place.where} went away before it said whether this was done. Look, with: "
                "watchword db check"
            ) from error
        raise
