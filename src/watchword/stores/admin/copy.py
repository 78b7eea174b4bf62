"""`db copy`: copy a store into an empty one of either database, with the service stopped.

Neither store is used meanwhile: a token revoked in the source would stay valid in the copy. The target is filled in one
transaction and verified to hold the same rows before it is committed.
"""

import asyncio
from collections.abc import AsyncIterator
from contextlib import ExitStack, asynccontextmanager, closing

import apsw

from watchword.domain.backups import CheckMasterKey, CopyResult, SealedSecrets, describe_rows
from watchword.domain.errors import OperatorError
from watchword.domain.store_urls import PostgresUrl, SqliteUrl, StoreUrl, require_version
from watchword.files import publish
from watchword.stores.admin.backup import draft_file, finish_draft, require_target
from watchword.stores.admin.check import POSTGRES_RULES, require_sound, verdicts_on
from watchword.stores.admin.restore import open_exclusively
from watchword.stores.admin.tables import (
    PostgresSource,
    PostgresTarget,
    Progress,
    Source,
    SqliteSource,
    SqliteTarget,
    copy_tables,
    count_rows,
    fetch,
    lock_tables,
)
from watchword.stores.postgres.connections import SNAPSHOT
from watchword.stores.postgres.maintenance import commit, lock_exclusively, maintenance_connection
from watchword.stores.postgres.migrations import (
    apply_migrations,
    create_schema,
    lock_migrations,
    require_latest,
    schema_version,
)
from watchword.stores.sqlite.connections import STORE_FILE, connect, store_fault


def copy(
    source: StoreUrl, target: StoreUrl, now: int, check_master_key: CheckMasterKey, progress: Progress
) -> CopyResult:
    return asyncio.run(_copy(source, target, now, check_master_key, progress))


async def _copy(
    source: StoreUrl, target: StoreUrl, now: int, check_master_key: CheckMasterKey, progress: Progress
) -> CopyResult:
    _require_different(source, target)
    async with _opened(source) as opened:
        check_master_key(await _sealed(opened))
        await _require_no_running_operation(opened)
        if isinstance(target, SqliteUrl):
            return await _copy_to_file(opened, target, now, progress)
        return await _copy_to_schema(opened, target, progress)


def _require_different(source: StoreUrl, target: StoreUrl) -> None:
    same = source == target
    if isinstance(source, SqliteUrl) and isinstance(target, SqliteUrl):
        same = source.path.resolve() == target.path.resolve()
    if same:
        raise OperatorError(f"--to must be another store than --from; both are {source}.")


@asynccontextmanager
async def _opened(url: StoreUrl) -> AsyncIterator[Source]:
    """The source, locked, in one read transaction."""
    if isinstance(url, PostgresUrl):
        async with maintenance_connection(url) as connection:
            await require_latest(connection, url)
            await lock_exclusively(connection, url)
            await connection.execute(SNAPSHOT)
            await lock_tables(connection, url, "SHARE")
            yield PostgresSource(connection)
            return
    if not url.path.is_file():
        raise OperatorError(f"--from must be a store; there is none at {url}.")
    try:
        with closing(open_exclusively(url.path)) as file:
            require_version(url, STORE_FILE.version(file), STORE_FILE.latest)
            yield SqliteSource(file)
    except apsw.Error as error:
        raise OperatorError(f"The store {url} cannot be copied: {store_fault(error).message}") from error


async def _sealed(source: Source) -> SealedSecrets:
    ((salt,),) = await fetch(source, "SELECT sealed_salt FROM state")
    keys = await fetch(
        source, "SELECT kid, sealed_private FROM keys UNION ALL SELECT kid, sealed_private FROM next_key"
    )
    return SealedSecrets(salt, [(kid, private) for kid, private in keys])


async def _require_no_running_operation(source: Source) -> None:
    """It is unknown which instance of the target would continue the operation."""
    for (number,) in await fetch(source, "SELECT number FROM operations WHERE finished_at IS NULL ORDER BY number"):
        raise OperatorError(
            f"Operation {number} in the search index has not finished. Start the service, wait for it or cancel it "
            "(watchword task list), and stop the service again."
        )


async def _require_empty(target: Source, url: StoreUrl) -> None:
    found = describe_rows(await count_rows(target))
    if found:
        raise OperatorError(f"--to must be empty; {url} holds a store already ({found}). Name another.")


async def _copy_to_file(source: Source, target: SqliteUrl, now: int, progress: Progress) -> CopyResult:
    file = target.path
    try:
        file.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    except OSError as error:
        raise OperatorError(f"--to must be in a folder that can be created; {file.parent}: {error.strerror}.") from None
    replaces = file.exists()

    def check_target() -> None:
        require_target(file, force=replaces, word="--to")

    with ExitStack() as locks, draft_file(file, "copy", check_target) as draft:
        if replaces:
            existing = locks.enter_context(closing(open_exclusively(file)))
            if STORE_FILE.version(existing):
                await _require_empty(SqliteSource(existing), target)
        with closing(connect(draft)) as connection:
            STORE_FILE.migrate(connection)
            copied = await copy_tables(source, SqliteTarget(connection), progress)
        await finish_draft(draft, now, "The copy")
        check_target()
        publish(draft, file)
        return copied


async def _copy_to_schema(source: Source, target: PostgresUrl, progress: Progress) -> CopyResult:
    async with maintenance_connection(target) as connection:
        await lock_exclusively(connection, target)
        await connection.execute("BEGIN")
        await lock_migrations(connection, target.schema)
        await create_schema(connection, target.schema)
        await apply_migrations(connection, target.schema, await schema_version(connection, target.schema))
        await lock_tables(connection, target, "ACCESS EXCLUSIVE")
        filled = PostgresTarget(connection)
        await _require_empty(filled, target)
        copied = await copy_tables(source, filled, progress)
        await require_sound(verdicts_on(filled, POSTGRES_RULES), "The copy")
        await commit(connection, target)
        return copied
