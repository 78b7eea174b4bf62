"""`db backup`, `db restore` and `db copy`: move a whole store to a file, from a file, or to another store.

A backup of either database is an SQLite file, made while the service runs. It can be restored into either. It is
written in a private folder beside FILE, checked and flushed, and then renamed to FILE.

A restore needs the service stopped. A copy of the backup is migrated, its tokens are revoked if the operator chose so,
and it is checked. Then it takes the place of the store in one step: an SQLite file by a rename, a PostgreSQL schema by
a transaction that renames the old schema and fills a new one. A failure before that step changes nothing. The old store
is kept under another name.

A copy needs the service stopped too: a token revoked in the source would stay valid in the copy. The target is empty.
It is filled in one transaction and verified to hold the same rows before it is committed.
"""

import asyncio
import errno
import os
import shutil
import tempfile
from collections.abc import AsyncIterator, Callable, Coroutine, Iterator, Sequence
from contextlib import ExitStack, asynccontextmanager, closing, contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import wraps
from pathlib import Path
from typing import Any, ParamSpec, TypeVar

import apsw

from watchword.domain.actors import WritePrecondition
from watchword.domain.admin import (
    Backup,
    BackupContents,
    ChangesSinceBackup,
    CheckMasterKey,
    CopyResult,
    RestoreChoice,
    RestorePreview,
    RestoreResult,
    SealedSecrets,
    describe_rows,
)
from watchword.domain.errors import OperatorError
from watchword.domain.events import Action, Detail, Event
from watchword.domain.stores import PostgresUrl, SqliteUrl, StoreUrl, require_version
from watchword.files import create, draft_folder, publish, sync
from watchword.sqlite_file import READ_WRITE, companions, immutable_uri, open_immutable
from watchword.stores import rows
from watchword.stores.admin.check import POSTGRES_RULES, file_verdicts, require_sound, verdicts_on
from watchword.stores.admin.tables import (
    NUMBERED,
    PostgresTarget,
    Progress,
    SqliteTarget,
    batches,
    copy_tables,
    count_rows,
    last_numbers,
    lock_tables,
    sealed_secrets,
    set_for_draft,
)
from watchword.stores.postgres.connections import NOW, SNAPSHOT, Connection, quoted
from watchword.stores.postgres.maintenance import (
    commit,
    lock_exclusively,
    lock_migrations,
    maintenance_connection,
    migrate_schema,
    require_latest,
    schema_version,
)
from watchword.stores.sql.transaction import Transaction, write_events
from watchword.stores.sqlite.connections import STORE_FILE, connect, store_fault
from watchword.stores.sqlite.database import SqliteTransaction

T = TypeVar("T")
P = ParamSpec("P")

PAGES_A_STEP = 256
LONGEST_SCHEMA_NAME = 63
MAX_LISTED = 100
"""How many names an event lists."""

_LIVE = "revoked_at IS NULL AND (expires_at IS NULL OR expires_at > :now)"
_CONTENTS = f"""
SELECT count(*), count(*) FILTER (WHERE revoked_at IS NULL), count(*) FILTER (WHERE {_LIVE}),
    (SELECT at FROM events ORDER BY seq DESC LIMIT 1) FROM tokens"""

# What a restored store must not repeat of the replaced one.
_RENEW = """
-- Clients may have seen this number: it must not be used again.
UPDATE state SET policy_version = max(policy_version, :policy_version) + 1;
-- Operations that were running when the backup was made have ended since. They are cancelled and not deleted, so that
-- what they created in the index is removed.
UPDATE operations SET cancel_asked_at = :now, cancel_asked_by = :actor, held_until = 0
WHERE finished_at IS NULL AND cancel_asked_at IS NULL;
-- The next key may have signed since. The next start creates another.
DELETE FROM next_key;
-- A session that was signed out since must not be valid again, nor what was approved in it.
DELETE FROM sessions;
DELETE FROM devices;
UPDATE retention_runs SET approved_by = NULL, approved_at = NULL WHERE state = 'WAITING';
"""
# Of a table of `NUMBERED`, for the same reason.
_RAISE_NUMBER = """
INSERT INTO sqlite_sequence (name, seq)
SELECT :name, 0 WHERE NOT EXISTS (SELECT 1 FROM sqlite_sequence WHERE name = :name);
UPDATE sqlite_sequence SET seq = max(seq, :last) WHERE name = :name;
"""
# Expired tokens too: a clock that is ahead must not leave a token valid.
_REVOKE_ALL = f"""
INSERT INTO events ({rows.EVENT})
SELECT :now, :actor, NULL, '{Action.TOKEN_REVOKED.value}', id, :peer, :request, json_object('actorUrn', actor_urn)
FROM tokens WHERE revoked_at IS NULL;
UPDATE tokens SET revoked_at = :now WHERE revoked_at IS NULL;
"""

