"""A glance at the store: what can be seen quickly, at any size, without a trace.

A file that nobody has open is read as it lies there; one that is in use, through SQLite's own reading of its log.
"""

import json
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path

import apsw

from watchword.domain.accounts import AccountGain, gains
from watchword.domain.errors import OperatorError
from watchword.domain.store_urls import LastStart
from watchword.stores import rows
from watchword.stores.migrate import latest
from watchword.stores.sqlite.connections import DIALECT, open_unchanging, schema_version
from watchword.stores.sqlite.keys import Sealed, sealed_of

# Above this even reading the file once takes long; `db check` does it.
READ_WHOLE = 64 * 1024 * 1024
MOST_ACCOUNTS = 1_000
# Those that a policy can reach by more than by being for all users.
_ACCOUNTS = """
SELECT urn FROM service_accounts WHERE deleted_at IS NULL AND (
    urn IN (SELECT value FROM json_each(?)) OR EXISTS (SELECT 1 FROM group_members WHERE actor_urn = urn))
ORDER BY urn LIMIT ?
"""
_GROUPS = "SELECT actor_urn, group_urn FROM group_members WHERE actor_urn IN (SELECT value FROM json_each(?))"


@dataclass(frozen=True, slots=True)
class Glance:
    """`problem` where the file cannot be used; else what it holds. Tokens are those not revoked; the newest time is
    that of an event.
    """

    problem: str | None
    version: int = 0
    latest: int = 0
    tokens: int = 0
    read_whole: bool = False
    newest: int | None = None
    sealed: Sealed | None = None
    gains: tuple[AccountGain, ...] = ()
    """Who may do more by managing service accounts; not looked for in a store of an older version."""
    started: LastStart | None = None


def glance(path: Path) -> Glance:
    try:
        with closing(_open(path)) as connection:
            return _look(connection, path)
    except OperatorError as error:
        return Glance(str(error))
    except apsw.Error as error:
        return Glance(f"it cannot be read: {error}")


def _open(path: Path) -> apsw.Connection:
    if not path.with_name(f"{path.name}-wal").exists():
        return open_unchanging(path)
    connection = apsw.Connection(str(path.absolute()), flags=apsw.SQLITE_OPEN_READONLY)
    connection.config(apsw.SQLITE_DBCONFIG_NO_CKPT_ON_CLOSE, 1)
    connection.set_busy_timeout(2_000)
    return connection


def _look(connection: apsw.Connection, path: Path) -> Glance:
    version = schema_version(connection)
    if not version:
        return Glance("it is empty")
    small = path.stat().st_size <= READ_WHOLE
    found = connection.execute("PRAGMA quick_check(1)").get if small else "ok"
    if found != "ok":
        return Glance(f"it is damaged: {found}")
    current = version == latest(DIALECT)
    return Glance(
        None,
        version=version,
        latest=latest(DIALECT),
        tokens=connection.execute("SELECT total FROM token_totals WHERE kind = 'all' AND urn = ''").get or 0,
        read_whole=small,
        newest=connection.execute("SELECT at FROM events ORDER BY at DESC LIMIT 1").get,
        sealed=sealed_of(connection),
        gains=_gains(connection) if current else (),
        started=rows.last_start(connection.execute("SELECT settings FROM state").get) if current else None,
    )


def _gains(connection: apsw.Connection) -> tuple[AccountGain, ...]:
    policies = tuple(map(rows.policy_of, connection.execute(f"SELECT {rows.POLICY} FROM policies")))  # noqa: S608
    named = sorted({user for policy in policies for user in policy.users})
    accounts = [urn for (urn,) in connection.execute(_ACCOUNTS, (json.dumps(named), MOST_ACCOUNTS))]
    groups: dict[str, list[str]] = {}
    for actor, group in connection.execute(_GROUPS, (json.dumps([*named, *accounts]),)):
        groups.setdefault(actor, []).append(group)
    return tuple(gains(policies, groups, accounts))
