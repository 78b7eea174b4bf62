"""`db restore`: replace a store by a backup, while the service is stopped.

A copy of the backup is migrated, its tokens are revoked if the operator chose so, and it is checked. Then it takes the
place of the store in one step: an SQLite file by a rename, a PostgreSQL schema by a transaction that renames the old
schema and fills a new one. A failure before that step changes nothing. The old store is kept under another name.
"""

import shutil
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, closing, contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import apsw

from watchword.admin import tables
from watchword.admin.backup import (
    LIVE,
    contents_of,
    draft_errors,
    draft_file,
    fill_schema,
    finish_draft,
    open_exclusively,
    open_to_read,
)
from watchword.admin.check import file_verdicts, require_sound
from watchword.admin.rules import (
    BackupContents,
    ChangesSinceBackup,
    CheckMasterKey,
    RestoreChoice,
    RestorePreview,
    RestoreResult,
)
from watchword.basics.errors import OperatorError
from watchword.basics.files import publish, sync
from watchword.database import rows
from watchword.database.postgres import maintenance
from watchword.database.postgres.connections import NOW, SNAPSHOT, Connection
from watchword.database.postgres.dialect import quoted
from watchword.database.sqlite.connections import STORE_FILE, connect, store_fault
from watchword.database.sqlite.database import SqliteTransaction
from watchword.database.sqlite.file import READ_WRITE, companions, immutable_uri, open_immutable
from watchword.database.transaction import Transaction
from watchword.database.urls import PostgresUrl, SqliteUrl, StoreUrl
from watchword.journal.events import Action, Detail, Event
from watchword.journal.preconditions import WritePrecondition
from watchword.journal.store import write_events

LONGEST_SCHEMA_NAME = 63
MAX_LISTED = 100
_LISTED = ("holds", "deletedAccounts", "suspensions", "releasedHolds")
"""What an event names, and how many of each."""

_PREPARED = "The store made from the backup"
_Since = tuple[ChangesSinceBackup | None, str | None]
"""What changed since the backup; or None, and why it is unknown."""

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


def _suspended_only_in(store: str, other: str) -> str:
    """Except deleted accounts, which are suspended too."""
    return f"""SELECT urn FROM {store}.actors WHERE status = 'SUSPENDED'
        AND urn NOT IN (SELECT urn FROM {store}.service_accounts WHERE deleted_at IS NOT NULL)
        EXCEPT SELECT urn FROM {other}.actors WHERE status = 'SUSPENDED'"""


# Columns of every schema version.
_POLICY = "urn, name, description, state, privileges, users, groups, all_users"

# What changed since, by the words of `ChangesSinceBackup`. `main` is the current store, `backup` the file.
_NAMES = {
    "revived": """
        SELECT kept.id FROM backup.tokens AS kept JOIN main.tokens AS current ON current.id = kept.id
        WHERE current.revoked_at IS NOT NULL AND kept.revoked_at IS NULL
            AND (kept.expires_at IS NULL OR kept.expires_at > :now)
        ORDER BY current.revoked_at DESC, kept.id""",
    "holds": """
        SELECT DISTINCT series FROM main.retention_holds
        WHERE series NOT IN (SELECT series FROM backup.retention_holds) ORDER BY 1""",
    "deletedAccounts": """
        SELECT urn FROM main.service_accounts WHERE deleted_at IS NOT NULL
        AND urn NOT IN (SELECT urn FROM backup.service_accounts WHERE deleted_at IS NOT NULL) ORDER BY 1""",
    "suspensions": f"{_suspended_only_in('main', 'backup')} ORDER BY 1",
    "releasedHolds": """
        SELECT DISTINCT series FROM backup.retention_holds
        WHERE series NOT IN (SELECT series FROM main.retention_holds) ORDER BY 1""",
    "resumedActors": f"{_suspended_only_in('backup', 'main')} ORDER BY 1",
}
_UNKNOWN = "SELECT count(*) FROM main.tokens WHERE id NOT IN (SELECT id FROM backup.tokens)"
_COUNTS = {
    "unknown": _UNKNOWN,
    "unknownLive": f"{_UNKNOWN} AND {LIVE}",
    "linksChanged": f"SELECT count(DISTINCT actor_urn) FROM {_differing('identities', 'issuer, subject, actor_urn')}",
    "policiesChanged": f"SELECT count(DISTINCT urn) FROM {_differing('policies', _POLICY)}",
    "membershipsChanged": f"SELECT count(*) FROM {_differing('group_members', 'actor_urn, group_urn')}",
    "retentionRulesChanged": f"SELECT count(DISTINCT series) FROM {_differing('retention_rules', 'series, rule')}",
    "webhooksChanged": f"SELECT count(DISTINCT id) FROM {_differing('webhooks', 'id, url, state')}",
    "signingKeysLost": "SELECT count(*) FROM main.keys WHERE kid NOT IN (SELECT kid FROM backup.keys)",
}
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