# `main` is the current store, `backup` the file.
_REVIVED = """
SELECT kept.id FROM backup.tokens AS kept JOIN main.tokens AS current ON current.id = kept.id
WHERE current.revoked_at IS NOT NULL AND kept.revoked_at IS NULL AND (kept.expires_at IS NULL OR kept.expires_at > :now)
ORDER BY current.revoked_at DESC, kept.id
"""


def _differing(table: str, columns: str) -> str:
    """The rows that only one of the two stores has."""
    current, backed_up = (f"SELECT {columns} FROM {store}.{table}" for store in ("main", "backup"))
    return f"(SELECT * FROM ({current} EXCEPT {backed_up}) UNION ALL SELECT * FROM ({backed_up} EXCEPT {current}))"


_HOLD = "series, reason, set_by, set_at, by_rule"
_STATUS = "urn, status, changed_at, changed_by"
_IDENTITY = "issuer, subject, actor_urn, linked_at, signed_in_at"
# What a restore carries over, unless it is to bring back what the backup has.
_PROTECTION = {
    "retention_holds": f"SELECT {_HOLD} FROM main.retention_holds",
    "service_accounts": f"SELECT {rows.ACCOUNT} FROM main.service_accounts WHERE deleted_at IS NOT NULL",
    "actors": f"SELECT {_STATUS} FROM main.actors WHERE status = 'SUSPENDED'",
    "identities": f"SELECT {_IDENTITY} FROM main.identities",
}
# A hold that a rule declares is kept as one set by hand where the backup has no such rule.
_CARRY = {
    "retention_holds": f"""
        INSERT INTO retention_holds ({_HOLD}) SELECT ?1, ?2, ?3, ?4, 0
        WHERE ?5 = 0 OR NOT EXISTS (SELECT 1 FROM retention_holds WHERE series = ?1 AND by_rule = 1)
        ON CONFLICT (series, by_rule) DO UPDATE SET reason = ?2, set_by = ?3, set_at = ?4 WHERE ?5 = 0""",
    "service_accounts": rows.put("service_accounts", rows.ACCOUNT, "urn", "deleted_at").replace("$", "?"),
    "actors": rows.put("actors", _STATUS, "urn").replace("$", "?"),
    "identities": rows.insert("identities", _IDENTITY).replace("$", "?"),
}
# Groups of the identity provider belong to the person who was linked before.
_LEAVE_GROUPS = """
DELETE FROM group_members WHERE external = 1 AND actor_urn = ?3
    AND NOT EXISTS (SELECT 1 FROM identities WHERE issuer = ?1 AND subject = ?2 AND actor_urn = ?3)"""


def _suspended_only_in(store: str, other: str) -> str:
    """Except deleted accounts, which are suspended too."""
    return f"""SELECT urn FROM {store}.actors WHERE status = 'SUSPENDED'
        AND urn NOT IN (SELECT urn FROM {store}.service_accounts WHERE deleted_at IS NOT NULL)
        EXCEPT SELECT urn FROM {other}.actors WHERE status = 'SUSPENDED'"""


# In the order of `ChangesSinceBackup`.
_NAMES_SINCE = (
    """
        SELECT DISTINCT series FROM main.retention_holds
        WHERE series NOT IN (SELECT series FROM backup.retention_holds) ORDER BY 1""",
    """
        SELECT urn FROM main.service_accounts WHERE deleted_at IS NOT NULL
        AND urn NOT IN (SELECT urn FROM backup.service_accounts WHERE deleted_at IS NOT NULL) ORDER BY 1""",
    """
        SELECT DISTINCT series FROM backup.retention_holds
        WHERE series NOT IN (SELECT series FROM main.retention_holds) ORDER BY 1""",
    f"{_suspended_only_in('main', 'backup')} ORDER BY 1",
    f"{_suspended_only_in('backup', 'main')} ORDER BY 1",
)
# Columns of every schema version.
_POLICY = "urn, name, description, state, privileges, users, groups, all_users"


