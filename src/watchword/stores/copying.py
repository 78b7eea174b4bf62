"""`db copy`: everything of one store into an empty one, of whichever kind, with no service on either.

Neither is in use meanwhile: what was revoked in one during the copy would live on in the other. The target is filled
in one piece, and is proven to hold what the source holds before it counts.
"""

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import ExitStack, asynccontextmanager, closing

import apsw

from watchword.domain.backups import Carried, counted
from watchword.domain.errors import OperatorError
from watchword.domain.store_urls import PostgresUrl, SqliteUrl, StoreUrl
from watchword.stores.migrate import refuse_older
from watchword.stores.sqlite.backup import drafting, publish, refuse_target
from watchword.stores.sqlite.connections import DIALECT, connect, migrate, schema_version, store_fault
from watchword.stores.sqlite.keys import Sealed
from watchword.stores.sqlite.restore import alone
from watchword.stores.sqlite.transfer import SqliteSource, SqliteTarget
from watchword.stores.transfer import TABLES, Progress, Source, carry, rows_of

Prove = Callable[[Sealed], None]


def copy(source: StoreUrl, target: StoreUrl, now: int, prove: Prove, progress: Progress) -> Carried:
    return asyncio.run(_copy(source, target, now, prove, progress))


async def _copy(source: StoreUrl, target: StoreUrl, now: int, prove: Prove, progress: Progress) -> Carried:
    _refuse_itself(source, target)
    async with _opened(source) as found:
        prove(await _sealed(found))
        await _refuse_under_way(found)
        if isinstance(target, SqliteUrl):
            return await _to_file(found, target, now, progress)
        return await _to_database(found, target, progress)


def _refuse_itself(source: StoreUrl, target: StoreUrl) -> None:
    same = source == target
    if isinstance(source, SqliteUrl) and isinstance(target, SqliteUrl):
        same = source.path.resolve() == target.path.resolve()
    if same:
        raise OperatorError(f"--to must be another store than --from; both are {source}.")


@asynccontextmanager
async def _opened(place: StoreUrl) -> AsyncIterator[Source]:
    """The source, for us alone, at one moment."""
    if isinstance(place, PostgresUrl):
        from watchword.stores.postgres.connections import SNAPSHOT
        from watchword.stores.postgres.running import hold_alone
        from watchword.stores.postgres.transfer import PostgresSource
        from watchword.stores.postgres.whole import at_work, lock_tables, need_this_version

        async with at_work(place) as connection:
            await need_this_version(connection, place)
            await hold_alone(connection, place)
            await connection.execute(SNAPSHOT)
            await lock_tables(connection, place, "SHARE")
            yield PostgresSource(connection)
            return
    if not place.path.is_file():
        raise OperatorError(f"--from must be a store; there is none at {place}.")
    try:
        with closing(alone(place.path)) as file:
            refuse_older(place, schema_version(file), DIALECT)
            yield SqliteSource(file)
    except apsw.Error as error:
        raise OperatorError(f"The store {place} cannot be copied: {store_fault(error).message}") from error


async def _sealed(source: Source) -> Sealed:
    ((_, _, _, salt, *_),) = [row async for row in rows_of(source, "state")]
    keys = [(row[1], row[3]) async for row in rows_of(source, "keys")]
    return Sealed(salt, keys + [(row[1], row[3]) async for row in rows_of(source, "next_key")])


async def _refuse_under_way(source: Source) -> None:
    """Which instance of the target would go on with it cannot be known."""
    for row in [row async for row in rows_of(source, "operations")]:
        if row[10] is None:
            raise OperatorError(
                f"Operation {row[0]} in the search index is not over. Start the service, let it end or cancel it "
                "(watchword task list), and stop the service again."
            )


async def _refuse_full(target: Source, place: StoreUrl) -> None:
    found = counted({table.name: await target.count(table) for table in TABLES})
    if found:
        raise OperatorError(f"--to must be empty; {place} holds a store already ({found}). Name another.")


async def _to_file(source: Source, target: SqliteUrl, now: int, progress: Progress) -> Carried:
    file = target.path
    try:
        file.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    except OSError as error:
        raise OperatorError(f"--to must be in a folder that can be made; {file.parent}: {error.strerror}.") from None
    replaces = file.exists()

    def refuse() -> None:
        refuse_target(file, force=replaces, word="--to")

    with ExitStack() as held, drafting(file, "copy", refuse) as draft:
        if replaces:
            there = held.enter_context(closing(alone(file)))
            if schema_version(there):
                await _refuse_full(SqliteSource(there), target)
        with closing(connect(draft, busy_ms=2_000)) as made:
            migrate(made)
            carried = await carry(source, SqliteTarget(made), progress)
        publish(draft, file, now, "The copy", refuse)
        return carried


async def _to_database(source: Source, target: PostgresUrl, progress: Progress) -> Carried:
    from watchword.stores.postgres.migrations import fill_in, hold_migrations, make_schema
    from watchword.stores.postgres.migrations import schema_version as database_version
    from watchword.stores.postgres.restore import refuse_unsound_schema
    from watchword.stores.postgres.running import hold_alone
    from watchword.stores.postgres.transfer import PostgresTarget
    from watchword.stores.postgres.whole import at_work, commit, lock_tables

    async with at_work(target) as connection:
        await hold_alone(connection, target)
        await connection.execute("BEGIN")
        await hold_migrations(connection, target.schema)
        await make_schema(connection, target.schema)
        await fill_in(connection, target.schema, await database_version(connection, target.schema))
        await lock_tables(connection, target, "ACCESS EXCLUSIVE")
        filled = PostgresTarget(connection)
        await _refuse_full(filled, target)
        carried = await carry(source, filled, progress)
        await refuse_unsound_schema(connection, "The copy")
        await commit(connection, target)
        return carried
