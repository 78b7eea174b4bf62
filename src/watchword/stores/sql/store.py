"""The store over a database: what both backends share."""

from watchword.stores.sql.accounts import SqlAccounts, SqlSessions
from watchword.stores.sql.events import SqlEvents
from watchword.stores.sql.keys import SqlKeys
from watchword.stores.sql.operations import SqlOperations
from watchword.stores.sql.policies import SqlActors, SqlPolicies
from watchword.stores.sql.token_lifecycle import SqlTokens


class SqlStore(SqlTokens, SqlAccounts, SqlSessions, SqlPolicies, SqlActors, SqlKeys, SqlEvents, SqlOperations):
    """Verification, the insert of a token and searches are each backend's own, for speed."""