# In the order of `ChangesSinceBackup`.
_CHANGES = f"""
SELECT count(*), count(*) FILTER (WHERE {_LIVE}),
    (SELECT count(DISTINCT actor_urn) FROM {_differing("identities", "issuer, subject, actor_urn")}),
    (SELECT count(DISTINCT urn) FROM {_differing("policies", _POLICY)}),
    (SELECT count(*) FROM {_differing("group_members", "actor_urn, group_urn")}),
    (SELECT count(DISTINCT series) FROM {_differing("retention_rules", "series, rule")}),
    (SELECT count(DISTINCT id) FROM {_differing("webhooks", "id, url, state")}),
    (SELECT count(*) FROM main.keys WHERE kid NOT IN (SELECT kid FROM backup.keys)),
    (SELECT policy_version FROM main.state)
FROM main.tokens WHERE id NOT IN (SELECT id FROM backup.tokens)
"""
_COMPARED: dict[str, Sequence[str]] = {
    "tokens": ("id TEXT PRIMARY KEY", "expires_at", "revoked_at"),
    "actors": _STATUS.split(", "),
    "service_accounts": rows.ACCOUNT.split(", "),
    "identities": _IDENTITY.split(", "),
    "retention_holds": _HOLD.split(", "),
    "retention_rules": ("series", "rule"),
    "webhooks": ("id", "url", "state"),
    "policies": _POLICY.split(", "),
    "group_members": ("actor_urn", "group_urn"),
    "keys": ("kid",),
    "state": ("policy_version",),
}

_SCHEMA = "SELECT type, name, tbl_name, sql FROM sqlite_master ORDER BY 1, 2"


def _command(work: Callable[P, Coroutine[Any, Any, T]]) -> Callable[P, T]:
    """Runs on an event loop of its own."""

    @wraps(work)
    def run(*args: P.args, **kwargs: P.kwargs) -> T:
        return asyncio.run(work(*args, **kwargs))

    return run


@_command
async def back_up(url: StoreUrl, file: Path, now: int, *, force: bool, progress: Progress) -> Backup:
    def check_target() -> None:
        if isinstance(url, SqliteUrl) and _is_store(file, url.path):
            raise OperatorError(f"FILE must not be the store itself; {file} is. Name another file.")
        _require_target(file, force=force)

    check_target()
    with _draft_file(file, "backup") as draft:
        if isinstance(url, SqliteUrl):
            _back_up_file(url.path, draft, progress)
        else:
            now = await _back_up_schema(url, draft, progress)
        contents = await _finish_draft(draft, now, "The backup")
        check_target()
        publish(draft, file)
        return Backup(file, file.stat().st_size, contents)


def _is_store(file: Path, store: Path) -> bool:
    same_path = file.resolve() in [path.resolve() for path in (store, *companions(store))]
    return same_path or (file.exists() and file.samefile(store))


def _require_target(file: Path, *, force: bool, word: str = "FILE") -> None:
    if not file.parent.is_dir():
        raise OperatorError(f"{word} must be in an existing folder; there is no folder {file.parent}.")
    if file.is_dir():
        raise OperatorError(f"{word} must name a file; {file} is a folder. Name a file in it.")
    if file.is_symlink() or (file.exists() and not file.is_file()):
        raise OperatorError(
            f"{word} must be a new or a regular file; {file} is a link, a device or a pipe. Name another."
        )
    if file.exists() and not force:
        raise OperatorError(f"{word} must not exist yet; {file} does. Name another, or replace it with --force.")


def _back_up_file(store: Path, draft: Path, progress: Progress) -> None:
    """By SQLite's backup, in small steps in one read transaction: writers do not wait, and their commits do not
    restart it.
    """
    STORE_FILE.version_of(store)
    with closing(connect(store, read_only=True)) as source, closing(apsw.Connection(str(draft))) as copy:
        copy.execute("PRAGMA journal_mode = OFF")
        copy.execute("PRAGMA synchronous = OFF")
        source.execute("BEGIN")
        if not STORE_FILE.version(source):  # the first read begins the snapshot
            raise OperatorError(f"The store {store} is empty. Create it with: watchword db migrate")
        with copy.backup("main", source, "main") as backup:
            while not backup.done:
                backup.step(PAGES_A_STEP)
                progress(backup.page_count - backup.remaining, backup.page_count)
        source.execute("COMMIT")


