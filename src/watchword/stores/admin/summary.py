"""A quick summary of a store for `doctor`, at any size. Changes nothing."""

import asyncio
from contextlib import closing
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import apsw

from watchword.domain.actors import AccountGain
from watchword.domain.admin import SealedSecrets
from watchword.domain.errors import OperatorError
from watchword.domain.ports import Clock
from watchword.domain.stores import LastStart, PostgresUrl, SqliteUrl
from watchword.sqlite_file import open_read_only
from watchword.stores import rows
from watchword.stores.admin.tables import sealed_secrets
from watchword.stores.postgres.connections import NOW, Connection, lacks_right
from watchword.stores.postgres.maintenance import LACKS_RIGHTS, LATEST, operator_connection, schema_version
from watchword.stores.sql.policies import account_gains
from watchword.stores.sql.transaction import Transaction
from watchword.stores.sqlite.connections import STORE_FILE
from watchword.stores.sqlite.database import SqliteTransaction, run

# Reading a larger file takes long; `db check` does it.
QUICK_CHECK_BYTES = 64 * 1024 * 1024


@dataclass(frozen=True, slots=True)
class DatabaseServer:
    """`unsafe` are settings that are off, so that a crash may lose commits. `public` means that every role may connect.
    `clock_ahead_ms` is the least difference to this machine's clock.
    """

    version: str
    unsafe: tuple[str, ...]
    max_connections: int
    public: bool
    standbys: str
    clock_ahead_ms: int


@dataclass(frozen=True, slots=True)
class StoreSummary:
    """Where the store cannot be used, `problem` says why and the rest is empty."""

    problem: str | None = None
    version: int = 0
    latest: int = 0
    tokens: int = 0
    """Not revoked."""
    quick_checked: bool = False
    newest_event: int | None = None
    sealed: SealedSecrets | None = None
    account_gains: tuple[AccountGain, ...] = ()
    """Empty for an older schema version."""
    has_imported: bool = False
    """Whether tokens of DataHub were imported."""
    last_start: LastStart | None = None
    server: DatabaseServer | None = None


def summarize(url: SqliteUrl | PostgresUrl, now: Clock) -> StoreSummary:
    return _summarize_file(url.path, now) if isinstance(url, SqliteUrl) else asyncio.run(_summarize_database(url, now))


def _summarize_file(path: Path, now: Clock) -> StoreSummary:
    try:
        with closing(open_read_only(path)) as connection:
            return _summarize_connection(connection, path, now)
    except OperatorError as error:
        return StoreSummary(str(error))
    except apsw.Error as error:
        return StoreSummary(f"it cannot be read: {error}")


def _summarize_connection(connection: apsw.Connection, path: Path, now: Clock) -> StoreSummary:
    version = STORE_FILE.version(connection)
    if not version:
        return StoreSummary("it is empty")
    small = path.stat().st_size <= QUICK_CHECK_BYTES
    found = connection.execute("PRAGMA quick_check(1)").get if small else "ok"
    if found != "ok":
        return StoreSummary(f"it is damaged: {found}")
    summary = StoreSummary(version=version, latest=STORE_FILE.latest, quick_checked=small)
    return run(_with_contents(SqliteTransaction(connection, now), summary))


async def _with_contents(tx: Transaction, summary: StoreSummary) -> StoreSummary:
    summary = replace(
        summary,
        tokens=int(await tx.fetchval("SELECT coalesce(sum(total), 0) FROM token_totals WHERE kind = 'all'")),
        newest_event=await tx.fetchval("SELECT at FROM events ORDER BY at DESC LIMIT 1"),
        sealed=await sealed_secrets(tx),
    )
    if summary.version < summary.latest:
        return summary
    last_start = rows.last_start(await tx.fetchval("SELECT settings FROM state"))
    imported = bool(await tx.fetchval("SELECT EXISTS (SELECT 1 FROM imported_tokens)"))
    return replace(summary, account_gains=await account_gains(tx), has_imported=imported, last_start=last_start)


# Without `synchronous_commit`, which each of our connections turns on.
_SERVER = """
SELECT current_setting('server_version'),
    ARRAY(SELECT name FROM pg_settings WHERE name IN ('fsync', 'full_page_writes') AND setting = 'off' ORDER BY name),
    (SELECT min(most) FROM (VALUES
        (current_setting('max_connections')::int - current_setting('superuser_reserved_connections')::int),
        ((SELECT nullif(rolconnlimit, -1) FROM pg_roles WHERE rolname = current_user)),
        ((SELECT nullif(datconnlimit, -1) FROM pg_database WHERE datname = current_database()))) AS v (most)),
    (SELECT datacl IS NULL OR EXISTS (SELECT 1 FROM aclexplode(datacl) WHERE grantee = 0 AND privilege_type = 'CONNECT')
     FROM pg_database WHERE datname = current_database()),
    current_setting('synchronous_standby_names')
"""
_MAY_CREATE = """
SELECT coalesce((SELECT has_schema_privilege(oid, 'CREATE') AND has_schema_privilege(oid, 'USAGE')
                 FROM pg_namespace WHERE nspname = $1), has_database_privilege(current_database(), 'CREATE'))"""


async def _summarize_database(url: PostgresUrl, now: Clock) -> StoreSummary:
    try:
        async with operator_connection(url) as connection, asyncio.timeout(max(url.timeout, 2.0)):
            return await _summarize_schema(connection, url, now)
    except OperatorError as error:
        return StoreSummary(str(error))


async def _summarize_schema(connection: Connection, url: PostgresUrl, now: Clock) -> StoreSummary:
    found: Any = await connection.fetchrow(_SERVER)
    server = DatabaseServer(
        version=found[0].split()[0],
        unsafe=tuple(found[1]),
        max_connections=found[2],
        public=found[3],
        standbys=found[4],
        clock_ahead_ms=await _clock_ahead(connection, now),
    )
    version = await schema_version(connection, url.schema)
    summary = StoreSummary(version=version, latest=LATEST, server=server)
    if not version:
        may_create = await connection.fetchval(_MAY_CREATE, url.schema)
        return summary if may_create else StoreSummary(lacks_right(url))
    if await connection.fetchval(LACKS_RIGHTS, url.schema):
        return StoreSummary(lacks_right(url))
    return await _with_contents(connection, summary)


async def _clock_ahead(connection: Connection, now: Clock) -> int:
    """The time that the query took may explain a difference, so it is subtracted."""
    asked = now()
    theirs: int = await connection.fetchval(NOW)
    answered = now()
    return theirs - answered if theirs > answered else min(theirs - asked, 0)
