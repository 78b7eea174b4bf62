"""`db restore`: replace a store by a backup, with the service stopped. The old store is kept under another name.

A copy of the backup is migrated, its tokens are revoked if the operator chose so, and it is checked. Then it takes the
place of the store in one step: an SQLite file by a rename, a PostgreSQL schema by a transaction that renames the old
schema and fills a new one. A failure before that step changes nothing.
"""

import asyncio
import errno
import os
import shutil
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import closing, contextmanager
from datetime import UTC, datetime
from pathlib import Path

import apsw
import orjson

from watchword.domain.actors import WritePrecondition
from watchword.domain.backups import (
    BackupContents,
    ChangesSinceBackup,
    CheckMasterKey,
    RestoreChoice,
    RestorePreview,
    RestoreResult,
)
from watchword.domain.errors import OperatorError
from watchword.domain.events import Action
from watchword.domain.store_urls import PostgresUrl, SqliteUrl, StoreUrl
from watchword.files import create, draft_folder, publish, sync
from watchword.sqlite_file import READ_WRITE, companions, immutable_uri, open_immutable
from watchword.stores import rows
from watchword.stores.admin.backup import LIVE, contents_of, finish_draft, sealed_of
from watchword.stores.admin.check import POSTGRES_RULES, require_sound, require_sound_file, verdicts_on
from watchword.stores.admin.tables import (
    NUMBERED,
    PostgresSource,
    PostgresTarget,
    SqliteSource,
    copy_tables,
    lock_tables,
    set_for_draft,
)
from watchword.stores.postgres.connections import NOW, SNAPSHOT, Connection, quoted
from watchword.stores.postgres.maintenance import commit, lock_exclusively, maintenance_connection
from watchword.stores.postgres.migrations import apply_migrations, create_schema, lock_migrations, schema_version
from watchword.stores.sql.transaction import ADD_EVENT
from watchword.stores.sqlite.connections import STORE_FILE, connect, store_fault
from watchword.stores.sqlite.database import sqlite_text

LONGEST_SCHEMA_NAME = 63

# Expired tokens too: a clock that is ahead must not leave a token valid.
_REVOKED_EVENTS = f"""
INSERT INTO events ({rows.EVENT})
SELECT :now, :actor, NULL, '{Action.TOKEN_REVOKED.value}', id, :peer, :request, json_object('actorUrn', actor_urn)
FROM tokens WHERE revoked_at IS NULL
"""
_REVOKE = "UPDATE tokens SET revoked_at = :now WHERE revoked_at IS NULL"

# `main` is the current store, `backup` the file.
_REVIVED = """
SELECT kept.id FROM backup.tokens AS kept JOIN main.tokens AS current ON current.id = kept.id
WHERE current.revoked_at IS NOT NULL AND kept.revoked_at IS NULL AND (kept.expires_at IS NULL OR kept.expires_at > :now)
ORDER BY current.revoked_at DESC, kept.id
"""
_UNKNOWN = f"""
SELECT count(*), count(*) FILTER (WHERE {LIVE}) FROM main.tokens WHERE id NOT IN (SELECT id FROM backup.tokens)
"""
_SUSPENSIONS = """
SELECT count(*) FROM main.actors WHERE status = 'SUSPENDED'
    AND urn NOT IN (SELECT urn FROM backup.actors WHERE status = 'SUSPENDED')
"""


def _differing(table: str, columns: str) -> str:
    """The rows that only one of the two stores has."""
    ours, theirs = (f"SELECT {columns} FROM {store}.{table}" for store in ("main", "backup"))
    return f"(SELECT * FROM ({ours} EXCEPT {theirs}) UNION ALL SELECT * FROM ({theirs} EXCEPT {ours}))"


# Columns of every schema version.
_POLICY = "urn, name, description, state, privileges, users, groups, all_users"
_POLICIES = f"SELECT count(DISTINCT urn) FROM {_differing('policies', _POLICY)}"
_MEMBERSHIPS = f"SELECT count(*) FROM {_differing('group_members', 'actor_urn, group_urn')}"
_KEYS = "SELECT count(*) FROM main.keys WHERE kid NOT IN (SELECT kid FROM backup.keys)"