async def _back_up_schema(url: PostgresUrl, draft: Path, progress: Progress) -> int:
    """Returns the database's time."""
    async with maintenance_connection(url) as connection:
        await connection.execute(SNAPSHOT)
        await require_latest(connection, url)
        now: int = await connection.fetchval(NOW)
        await _fill_file(connection, draft, progress)
        return now


@contextmanager
def _draft_file(file: Path, what: str) -> Iterator[Path]:
    """A draft to be renamed to the file. It is deleted at the end of the block unless it was renamed."""
    with _draft_errors(what, file.parent), draft_folder(file) as folder:
        draft = folder / "draft.db"
        os.close(create(draft))
        yield draft


@contextmanager
def _draft_errors(what: str, where: object) -> Iterator[None]:
    try:
        yield
    except (apsw.Error, OSError) as error:
        if isinstance(error, apsw.FullError) or (isinstance(error, OSError) and error.errno == errno.ENOSPC):
            raise OperatorError(f"There is no space for the {what} in {where}. Nothing was changed.") from None
        if isinstance(error, OSError):
            raise
        raise OperatorError(f"The {what} failed: {store_fault(error).message}") from error


async def _fill_file(source: Transaction, draft: Path, progress: Progress) -> CopyResult:
    with closing(connect(draft)) as connection:
        STORE_FILE.migrate(connection)
        return await copy_tables(source, SqliteTarget(connection), progress)


async def _finish_draft(draft: Path, now: int, what: str) -> BackupContents:
    """Check the draft, fold its log into the file and flush it."""
    with closing(connect(draft)) as connection:
        await require_sound(file_verdicts(connection, older_too=True), what)
        connection.execute("PRAGMA journal_mode = DELETE")
        contents = _contents(connection, now)
    sync(draft)
    return contents


def _contents(connection: apsw.Connection, now: int) -> BackupContents:
    return BackupContents(STORE_FILE.version(connection), *connection.execute(_CONTENTS, {"now": now}).get)


@_command
async def sealed_in(file: Path) -> SealedSecrets:
    with closing(open_immutable(file)) as connection:
        return await sealed_secrets(SqliteTransaction(connection))


@_command
async def copy(
    source: StoreUrl, target: StoreUrl, now: int, check_master_key: CheckMasterKey, progress: Progress
) -> CopyResult:
    same = source == target
    if isinstance(source, SqliteUrl) and isinstance(target, SqliteUrl):
        same = source.path.resolve() == target.path.resolve()
    if same:
        raise OperatorError(f"--to must be another store than --from; both are {source}.")
    async with _opened(source) as opened:
        check_master_key(await sealed_secrets(opened))
        await _require_no_running_operation(opened)
        if isinstance(target, SqliteUrl):
            return await _copy_to_file(opened, target, now, progress)
        async with maintenance_connection(target) as connection:
            await lock_exclusively(connection, target)
            await connection.execute("BEGIN")
            return await _fill_schema(opened, connection, target, "The copy", progress)


@asynccontextmanager
async def _opened(url: StoreUrl) -> AsyncIterator[Transaction]:
    """The source of a copy, locked, in one read transaction."""
    if isinstance(url, PostgresUrl):
        async with maintenance_connection(url) as connection:
            await require_latest(connection, url)
            await lock_exclusively(connection, url)
            await connection.execute(SNAPSHOT)
            await lock_tables(connection, url, "SHARE")
            yield connection
            return
    if not url.path.is_file():
        raise OperatorError(f"--from must be a store; there is none at {url}.")
    try:
        with closing(_open_exclusively(url.path)) as file:
            require_version(url, STORE_FILE.version(file), STORE_FILE.latest)
            yield SqliteTransaction(file)
    except apsw.Error as error:
        raise OperatorError(f"The store {url} cannot be copied: {store_fault(error).message}") from error


