"""The store over a database: every transaction, written once for SQLite and PostgreSQL; and its migrations.

Migrations are numbered SQL files, each applied once, in order, whole or not at all.
"""

from dataclasses import dataclass
from functools import cache
from importlib.resources import files

from watchword.stores.sql.counts import SqlTokenCounts, SqlUses
from watchword.stores.sql.devices import SqlDevices
from watchword.stores.sql.events import SqlEvents
from watchword.stores.sql.imports import SqlImports
from watchword.stores.sql.keys import SqlKeys
from watchword.stores.sql.mails import SqlMails
from watchword.stores.sql.operations import SqlOperations
from watchword.stores.sql.policies import SqlAccounts, SqlActors, SqlPolicies
from watchword.stores.sql.retention import SqlRetention, SqlRetentionRuns
from watchword.stores.sql.sessions import SqlSessions
from watchword.stores.sql.token_lifecycle import SqlExpiry, SqlTokens
from watchword.stores.sql.webhooks import SqlWebhooks


class SqlStore(
    SqlTokens,
    SqlTokenCounts,
    SqlUses,
    SqlAccounts,
    SqlSessions,
    SqlDevices,
    SqlPolicies,
    SqlActors,
    SqlKeys,
    SqlEvents,
    SqlOperations,
    SqlRetention,
    SqlRetentionRuns,
    SqlImports,
    SqlWebhooks,
    SqlExpiry,
    SqlMails,
):
    """Each backend adds verification, the insert of a token and searches, for speed."""


@dataclass(frozen=True, slots=True)
class Migration:
    number: int
    name: str
    sql: str


@cache
def migrations(dialect: str) -> tuple[Migration, ...]:
    folder = files("watchword.stores") / "sql" / dialect
    found = sorted(entry.name for entry in folder.iterdir() if entry.name.endswith(".sql"))
    return tuple(Migration(int(name[:4]), name[5:-4], (folder / name).read_text(encoding="utf-8")) for name in found)


def latest(dialect: str) -> int:
    return migrations(dialect)[-1].number