# Clients may have seen these numbers of the replaced store: they must not be used again.
_RAISE_POLICY_VERSION = "UPDATE state SET policy_version = max(policy_version, ?) + 1"
_RAISE_EVENTS = "UPDATE sqlite_sequence SET seq = max(seq, ?) WHERE name = 'events'"
_LAST_OPERATION = "SELECT ifnull(max(seq), 0) FROM main.sqlite_sequence WHERE name = 'operations'"
_ADD_OPERATIONS_SEQUENCE = """
INSERT INTO sqlite_sequence (name, seq)
SELECT 'operations', 0 WHERE NOT EXISTS (SELECT 1 FROM sqlite_sequence WHERE name = 'operations')
"""
_RAISE_OPERATIONS = "UPDATE sqlite_sequence SET seq = max(seq, ?) WHERE name = 'operations'"
# Operations that were running when the backup was made have ended since. They are cancelled and not deleted, so that
# what they created in the index is removed.
_CANCEL_OPERATIONS = """
UPDATE operations SET cancel_asked_at = :now, cancel_asked_by = :actor, held_until = 0
WHERE finished_at IS NULL AND cancel_asked_at IS NULL
"""
# It may have signed since the backup was made. The next start creates another.
_DELETE_NEXT_KEY = "DELETE FROM next_key"
# A session that was signed out since must not be valid again.
_DELETE_SESSIONS = "DELETE FROM sessions"

_SCHEMA = "SELECT type, name, tbl_name, sql FROM sqlite_master ORDER BY 1, 2"


def preview(url: StoreUrl, file: Path, now: int, check_master_key: CheckMasterKey) -> RestorePreview:
    """What a restore of the file would change. Changes nothing."""
    if isinstance(url, SqliteUrl):
        return asyncio.run(_preview_file(_resolved(url.path), file, now, check_master_key))
    return asyncio.run(_preview_schema(url, file, check_master_key))


def examine(url: StoreUrl, file: Path, now: int, check_master_key: CheckMasterKey) -> None:
    """Raise unless the file can be restored."""
    store = _resolved(url.path) if isinstance(url, SqliteUrl) else None
    asyncio.run(_examine(store, file, now, check_master_key))


def restore(
    url: StoreUrl,
    file: Path,
    choice: RestoreChoice,
    precondition: WritePrecondition,
    now: int,
    check_master_key: CheckMasterKey,
) -> RestoreResult:
    """`file` was examined. The copy that takes the store's place is examined too."""
    draft = _Draft(file, choice, precondition, check_master_key)
    if isinstance(url, SqliteUrl):
        return asyncio.run(_restore_file(_resolved(url.path), draft, now))
    return asyncio.run(_restore_schema(url, draft))


def _resolved(store: Path) -> Path:
    """The file behind a link: the draft must be on its disk, and it is the file to keep."""
    return store.resolve() if store.is_symlink() else store


async def _examine(store: Path | None, file: Path, now: int, check_master_key: CheckMasterKey) -> BackupContents:
    """Raise unless the file is an undamaged backup of a known version that the master key opens."""
    if not file.is_file():
        raise OperatorError(f"FILE must be a backup made by: watchword db backup. There is no file {file}.")
    if store is not None and store.exists() and file.samefile(store):
        raise OperatorError(f"FILE must be a backup, not the store itself; {file} is.")
    for companion in companions(file):
        if not companion.name.endswith("-shm") and companion.exists() and companion.stat().st_size:
            raise OperatorError(
                f"FILE must be complete; {companion} holds a part of it. Use a file made by: watchword db backup"
            )
    return await _examine_copy(file, file, now, check_master_key)


async def _examine_copy(copy: Path, file: Path, now: int, check_master_key: CheckMasterKey) -> BackupContents:
    try:
        with closing(open_immutable(copy)) as backup:
            _require_known_schema(backup, file)
            await require_sound_file(backup, f"The backup {file}", older_too=True)
            check_master_key(sealed_of(backup))
            return contents_of(backup, now)
    except apsw.NotADBError:
        raise OperatorError(f"FILE must be a backup made by: watchword db backup. {file} is not one.") from None
    except apsw.Error as error:
        raise OperatorError(f"The backup {file} is damaged ({error}). Use another.") from None


