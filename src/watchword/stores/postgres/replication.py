"""Commits that a synchronous standby must confirm.

PostgreSQL commits on the primary and then waits for the standby. A wait that somebody cancels ends in success and a
warning. Every connection reports such a statement as one without an answer.
"""

from typing import Any

import asyncpg

# Takes a transaction id, so that its commit waits for the standby, and what was committed before it was written before.
CONFIRM = """SELECT CASE WHEN current_setting('synchronous_standby_names') <> ''
    THEN pg_logical_emit_message(true, 'watchword', '') END"""
WARNING = "01000"
WAITS = "syncrep.c"
"""The source file of the warning. Its text is translated, and other warnings have the same SQLSTATE."""


class WaitCancelled(ConnectionError):
    """The primary committed, and somebody cancelled its wait for the synchronous standby: a failover may undo it."""


class WatchedConnection(asyncpg.Connection):  # type: ignore[misc]  # comes without types
    """Raises `WaitCancelled` in place of the result of a statement that no standby confirmed. Prepared statements are
    not watched: ours only read.
    """

    __slots__ = ("_wait_cancelled",)

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self._wait_cancelled = False
        self.watch()

    def watch(self) -> None:
        """Once more after the pool has taken the connection back, which takes the listener off."""
        self.add_log_listener(self._notice)

    async def execute(self, *args: Any, **kwargs: Any) -> Any:
        return self._confirmed(await super().execute(*args, **kwargs))

    async def executemany(self, *args: Any, **kwargs: Any) -> Any:
        return self._confirmed(await super().executemany(*args, **kwargs))

    async def fetch(self, *args: Any, **kwargs: Any) -> Any:
        return self._confirmed(await super().fetch(*args, **kwargs))

    async def fetchrow(self, *args: Any, **kwargs: Any) -> Any:
        return self._confirmed(await super().fetchrow(*args, **kwargs))

    async def fetchval(self, *args: Any, **kwargs: Any) -> Any:
        return self._confirmed(await super().fetchval(*args, **kwargs))

    def _notice(self, _: Any, message: Any) -> None:
        """Called before the statement's result is handed on: the server sends the warning first."""
        if message.sqlstate == WARNING and message.server_source_filename in (None, WAITS):
            self._wait_cancelled = True

    def _confirmed(self, result: Any) -> Any:
        if self._wait_cancelled:
            raise WaitCancelled("the wait for the synchronous standby was cancelled")
        return result

    def _check_listeners(self, listeners: Any, listener_type: str) -> None:
        """The pool would warn of the listener on a connection that is put back."""
