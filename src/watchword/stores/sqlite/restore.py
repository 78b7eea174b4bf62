"""`db restore`: put a backup in the store's place. At every moment the old store or the new one is in place, whole.

The new one is made ready beside the store: migrated, its tokens revoked if that was chosen, its event left, checked
and flushed. Then the old one gets a second name, which is the way back, and the new one takes its first. While that
happens the old one is held for us alone, with its log folded in: a log left behind would be taken for the new one's.
"""

import os
import shutil
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from datetime import UTC, datetime
from pathlib import Path
from typing import NamedTuple

import apsw

from watchword.domain.actors import WritePrecondition
from watchword.domain.backups import Choice, Contents, Restored, RestorePreview, Since
from watchword.domain.errors import Fault, OperatorError
from watchword.domain.events import Action, Detail, Event
from watchword.files import create, draft_folder, publish, sync
from watchword.stores.migrate import MigrationError, latest, migrations
from watchword.stores.sql.transaction import write_events
from watchword.stores.sqlite.backup import LIVE, companions, contents_of, make_single, refuse_unsound
from watchword.stores.sqlite.check import laws
from watchword.stores.sqlite.connections import (
    APPLICATION_ID,
    DIALECT,
    connect,
    migrate,
    open_unchanging,
    refuse_foreign,
    store_fault,
    unchanging,
)
from watchword.stores.sqlite.database import SqliteTransaction, run
from watchword.stores.sqlite.keys import Sealed, sealed_of

# Whether they have expired is not asked: a clock that is ahead must not leave any of them alive.
_REVOKED_EVENTS = f"""
INSERT INTO events (at, actor, bearer_id, action, target, peer, request_id, detail)
SELECT :now, :actor, NULL, '{Action.TOKEN_REVOKED.value}', id, :peer, :request, json_object('actorUrn', actor_urn)
FROM tokens WHERE revoked_at IS NULL
"""  # noqa: S608 - literal pieces only
_REVOKE = "UPDATE tokens SET revoked_at = :now WHERE revoked_at IS NULL"

# Of `main`, the store here, against `backup`, the file.
_REVIVED = """
SELECT there.id FROM backup.tokens AS there JOIN main.tokens AS here ON here.id = there.id
WHERE here.revoked_at IS NOT NULL AND there.revoked_at IS NULL AND (there.expires_at IS NULL OR there.expires_at > :now)
ORDER BY here.revoked_at DESC, there.id
"""
_UNKNOWN = f"""
SELECT count(*), count(*) FILTER (WHERE {LIVE}) FROM main.tokens WHERE id NOT IN (SELECT id FROM backup.tokens)
"""  # noqa: S608
_SUSPENSIONS = """
SELECT count(*) FROM main.actors WHERE status = 'SUSPENDED'
    AND urn NOT IN (SELECT urn FROM backup.actors WHERE status = 'SUSPENDED')
"""
# What every version of the schema has.
_POLICY = "urn, name, description, state, privileges, users, groups, all_users"
_POLICIES = f"""
SELECT count(DISTINCT urn) FROM (
    SELECT * FROM (SELECT {_POLICY} FROM main.policies EXCEPT SELECT {_POLICY} FROM backup.policies)
    UNION ALL
    SELECT * FROM (SELECT {_POLICY} FROM backup.policies EXCEPT SELECT {_POLICY} FROM main.policies))
"""  # noqa: S608
_MEMBER = "actor_urn, group_urn"
_MEMBERSHIPS = f"""
SELECT count(*) FROM (
    SELECT * FROM (SELECT {_MEMBER} FROM main.group_members EXCEPT SELECT {_MEMBER} FROM backup.group_members)
    UNION ALL
    SELECT * FROM (SELECT {_MEMBER} FROM backup.group_members EXCEPT SELECT {_MEMBER} FROM main.group_members))
"""  # noqa: S608
_KEYS = "SELECT count(*) FROM main.keys WHERE kid NOT IN (SELECT kid FROM backup.keys)"

# What others may have seen of the store that is replaced must not come again with another meaning.
_VERSION_ON = "UPDATE state SET policy_version = max(policy_version, ?) + 1"
_EVENTS_ON = "UPDATE sqlite_sequence SET seq = max(seq, ?) WHERE name = 'events'"
_LAST_OPERATION = "SELECT ifnull(max(seq), 0) FROM main.sqlite_sequence WHERE name = 'operations'"
_OPERATIONS_KNOWN = """
INSERT INTO sqlite_sequence (name, seq)
SELECT 'operations', 0 WHERE NOT EXISTS (SELECT 1 FROM sqlite_sequence WHERE name = 'operations')
"""
_OPERATIONS_ON = "UPDATE sqlite_sequence SET seq = max(seq, ?) WHERE name = 'operations'"
# What was under way when the backup was made has long ended, or been cancelled: nobody asks for it now. Cancelled
# and not just forgotten, so that what it had made in the index is removed.
_STOP_OPERATIONS = """
UPDATE operations SET cancel_asked_at = :now, cancel_asked_by = :actor, held_until = 0
WHERE finished_at IS NULL AND cancel_asked_at IS NULL
"""
# It may have signed since the backup was made, and lay about with it: the next start makes another.
_FORGET_NEXT_KEY = "DELETE FROM next_key"
# One that was signed out since must not come back.
_FORGET_SESSIONS = "DELETE FROM sessions"