def _require_known_schema(backup: apsw.Connection, file: Path) -> None:
    """The file must have exactly the tables and triggers of its version: an added trigger could change rows."""
    version: int = backup.execute("PRAGMA user_version").get
    if backup.execute("PRAGMA application_id").get != STORE_FILE.application_id or not version:
        raise OperatorError(f"FILE must be a backup made by: watchword db backup. {file} is not one.")
    if version > STORE_FILE.latest:
        raise OperatorError(
            f"The backup {file} has schema version {version}; this Watchword supports versions up to "
            f"{STORE_FILE.latest}. Restore it with the newer Watchword that made it."
        )
    with closing(apsw.Connection(":memory:")) as known:
        for migration in STORE_FILE.migrations[:version]:
            known.execute(migration)
        if backup.execute(_SCHEMA).fetchall() != known.execute(_SCHEMA).fetchall():
            raise OperatorError(f"The backup {file} was changed: its tables are not those of schema version {version}.")


def _compare(current: apsw.Connection, file: Path, now: int) -> ChangesSinceBackup:
    current.execute("ATTACH ? AS backup", (immutable_uri(file),))
    try:
        bound = {"now": now}
        unknown, unknown_live = current.execute(_UNKNOWN, bound).get
        return ChangesSinceBackup(
            revived=tuple(row[0] for row in current.execute(_REVIVED, bound)),
            unknown=unknown,
            unknown_live=unknown_live,
            suspensions=current.execute(_SUSPENSIONS).get,
            policies=current.execute(_POLICIES).get,
            memberships=current.execute(_MEMBERSHIPS).get,
            keys=current.execute(_KEYS).get,
            policy_version=current.execute("SELECT policy_version FROM main.state").get,
            last_event=current.execute("SELECT ifnull(max(seq), 0) FROM main.events").get,
            last_operation=current.execute(_LAST_OPERATION).get,
        )
    finally:
        current.execute("DETACH backup")


class _Draft:
    """A copy of the backup that becomes the new store."""

    def __init__(
        self, file: Path, choice: RestoreChoice, precondition: WritePrecondition, check_master_key: CheckMasterKey
    ) -> None:
        self.file = file
        self.choice = choice
        self._precondition = precondition
        self._check_master_key = check_master_key

    async def copy(self, draft: Path, now: int) -> BackupContents:
        os.close(create(draft))
        shutil.copyfile(self.file, draft)
        return await _examine_copy(draft, self.file, now, self._check_master_key)

    async def prepare(self, draft: Path, seen: RestorePreview, now: int) -> int:
        """Migrate the copy and apply the choice; return the number of revoked tokens."""
        with closing(connect(draft)) as connection:
            set_for_draft(connection)
            try:
                STORE_FILE.migrate(connection)
            except apsw.Error as error:
                raise OperatorError(f"The backup cannot be migrated: {store_fault(error).message}") from None
            connection.execute("BEGIN")
            revoked = self._change(connection, seen, now)
            connection.execute("COMMIT")
        await finish_draft(draft, now, "The store made from the backup", older_too=False)
        return revoked

    def _change(self, connection: apsw.Connection, seen: RestorePreview, now: int) -> int:
        by, since, revoked = self._precondition, seen.since, 0
        connection.execute(_RAISE_EVENTS, (since.last_event if since else 0,))
        connection.execute(_ADD_OPERATIONS_SEQUENCE)
        connection.execute(_RAISE_OPERATIONS, (since.last_operation if since else 0,))
        connection.execute(_CANCEL_OPERATIONS, {"now": now, "actor": by.actor})
        connection.execute(_DELETE_NEXT_KEY)
        connection.execute(_DELETE_SESSIONS)
        if self.choice is RestoreChoice.REVOKE_ALL:
            bound = {"now": now, "actor": by.actor, "peer": by.peer, "request": by.request_id}
            connection.execute(_REVOKED_EVENTS, bound)
            connection.execute(_REVOKE, {"now": now})
            revoked = connection.changes()
        connection.execute(_RAISE_POLICY_VERSION, (since.policy_version if since else 0,))
        event = (Action.STORE_RESTORED.value, self.file.name, by.peer, by.request_id, self._detail(seen))
        connection.execute(sqlite_text(ADD_EVENT), (now, by.actor, by.bearer_id, *event))
        return revoked

    def _detail(self, seen: RestorePreview) -> str:
        since, revokes = seen.since, self.choice is RestoreChoice.REVOKE_ALL
        detail = {
            "choice": self.choice.value,
            "live": seen.contents.live,
            "lastChange": seen.contents.last_change,
            "revoked": seen.contents.unrevoked if revokes else 0,
            "revived": None if since is None else 0 if revokes else len(since.revived),
            "unknown": None if since is None else since.unknown,
        }
        return orjson.dumps(detail).decode()