async def _require_no_running_operation(source: Transaction) -> None:
    """It is unknown which instance of the target would continue the operation."""
    number = await source.fetchval("SELECT number FROM operations WHERE finished_at IS NULL ORDER BY number LIMIT 1")
    if number is not None:
        raise OperatorError(
            f"Operation {number} in the search index has not finished. Start the service, wait for it or cancel it "
            "(watchword task list), and stop the service again."
        )


async def _require_empty(target: Transaction, url: StoreUrl) -> None:
    found = describe_rows(await count_rows(target))
    if found:
        raise OperatorError(f"--to must be empty; {url} holds a store already ({found}). Name another.")


async def _copy_to_file(source: Transaction, target: SqliteUrl, now: int, progress: Progress) -> CopyResult:
    file = target.path
    try:
        file.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    except OSError as error:
        raise OperatorError(f"--to must be in a folder that can be created; {file.parent}: {error.strerror}.") from None
    replaces = file.exists()
    _require_target(file, force=replaces, word="--to")
    with ExitStack() as locks, _draft_file(file, "copy") as draft:
        if replaces:
            existing = locks.enter_context(closing(_open_exclusively(file)))
            if STORE_FILE.version(existing):
                await _require_empty(SqliteTransaction(existing), target)
        copied = await _fill_file(source, draft, progress)
        await _finish_draft(draft, now, "The copy")
        _require_target(file, force=replaces, word="--to")
        publish(draft, file)
        return copied


async def _fill_schema(
    source: Transaction, connection: Connection, url: PostgresUrl, what: str, progress: Progress
) -> CopyResult:
    """Create the schema if it is missing, fill it and commit the open transaction."""
    await migrate_schema(connection, url.schema)
    await lock_tables(connection, url, "ACCESS EXCLUSIVE")
    await _require_empty(connection, url)
    copied = await copy_tables(source, PostgresTarget(connection), progress)
    await require_sound(verdicts_on(connection, POSTGRES_RULES), what)
    await commit(connection, url)
    return copied


@_command
async def preview(url: StoreUrl, file: Path, now: int, check_master_key: CheckMasterKey) -> RestorePreview:
    """What a restore of the file would change. Changes nothing."""
    if isinstance(url, PostgresUrl):
        async with maintenance_connection(url) as connection:
            now = await connection.fetchval(NOW)
            contents = await _examine(url, file, now, check_master_key)
            await connection.execute(SNAPSHOT)
            return await _compared_with_schema(connection, url, file, contents, now)
    store = url.path
    contents = await _examine(url, file, now, check_master_key)
    if not store.exists():
        return RestorePreview(file, contents, None, _missing(store))
    try:
        STORE_FILE.version_of(store)
        with closing(connect(store, read_only=True)) as current:
            return RestorePreview(file, contents, _compare(current, file, now))
    except apsw.Error as error:
        return RestorePreview(file, contents, None, _unreadable(store, error))


@_command
async def examine(url: StoreUrl, file: Path, now: int, check_master_key: CheckMasterKey) -> None:
    """Raise unless the file can be restored."""
    await _examine(url, file, now, check_master_key)


@_command
async def restore(
    url: StoreUrl,
    file: Path,
    choice: RestoreChoice,
    precondition: WritePrecondition,
    now: int,
    check_master_key: CheckMasterKey,
    *,
    without_current: bool = False,
) -> RestoreResult:
    """`file` was examined. The copy that takes the store's place is examined too."""
    restored = _RestoredStore(file, choice, precondition, check_master_key, without_current)
    if isinstance(url, PostgresUrl):
        return await _restore_schema(url, restored)
    # The file behind a link: the draft must be on its disk, and it is the file to keep.
    store = url.path.resolve() if url.path.is_symlink() else url.path
    with _draft_file(store, "restore") as draft, _locked(store) as current:
        contents = await restored.copy(draft, now)
        seen = _compared(current, store, file, contents, now)
        if store.exists():
            restored.require_compared(seen)
        revoked = await restored.prepare(draft, seen, now)
        kept = _swap(draft, store, now)
        return RestoreResult(seen, choice, revoked, str(store), None if kept is None else str(kept))