_SCHEMA = "SELECT type, name, tbl_name, sql FROM sqlite_master ORDER BY 1, 2"


def preview(store: Path, file: Path, now: int, prove: Callable[[Sealed], None]) -> RestorePreview:
    """What putting the file back means, once everything that must hold of it does. Changes nothing."""
    contents = examine(store, file, now, prove)
    if not store.exists():
        return RestorePreview(file, contents, None, f"there is no store at {store} to compare with")
    try:
        refuse_foreign(store)
        with closing(connect(store, busy_ms=2_000, read_only=True)) as here:
            return RestorePreview(file, contents, compare(here, file, now))
    except apsw.Error as error:
        return RestorePreview(file, contents, None, _unreadable(store, error))


def restore(
    store: Path, file: Path, choice: Choice, precondition: WritePrecondition, now: int, prove: Callable[[Sealed], None]
) -> Restored:
    """With no service running. What is put in place was examined itself, not only the file it was copied from."""
    try:
        with draft_folder(store) as folder, _held(store) as held:
            draft = folder / "draft.db"
            copy_file(file, draft)
            contents = examined(draft, file, now, prove)
            seen = _seen(held, store, file, contents, now)
            revoked = make_ready(draft, seen, choice, precondition, now)
            refuse_unsound(draft, "The store made from the backup")
            make_single(draft, now)
            sync(draft)
            kept = _swap(draft, store, now)
            return Restored(seen, choice, revoked, str(store), None if kept is None else str(kept))
    except apsw.FullError:
        raise OperatorError(f"There is no room beside {store} for another store. Nothing was changed.") from None
    except apsw.Error as error:
        raise OperatorError(f"Nothing was restored: {store_fault(error).message}") from error


def examine(store: Path | None, file: Path, now: int, prove: Callable[[Sealed], None]) -> Contents:
    """What the file holds; raises unless it is a sound backup of a version we know, which our master key opens."""
    if not file.is_file():
        raise OperatorError(f"FILE must be a backup made by: watchword db backup. There is no file {file}.")
    if store is not None and store.exists() and file.samefile(store):
        raise OperatorError(f"FILE must be a backup, not the store itself; {file} is.")
    for companion in companions(file):
        if not companion.name.endswith("-shm") and companion.exists() and companion.stat().st_size:
            raise OperatorError(
                f"FILE must be whole by itself; {companion} holds a part of it. Use a file made by: watchword db backup"
            )
    return examined(file, file, now, prove)


def examined(copy: Path, file: Path, now: int, prove: Callable[[Sealed], None]) -> Contents:
    try:
        with closing(open_unchanging(copy)) as backup:
            _refuse_other_schema(backup, file)
            for law, problem in laws(backup, older_too=True):
                if problem is not None:
                    raise OperatorError(f"The backup {file} is not sound. What must hold: {law}. It is: {problem}")
            prove(sealed_of(backup))
            return contents_of(backup, now)
    except apsw.NotADBError:
        raise OperatorError(f"FILE must be a backup made by: watchword db backup. {file} is not one.") from None
    except apsw.Error as error:
        raise OperatorError(f"The backup {file} is damaged ({error}). Use another.") from None


def _refuse_other_schema(backup: apsw.Connection, file: Path) -> None:
    """The file's tables and triggers must be those of a version we know, word for word."""
    version: int = backup.execute("PRAGMA user_version").get
    if backup.execute("PRAGMA application_id").get != APPLICATION_ID or not version:
        raise OperatorError(f"FILE must be a backup made by: watchword db backup. {file} is not one.")
    if version > latest(DIALECT):
        raise OperatorError(
            f"The backup {file} is of schema version {version}; this Watchword knows versions up to {latest(DIALECT)}. "
            "Restore it with the newer Watchword that made it."
        )
    with closing(apsw.Connection(":memory:")) as known:
        for migration in migrations(DIALECT)[:version]:
            known.execute(migration.sql)
        if backup.execute(_SCHEMA).fetchall() != known.execute(_SCHEMA).fetchall():
            raise OperatorError(f"The backup {file} has not the tables of schema version {version}: it was changed.")


def compare(here: apsw.Connection, file: Path, now: int) -> Since:
    here.execute("ATTACH ? AS backup", (unchanging(file),))
    try:
        bound = {"now": now}
        unknown, unknown_live = here.execute(_UNKNOWN, bound).get
        return Since(
            revived=tuple(row[0] for row in here.execute(_REVIVED, bound)),
            unknown=unknown,
            unknown_live=unknown_live,
            suspensions=here.execute(_SUSPENSIONS).get,
            policies=here.execute(_POLICIES).get,
            memberships=here.execute(_MEMBERSHIPS).get,
            keys=here.execute(_KEYS).get,
            policy_version=here.execute("SELECT policy_version FROM main.state").get,
            last_event=here.execute("SELECT ifnull(max(seq), 0) FROM main.events").get,
            last_operation=here.execute(_LAST_OPERATION).get,
        )
    finally:
        here.execute("DETACH backup")