async def _preview_file(store: Path, file: Path, now: int, check_master_key: CheckMasterKey) -> RestorePreview:
    contents = await _examine(store, file, now, check_master_key)
    if not store.exists():
        return RestorePreview(file, contents, None, _missing(store))
    try:
        STORE_FILE.version_of(store)
        with closing(connect(store, read_only=True)) as current:
            return RestorePreview(file, contents, _compare(current, file, now))
    except apsw.Error as error:
        return RestorePreview(file, contents, None, _unreadable(store, error))


def _missing(store: object) -> str:
    return f"there is no store at {store} to compare with"


def _unreadable(store: Path, error: apsw.Error) -> str:
    return f"the store at {store} cannot be read ({error})"


async def _restore_file(store: Path, draft: _Draft, now: int) -> RestoreResult:
    try:
        with draft_folder(store) as folder, _locked(store) as current:
            path = folder / "draft.db"
            contents = await draft.copy(path, now)
            seen = _compared(current, store, draft.file, contents, now)
            revoked = await draft.prepare(path, seen, now)
            kept = _swap(path, store, now)
            return RestoreResult(seen, draft.choice, revoked, str(store), None if kept is None else str(kept))
    except apsw.FullError:
        raise OperatorError(f"There is no space beside {store} for another store. Nothing was changed.") from None
    except apsw.Error as error:
        raise OperatorError(f"The restore failed: {store_fault(error).message}") from error


@contextmanager
def _locked(store: Path) -> Iterator[apsw.Connection | str]:
    """The current store, open and locked; or why it cannot be read. A restore may replace a damaged one."""
    if not store.exists():
        for companion in companions(store):
            if companion.exists():
                raise OperatorError(f"There is no store at {store}, but {companion}. Move that away first.")
        yield _missing(store)
        return
    try:
        connection = open_exclusively(store)
    except (apsw.CorruptError, apsw.NotADBError) as error:
        yield _unreadable(store, error)
        return
    with closing(connection):
        yield connection


def open_exclusively(store: Path) -> apsw.Connection:
    """No other process may have the file open: its writes would be lost. The write-ahead log is folded into the file,
    because SQLite would apply a log that is left behind to the new file.
    """
    STORE_FILE.version_of(store)
    connection = connect(store)
    try:
        connection.execute("PRAGMA journal_mode = DELETE")
        connection.execute("PRAGMA locking_mode = EXCLUSIVE")
        connection.execute("BEGIN EXCLUSIVE")
        connection.execute("COMMIT")
    except (apsw.BusyError, apsw.LockedError):
        connection.close(True)
        raise OperatorError(f"Another process has the store {store} open. Stop it first, then try again.") from None
    except BaseException:
        connection.close(True)
        raise
    return connection


def _compared(
    current: apsw.Connection | str, store: Path, file: Path, contents: BackupContents, now: int
) -> RestorePreview:
    if isinstance(current, str):
        return RestorePreview(file, contents, None, current)
    try:
        return RestorePreview(file, contents, _compare(current, file, now))
    except apsw.CorruptError as error:
        return RestorePreview(file, contents, None, _unreadable(store, error))


def _swap(draft: Path, store: Path, now: int) -> Path | None:
    """At every moment the old store or the new one has the store's name."""
    kept = None
    if store.exists():
        _remove_second_name(store)
        kept = store.with_name(f"{store.name}.before-restore-{_moment(now, '%Y%m%dT%H%M%S.%f')}Z")
        kept.hardlink_to(store)
        # Only a damaged store still has companions.
        for old, new in zip(companions(store), companions(kept), strict=True):
            if old.exists():
                old.rename(new)
        sync(store.parent)
    publish(draft, store)
    return kept


def _remove_second_name(store: Path) -> None:
    """A restore that was killed before the swap leaves one."""
    for name in store.parent.glob(f"{store.name}.before-restore-*"):
        if name.samefile(store):
            name.unlink()


def _moment(now: int, pattern: str) -> str:
    """The pattern ends with microseconds, which are cut to milliseconds."""
    return datetime.fromtimestamp(now / 1000, UTC).strftime(pattern)[:-3]