async def _examine(url: StoreUrl, file: Path, now: int, check_master_key: CheckMasterKey) -> BackupContents:
    """Raise unless the file is an undamaged backup of a known version that the master key opens."""
    if not file.is_file():
        raise OperatorError(f"FILE must be a backup made by: watchword db backup. There is no file {file}.")
    if isinstance(url, SqliteUrl) and url.path.exists() and file.samefile(url.path):
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
            await require_sound(file_verdicts(backup, older_too=True), f"The backup {file}")
            check_master_key(await sealed_secrets(SqliteTransaction(backup)))
            return _contents(backup, now)
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
        revived = tuple(row[0] for row in current.execute(_REVIVED, {"now": now}))
        used: list[Any] = current.execute("SELECT name, seq FROM main.sqlite_sequence").fetchall()
        kept = {table: current.execute(select).fetchall() for table, select in _PROTECTION.items()}
        names: list[Any] = [tuple(row[0] for row in current.execute(select)) for select in _NAMES_SINCE]
        counts = current.execute(_CHANGES, {"now": now}).get
        return ChangesSinceBackup(revived, dict(used), kept, *names, *counts)
    finally:
        current.execute("DETACH backup")


@dataclass(frozen=True, slots=True)
class _RestoredStore:
    """A copy of the backup that becomes the new store."""

    file: Path
    choice: RestoreChoice
    precondition: WritePrecondition
    check_master_key: CheckMasterKey
    without_current: bool

    async def copy(self, draft: Path, now: int) -> BackupContents:
        shutil.copyfile(self.file, draft)
        return await _examine_copy(draft, self.file, now, self.check_master_key)

    def require_compared(self, seen: RestorePreview) -> None:
        """Raise if there is a current store, and what it protects would be lost unseen."""
        if seen.since is None and self.choice is RestoreChoice.REVOKE_ALL and not self.without_current:
            raise OperatorError(
                f"Holds, deleted accounts, suspensions and links cannot be carried over: {seen.unknown_reason}. To "
                "restore without those that are not in the backup, add --without-current-store. Nothing was changed."
            )

    async def prepare(self, draft: Path, seen: RestorePreview, now: int) -> int:
        """Migrate the copy and apply the choice; return the number of revoked tokens."""
        with closing(connect(draft)) as connection:
            set_for_draft(connection)
            try:
                STORE_FILE.migrate(connection)
            except apsw.Error as error:
                raise OperatorError(f"The backup cannot be migrated: {store_fault(error).message}") from None
            connection.execute("BEGIN")
            revoked = await self._change(connection, seen, now)
            connection.execute("COMMIT")
        await _finish_draft(draft, now, "The store made from the backup")
        return revoked

    async def _change(self, connection: apsw.Connection, seen: RestorePreview, now: int) -> int:
        by, since = self.precondition, seen.since
        version = since.policy_version if since else 0
        connection.execute(_RENEW, {"now": now, "actor": by.actor, "policy_version": version})
        numbers = since.numbers if since else {}
        for table in NUMBERED:
            connection.execute(_RAISE_NUMBER, {"name": table, "last": numbers.get(table, 0)})
        revoked = 0
        if self.choice is RestoreChoice.REVOKE_ALL:
            bound = {"now": now, "actor": by.actor, "peer": by.peer, "request": by.request_id}
            connection.execute(_REVOKE_ALL, bound)
            revoked = connection.changes()
            if since is not None:
                _carry_over(connection, since)
        detail: dict[str, Detail] = {
            "choice": self.choice.value,
            "live": seen.contents.live,
            "lastChange": seen.contents.last_change,
            "revoked": revoked,
            "revived": None if since is None else 0 if revoked else len(since.revived),
            "unknown": None if since is None else since.unknown,
        }
        if since is not None:
            detail |= {
                "carriedOver": self.choice is RestoreChoice.REVOKE_ALL,
                "holds": list(since.holds[:MAX_LISTED]),
                "deletedAccounts": list(since.accounts[:MAX_LISTED]),
                "suspensions": list(since.suspended[:MAX_LISTED]),
                "links": since.links,
                "releasedHolds": list(since.released[:MAX_LISTED]),
            }
        event = Event(Action.STORE_RESTORED, self.file.name, detail)
        await write_events(SqliteTransaction(connection, lambda: now), by, [event], now)
        return revoked