_SCHEMA = "SELECT type, name, tbl_name, sql FROM sqlite_master ORDER BY 1, 2"


async def preview(url: StoreUrl, file: Path, now: int, check_master_key: CheckMasterKey) -> RestorePreview:
    """What a restore of the file would change. Changes nothing."""
    if isinstance(url, PostgresUrl):
        async with maintenance.maintenance_connection(url) as connection:
            now = await connection.fetchval(NOW)
            contents = await examine(url, file, now, check_master_key)
            await connection.execute(SNAPSHOT)
            return RestorePreview(file, contents, *await _since_in_schema(connection, url, file, now))
    contents = await examine(url, file, now, check_master_key)
    with _since_in_file(url.path, file, now, exclusive=False) as since:
        return RestorePreview(file, contents, *since)


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
    backup = _Backup(file, choice, precondition, check_master_key)
    if isinstance(url, PostgresUrl):
        return await _restore_schema(url, backup)
    # The file behind a link: the draft must be on its disk, and it is the file to keep.
    store = url.path.resolve() if url.path.is_symlink() else url.path
    with draft_file(store, "restore") as draft, _since_in_file(store, file, now, exclusive=True) as since:
        if since[0] is None and choice is RestoreChoice.REVOKE_ALL and store.exists() and not without_current:
            raise OperatorError(
                f"Holds, deleted accounts, suspensions and links cannot be carried over: {since[1]}. To restore "
                "without those that are not in the backup, add --without-current-store. Nothing was changed."
            )
        seen, revoked = await backup.prepare(draft, since, now)
        kept = _swap(draft, store, now)
        return RestoreResult(seen, choice, revoked, str(store), None if kept is None else str(kept))


async def _restore_schema(url: PostgresUrl, backup: "_Backup") -> RestoreResult:
    with tempfile.TemporaryDirectory(prefix="watchword-") as folder, draft_errors("restore", f"{folder} (TMPDIR)"):
        draft = Path(folder) / "draft.db"
        async with maintenance.maintenance_connection(url) as connection:
            await maintenance.lock_exclusively(connection, url)
            now: int = await connection.fetchval(NOW)
            await connection.execute("BEGIN")
            await maintenance.lock_migrations(connection, url.schema)
            kept: str | None = None
            if await maintenance.schema_version(connection, url.schema):
                await tables.lock_tables(connection, url, "ACCESS EXCLUSIVE")
                kept = kept_schema_name(url.schema, now)
            since = await _since_in_schema(connection, url, backup.file, now)
            seen, revoked = await backup.prepare(draft, since, now)
            if kept is not None:
                await connection.execute(f"ALTER SCHEMA {quoted(url.schema)} RENAME TO {quoted(kept)}")
            with closing(open_immutable(draft)) as ready:
                await fill_schema(SqliteTransaction(ready), connection, url, _PREPARED, lambda _done, _total: None)
            return RestoreResult(seen, backup.choice, revoked, str(url), kept)


async def examine(url: StoreUrl, file: Path, now: int, check_master_key: CheckMasterKey) -> BackupContents:
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
            check_master_key(await tables.sealed_secrets(SqliteTransaction(backup)))
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
    with closing(tables.empty_schema(version)) as known:
        if backup.execute(_SCHEMA).fetchall() != known.execute(_SCHEMA).fetchall():
            raise OperatorError(f"The backup {file} was changed: its tables are not those of schema version {version}.")