def _seen(held: "_Held", store: Path, file: Path, contents: Contents, now: int) -> RestorePreview:
    if held.connection is None:
        return RestorePreview(file, contents, None, held.unreadable)
    try:
        return RestorePreview(file, contents, compare(held.connection, file, now))
    except apsw.CorruptError as error:
        return RestorePreview(file, contents, None, _unreadable(store, error))


class _Held(NamedTuple):
    connection: apsw.Connection | None
    unreadable: str | None


@contextmanager
def _held(store: Path) -> Iterator[_Held]:
    """The store that is there, for us alone, as one file. A damaged one is what restores are for."""
    if not store.exists():
        for companion in companions(store):
            if companion.exists():
                raise OperatorError(f"There is no store at {store}, but {companion}. Move that away first.")
        yield _Held(None, f"there is no store at {store} to compare with")
        return
    try:
        connection = alone(store)
    except (apsw.CorruptError, apsw.NotADBError) as error:
        yield _Held(None, _unreadable(store, error))
        return
    with closing(connection):
        yield _Held(connection, None)


def alone(store: Path) -> apsw.Connection:
    refuse_foreign(store)
    connection = connect(store, busy_ms=2_000)
    try:
        # Fails while anybody else has the file open: what they wrote would be lost with the old store.
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


def _unreadable(store: Path, error: apsw.Error) -> str:
    return f"the store at {store} cannot be read ({error})"


def copy_file(file: Path, draft: Path) -> None:
    os.close(create(draft))
    shutil.copyfile(file, draft)


def make_ready(draft: Path, seen: RestorePreview, choice: Choice, precondition: WritePrecondition, now: int) -> int:
    """Bring the copy to this version and to the choice; returns how many tokens were revoked."""
    with closing(connect(draft, busy_ms=2_000)) as connection:
        # The draft as a whole is the transaction: until it is flushed and named, it is nothing.
        for pragma in ("journal_mode = OFF", "synchronous = OFF", "cache_size = -131072", "temp_store = MEMORY"):
            connection.execute(f"PRAGMA {pragma}")
        try:
            migrate(connection)
        except Fault as fault:
            raise MigrationError(f"The backup cannot be brought to this version: {fault.message}") from None
        connection.execute("BEGIN")
        connection.execute(_EVENTS_ON, (seen.since.last_event if seen.since else 0,))
        connection.execute(_OPERATIONS_KNOWN)
        connection.execute(_OPERATIONS_ON, (seen.since.last_operation if seen.since else 0,))
        connection.execute(_STOP_OPERATIONS, {"now": now, "actor": precondition.actor})
        connection.execute(_FORGET_NEXT_KEY)
        connection.execute(_FORGET_SESSIONS)
        revoked = 0
        if choice is Choice.REVOKE_ALL:
            who = {
                "now": now,
                "actor": precondition.actor,
                "peer": precondition.peer,
                "request": precondition.request_id,
            }
            connection.execute(_REVOKED_EVENTS, who)
            connection.execute(_REVOKE, {"now": now})
            revoked = connection.changes()
        connection.execute(_VERSION_ON, (seen.since.policy_version if seen.since else 0,))
        event = Event(Action.STORE_RESTORED, seen.file.name, _detail(seen, choice))
        run(write_events(SqliteTransaction(connection, lambda: now), precondition, [event], now))
        connection.execute("COMMIT")
        return revoked


def _detail(seen: RestorePreview, choice: Choice) -> dict[str, Detail]:
    since = seen.since
    return {
        "choice": choice.value,
        "live": seen.contents.live,
        "lastChange": seen.contents.last_change,
        "revoked": seen.contents.unrevoked if choice is Choice.REVOKE_ALL else 0,
        "revived": None if since is None else 0 if choice is Choice.REVOKE_ALL else len(since.revived),
        "unknown": None if since is None else since.unknown,
    }


def _swap(draft: Path, store: Path, now: int) -> Path | None:
    kept = None
    if store.exists():
        _forget_killed(store)
        moment = datetime.fromtimestamp(now / 1000, UTC).strftime("%Y%m%dT%H%M%S.%f")[:-3]
        kept = store.with_name(f"{store.name}.before-restore-{moment}Z")
        kept.hardlink_to(store)
        # Only a damaged store has companions now.
        for old, new in zip(companions(store), companions(kept), strict=True):
            if old.exists():
                old.rename(new)
        sync(store.parent)
    publish(draft, store)
    return kept


def _forget_killed(store: Path) -> None:
    """A restore that was killed before the swap leaves a second name of the store itself."""
    for name in store.parent.glob(f"{store.name}.before-restore-*"):
        if name.samefile(store):
            name.unlink()