def _carry_over(connection: apsw.Connection, since: ChangesSinceBackup) -> None:
    linked_before = connection.execute("DELETE FROM identities RETURNING issuer, subject, actor_urn").fetchall()
    for table, rows_of_table in since.protection.items():
        connection.executemany(_CARRY[table], rows_of_table)
    connection.executemany(_LEAVE_GROUPS, linked_before)


def _missing(store: object) -> str:
    return f"there is no store at {store} to compare with"


def _unreadable(store: Path, error: apsw.Error) -> str:
    return f"the store at {store} cannot be read ({error})"


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
        connection = _open_exclusively(store)
    except (apsw.CorruptError, apsw.NotADBError) as error:
        yield _unreadable(store, error)
        return
    with closing(connection):
        yield connection


def _open_exclusively(store: Path) -> apsw.Connection:
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
        for name in store.parent.glob(f"{store.name}.before-restore-*"):
            if name.samefile(store):  # left by a restore that was killed before the swap
                name.unlink()
        kept = store.with_name(f"{store.name}.before-restore-{_moment(now, '%Y%m%dT%H%M%S.%f')}Z")
        kept.hardlink_to(store)
        # Only a damaged store still has companions.
        for old, new in zip(companions(store), companions(kept), strict=True):
            if old.exists():
                old.rename(new)
        sync(store.parent)
    publish(draft, store)
    return kept


def _moment(now: int, pattern: str) -> str:
    """The pattern ends with microseconds, which are cut to milliseconds."""
    return datetime.fromtimestamp(now / 1000, UTC).strftime(pattern)[:-3]


async def _restore_schema(url: PostgresUrl, restored: _RestoredStore) -> RestoreResult:
    with tempfile.TemporaryDirectory(prefix="watchword-") as folder, _draft_errors("restore", f"{folder} (TMPDIR)"):
        draft = Path(folder) / "draft.db"
        async with maintenance_connection(url) as connection:
            await lock_exclusively(connection, url)
            now: int = await connection.fetchval(NOW)
            contents = await restored.copy(draft, now)
            await connection.execute("BEGIN")
            await lock_migrations(connection, url.schema)
            kept: str | None = None
            if await schema_version(connection, url.schema):
                await lock_tables(connection, url, "ACCESS EXCLUSIVE")
                kept = kept_schema_name(url.schema, now)
            seen = await _compared_with_schema(connection, url, restored.file, contents, now)
            revoked = await restored.prepare(draft, seen, now)
            if kept is not None:
                await connection.execute(f"ALTER SCHEMA {quoted(url.schema)} RENAME TO {quoted(kept)}")
            with closing(open_immutable(draft)) as ready:
                what = "The store made from the backup"
                await _fill_schema(SqliteTransaction(ready), connection, url, what, lambda _done, _total: None)
            return RestoreResult(seen, restored.choice, revoked, str(url), kept)


def kept_schema_name(schema: str, now: int) -> str:
    ending = f"_before_{_moment(now, '%Y%m%dt%H%M%S%f')}z"
    return schema[: LONGEST_SCHEMA_NAME - len(ending)] + ending


async def _compared_with_schema(
    connection: Connection, url: PostgresUrl, file: Path, contents: BackupContents, now: int
) -> RestorePreview:
    if not await schema_version(connection, url.schema):
        return RestorePreview(file, contents, None, _missing(url))
    with closing(await _excerpt(connection)) as current:
        return RestorePreview(file, contents, _compare(current, file, now))


async def _excerpt(source: Transaction) -> apsw.Connection:
    """What `_compare` reads, in a temporary SQLite file that is deleted with the connection."""
    current = apsw.Connection("", flags=READ_WRITE | apsw.SQLITE_OPEN_CREATE)
    current.execute("BEGIN")
    for table, columns in _COMPARED.items():
        current.execute(f"CREATE TABLE {table} ({', '.join(columns)})")
        names = ", ".join(column.split()[0] for column in columns)
        insert = f"INSERT INTO {table} VALUES ({', '.join('?' * len(columns))})"
        async for batch in batches(source, f"SELECT {names} FROM {table}"):
            current.executemany(insert, batch)
    for table, last in (await last_numbers(source)).items():
        current.execute(f"CREATE TABLE {table} ({NUMBERED[table]} INTEGER PRIMARY KEY AUTOINCREMENT)")
        current.execute(f"INSERT INTO {table} VALUES (?)", (last,))
    current.execute("COMMIT")
    return current