@dataclass(frozen=True, slots=True)
class _Backup:
    file: Path
    choice: RestoreChoice
    precondition: WritePrecondition
    check_master_key: CheckMasterKey

    async def prepare(self, draft: Path, since: _Since, now: int) -> tuple[RestorePreview, int]:
        """Make the draft of the new store: a migrated copy with the choice applied. Returns how many tokens it revoked
        too.
        """
        shutil.copyfile(self.file, draft)
        seen = RestorePreview(self.file, await _examine_copy(draft, self.file, now, self.check_master_key), *since)
        with closing(connect(draft)) as connection:
            tables.set_for_draft(connection)
            try:
                STORE_FILE.migrate(connection)
            except apsw.Error as error:
                raise OperatorError(f"The backup cannot be migrated: {store_fault(error).message}") from None
            connection.execute("BEGIN")
            revoked = await self._change(connection, seen, now)
            connection.execute("COMMIT")
        await finish_draft(draft, now, _PREPARED)
        return seen, revoked

    async def _change(self, connection: apsw.Connection, seen: RestorePreview, now: int) -> int:
        by, since = self.precondition, seen.since
        version = since.policy_version if since else 0
        connection.execute(_RENEW, {"now": now, "actor": by.actor, "policy_version": version})
        numbers = since.numbers if since else {}
        for table in tables.NUMBERED:
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
            "revived": None if since is None else 0 if revoked else len(since.names["revived"]),
            "unknown": None if since is None else since.counts["unknown"],
        }
        if since is not None:
            detail |= {
                "carriedOver": self.choice is RestoreChoice.REVOKE_ALL,
                "links": since.counts["linksChanged"],
                **{what: list(since.names[what][:MAX_LISTED]) for what in _LISTED},
            }
        event = Event(Action.STORE_RESTORED, self.file.name, detail)
        await write_events(SqliteTransaction(connection, lambda: now), by, [event], now)
        return revoked


def _carry_over(connection: apsw.Connection, since: ChangesSinceBackup) -> None:
    linked_before = connection.execute("DELETE FROM identities RETURNING issuer, subject, actor_urn").fetchall()
    for table, rows_of_table in since.protection.items():
        connection.executemany(_CARRY[table], rows_of_table)
    connection.executemany(_LEAVE_GROUPS, linked_before)


@contextmanager
def _since_in_file(store: Path, file: Path, now: int, *, exclusive: bool) -> Iterator[_Since]:
    """With `exclusive`, the current store is locked meanwhile. A restore may replace a damaged one."""
    if not store.exists():
        for companion in companions(store) if exclusive else ():
            if companion.exists():
                raise OperatorError(f"There is no store at {store}, but {companion}. Move that away first.")
        yield _nothing_at(store)
        return
    with ExitStack() as stack:
        try:
            current = stack.enter_context(closing(open_exclusively(store) if exclusive else open_to_read(store)))
            since: _Since = _compare(current, file, now), None
        except apsw.Error as error:
            if exclusive and not isinstance(error, apsw.CorruptError | apsw.NotADBError):
                raise
            since = None, f"the store at {store} cannot be read ({error})"
        yield since


async def _since_in_schema(connection: Connection, url: PostgresUrl, file: Path, now: int) -> _Since:
    if not await maintenance.schema_version(connection, url.schema):
        return _nothing_at(url)
    with closing(await _excerpt(connection)) as current:
        return _compare(current, file, now), None


def _nothing_at(store: object) -> _Since:
    return None, f"there is no store at {store} to compare with"


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


def kept_schema_name(schema: str, now: int) -> str:
    ending = f"_before_{_moment(now, '%Y%m%dt%H%M%S%f')}z"
    return schema[: LONGEST_SCHEMA_NAME - len(ending)] + ending


def _compare(current: apsw.Connection, file: Path, now: int) -> ChangesSinceBackup:
    current.execute("ATTACH ? AS backup", (immutable_uri(file),))
    try:
        bound = {"now": now}
        names = {what: tuple(row[0] for row in current.execute(sql, bound)) for what, sql in _NAMES.items()}
        counts = {what: current.execute(sql, bound).get for what, sql in _COUNTS.items()}
        used: list[Any] = current.execute("SELECT name, seq FROM main.sqlite_sequence").fetchall()
        kept = {table: current.execute(select).fetchall() for table, select in _PROTECTION.items()}
        version: int = current.execute("SELECT policy_version FROM main.state").get
        return ChangesSinceBackup(names, counts, dict(used), kept, version)
    finally:
        current.execute("DETACH backup")


async def _excerpt(source: Transaction) -> apsw.Connection:
    """What `_compare` reads, in a temporary SQLite file that is deleted with the connection."""
    current = apsw.Connection("", flags=READ_WRITE | apsw.SQLITE_OPEN_CREATE)
    current.execute("BEGIN")
    for table, columns in _COMPARED.items():
        current.execute(f"CREATE TABLE {table} ({', '.join(columns)})")
        names = ", ".join(column.split()[0] for column in columns)
        insert = f"INSERT INTO {table} VALUES ({', '.join('?' * len(columns))})"
        async for batch in tables.batches(source, f"SELECT {names} FROM {table}"):
            current.executemany(insert, batch)
    for table, last in (await tables.last_numbers(source)).items():
        current.execute(f"CREATE TABLE {table} ({tables.NUMBERED[table]} INTEGER PRIMARY KEY AUTOINCREMENT)")
        current.execute(f"INSERT INTO {table} VALUES (?)", (last,))
    current.execute("COMMIT")
    return current
