"""The store over a database: every transaction, written once for SQLite and PostgreSQL."""

from watchword.stores.sql.accounts import SqlAccounts
from watchword.stores.sql.devices import SqlDevices
from watchword.stores.sql.events import SqlEvents
from watchword.stores.sql.expiry import SqlExpiry
from watchword.stores.sql.imports import SqlImports
from watchword.stores.sql.keys import SqlKeys
from watchword.stores.sql.mails import SqlMails
from watchword.stores.sql.operations import SqlOperations
from watchword.stores.sql.policies import SqlActors, SqlPolicies
from watchword.stores.sql.retention import SqlRetention
from watchword.stores.sql.retention_runs import SqlRetentionRuns
from watchword.stores.sql.sessions import SqlSessions
from watchword.stores.sql.token_counts import SqlTokenCounts
from watchword.stores.sql.token_lifecycle import SqlTokens
from watchword.stores.sql.uses import SqlUses
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
