"""`db restore` into PostgreSQL: put a backup in the store's place, in one transaction.

A copy of the file is made ready beside, as for the embedded store. Then, with no instance running, the schema that is
there gets another name, which is the way back; a new one takes its first, is filled, and is proven to be what the copy
is. Whatever fails before the commit leaves the old one in its place.
"""

import errno
import tempfile
from collections.abc import Callable
from contextlib import closing
from datetime import UTC, datetime
from pathlib import Path

import apsw

from watchword.domain.actors import WritePrecondition
from watchword.domain.backups import Choice, Contents, Restored, RestorePreview
from watchword.domain.errors import OperatorError
from watchword.domain.store_urls import PostgresUrl
from watchword.stores.postgres.check import laws
from watchword.stores.postgres.connections import NOW, SNAPSHOT, Connection, quoted
from watchword.stores.postgres.migrations import fill_in, hold_migrations, make_schema, schema_version
from watchword.stores.postgres.running import hold_alone
from watchword.stores.postgres.transfer import PostgresSource, PostgresTarget
from watchword.stores.postgres.whole import at_work, commit, lock_tables
from watchword.stores.sqlite.backup import make_single, refuse_unsound
from watchword.stores.sqlite.connections import open_unchanging, store_fault
from watchword.stores.sqlite.keys import Sealed
from watchword.stores.sqlite.restore import compare, copy_file, examine, examined, make_ready
from watchword.stores.sqlite.transfer import SqliteSource
from watchword.stores.transfer import BATCH, carry

LONGEST_NAME = 63

# What is compared with a backup, under the names that the comparison of files knows.
_HERE = {
    "tokens": ("id TEXT PRIMARY KEY", "expires_at", "revoked_at"),
    "actors": ("urn", "status"),
    "policies": ("urn", "name", "description", "state", "privileges", "users", "groups", "all_users"),
    "group_members": ("actor_urn", "group_urn"),
    "keys": ("kid",),
    "state": ("policy_version",),
}
_NUMBERS = {"events": "seq", "operations": "number"}


async def preview(place: PostgresUrl, file: Path, prove: Callable[[Sealed], None]) -> RestorePreview:
    """What putting the file back means, once everything that must hold of it does. Changes nothing."""
    async with at_work(place) as connection:
        now: int = await connection.fetchval(NOW)
        contents = examine(None, file, now, prove)
        await connection.execute(SNAPSHOT)
        return await _seen(connection, place, file, contents, now)


async def restore(
    place: PostgresUrl, file: Path, choice: Choice, precondition: WritePrecondition, prove: Callable[[Sealed], None]
) -> Restored:
    """With no instance running. `file` was examined; what is put in place, a copy of it, is examined itself too."""
    with tempfile.TemporaryDirectory(prefix="watchword-") as folder:
        draft = Path(folder) / "restoring.db"
        try:
            async with at_work(place) as connection:
                now: int = await connection.fetchval(NOW)
                await hold_alone(connection, place)
                copy_file(file, draft)
                contents = examined(draft, file, now, prove)
                return await _replace(connection, place, draft, file, contents, choice, precondition, now)
        except (apsw.FullError, OSError) as error:
            if isinstance(error, OSError) and error.errno != errno.ENOSPC:
                raise
            raise OperatorError(
                f"There is no room at {folder} for a copy of the backup. Nothing was changed. Make room, or set TMPDIR."
            ) from None
        except apsw.Error as error:
            raise OperatorError(f"Nothing was restored: {store_fault(error).message}") from error


async def _replace(
    connection: Connection,
    place: PostgresUrl,
    draft: Path,
    file: Path,
    contents: Contents,
    choice: Choice,
    precondition: WritePrecondition,
    now: int,
) -> Restored:
    await connection.execute("BEGIN")
    await hold_migrations(connection, place.schema)
    there = await schema_version(connection, place.schema) > 0
    if there:
        await lock_tables(connection, place, "ACCESS EXCLUSIVE")
    seen = await _seen(connection, place, file, contents, now)
    revoked = make_ready(draft, seen, choice, precondition, now)
    refuse_unsound(draft, "The store made from the backup")
    make_single(draft, now)
    kept = kept_name(place.schema, now) if there else None
    if kept is not None:
        await connection.execute(f"ALTER SCHEMA {quoted(place.schema)} RENAME TO {quoted(kept)}")
    await make_schema(connection, place.schema)
    await fill_in(connection, place.schema, 0)
    with closing(open_unchanging(draft)) as ready:
        await carry(SqliteSource(ready), PostgresTarget(connection), lambda _done, _total: None)
    await refuse_unsound_schema(connection, "The store made from the backup")
    await commit(connection, place)
    return Restored(seen, choice, revoked, str(place), kept)


async def refuse_unsound_schema(connection: Connection, what: str) -> None:
    async for law, problem in laws(connection):
        if problem is not None:
            raise OperatorError(f"{what} is not sound; nothing was changed. What must hold: {law}. It is: {problem}")


def kept_name(schema: str, now: int) -> str:
    moment = datetime.fromtimestamp(now / 1000, UTC).strftime("%Y%m%dt%H%M%S%f")[:-3]
    ending = f"_before_{moment}z"
    return schema[: LONGEST_NAME - len(ending)] + ending


async def _seen(connection: Connection, place: PostgresUrl, file: Path, contents: Contents, now: int) -> RestorePreview:
    """In the transaction that is open."""
    if not await schema_version(connection, place.schema):
        return RestorePreview(file, contents, None, f"there is no store at {place} to compare with")
    with closing(await _here(connection)) as here:
        return RestorePreview(file, contents, compare(here, file, now))


async def _here(connection: Connection) -> apsw.Connection:
    """What there is to compare, where the comparison is done: a file without a name, which goes with the connection."""
    flags = apsw.SQLITE_OPEN_READWRITE | apsw.SQLITE_OPEN_CREATE | apsw.SQLITE_OPEN_URI
    here = apsw.Connection("", flags=flags)
    here.execute("BEGIN")
    for table, columns in _HERE.items():
        names = ", ".join(column.split()[0] for column in columns)
        here.execute(f"CREATE TABLE {table} ({', '.join(columns)})")
        insert = f"INSERT INTO {table} VALUES ({', '.join('?' * len(columns))})"  # noqa: S608 - literal pieces
        batch = []
        async for row in connection.cursor(f"SELECT {names} FROM {table}", prefetch=BATCH):  # noqa: S608
            batch.append(tuple(row))
            if len(batch) == BATCH:
                here.executemany(insert, batch)
                batch = []
        here.executemany(insert, batch)
    for table, last in (await PostgresSource(connection).last_numbers()).items():
        here.execute(f"CREATE TABLE {table} ({_NUMBERS[table]} INTEGER PRIMARY KEY AUTOINCREMENT)")
        here.execute(f"INSERT INTO {table} VALUES (?)", (last,))  # noqa: S608
    here.execute("COMMIT")
    return here