async def _preview_schema(url: PostgresUrl, file: Path, check_master_key: CheckMasterKey) -> RestorePreview:
    async with maintenance_connection(url) as connection:
        now: int = await connection.fetchval(NOW)
        contents = await _examine(None, file, now, check_master_key)
        await connection.execute(SNAPSHOT)
        return await _compared_with_schema(connection, url, file, contents, now)


async def _restore_schema(url: PostgresUrl, draft: _Draft) -> RestoreResult:
    with tempfile.TemporaryDirectory(prefix="watchword-") as folder:
        try:
            async with maintenance_connection(url) as connection:
                await lock_exclusively(connection, url)
                return await _replace_schema(connection, url, draft, Path(folder) / "restoring.db")
        except (apsw.FullError, OSError) as error:
            if isinstance(error, OSError) and error.errno != errno.ENOSPC:
                raise
            raise OperatorError(
                f"There is no space in {folder} for a copy of the backup. Nothing was changed. "
                "Free some, or set TMPDIR."
            ) from None
        except apsw.Error as error:
            raise OperatorError(f"The restore failed: {store_fault(error).message}") from error


async def _replace_schema(connection: Connection, url: PostgresUrl, draft: _Draft, path: Path) -> RestoreResult:
    now: int = await connection.fetchval(NOW)
    contents = await draft.copy(path, now)
    await connection.execute("BEGIN")
    await lock_migrations(connection, url.schema)
    exists = await schema_version(connection, url.schema) > 0
    if exists:
        await lock_tables(connection, url, "ACCESS EXCLUSIVE")
    seen = await _compared_with_schema(connection, url, draft.file, contents, now)
    revoked = await draft.prepare(path, seen, now)
    kept = kept_schema_name(url.schema, now) if exists else None
    if kept is not None:
        await connection.execute(f"ALTER SCHEMA {quoted(url.schema)} RENAME TO {quoted(kept)}")
    await create_schema(connection, url.schema)
    await apply_migrations(connection, url.schema, 0)
    target = PostgresTarget(connection)
    with closing(open_immutable(path)) as ready:
        await copy_tables(SqliteSource(ready), target, lambda _done, _total: None)
    await require_sound(verdicts_on(target, POSTGRES_RULES), "The store made from the backup")
    await commit(connection, url)
    return RestoreResult(seen, draft.choice, revoked, str(url), kept)


def kept_schema_name(schema: str, now: int) -> str:
    ending = f"_before_{_moment(now, '%Y%m%dt%H%M%S%f')}z"
    return schema[: LONGEST_SCHEMA_NAME - len(ending)] + ending


async def _compared_with_schema(
    connection: Connection, url: PostgresUrl, file: Path, contents: BackupContents, now: int
) -> RestorePreview:
    if not await schema_version(connection, url.schema):
        return RestorePreview(file, contents, None, _missing(url))
    with closing(await _excerpt(PostgresSource(connection))) as current:
        return RestorePreview(file, contents, _compare(current, file, now))


_COMPARED: dict[str, Sequence[str]] = {
    "tokens": ("id TEXT PRIMARY KEY", "expires_at", "revoked_at"),
    "actors": ("urn", "status"),
    "policies": _POLICY.split(", "),
    "group_members": ("actor_urn", "group_urn"),
    "keys": ("kid",),
    "state": ("policy_version",),
}


async def _excerpt(source: PostgresSource) -> apsw.Connection:
    """What `_compare` reads, in a temporary SQLite file that is deleted with the connection."""
    current = apsw.Connection("", flags=READ_WRITE | apsw.SQLITE_OPEN_CREATE)
    current.execute("BEGIN")
    for table, columns in _COMPARED.items():
        current.execute(f"CREATE TABLE {table} ({', '.join(columns)})")
        names = ", ".join(column.split()[0] for column in columns)
        insert = f"INSERT INTO {table} VALUES ({', '.join('?' * len(columns))})"
        async for batch in source.batches(f"SELECT {names} FROM {table}"):
            current.executemany(insert, batch)
    for table, last in (await source.last_numbers()).items():
        current.execute(f"CREATE TABLE {table} ({NUMBERED[table]} INTEGER PRIMARY KEY AUTOINCREMENT)")
        current.execute(f"INSERT INTO {table} VALUES (?)", (last,))
    current.execute("COMMIT")
    return current
