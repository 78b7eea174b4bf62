"""The store on SQLite: one file, any number of worker processes."""

import time
from pathlib import Path

import apsw

from watchword.domain.ports import Clock
from watchword.stores.migrate import refuse_older
from watchword.stores.sqlite.accounts import SqliteAccounts
from watchword.stores.sqlite.actors import SqliteActors
from watchword.stores.sqlite.connections import DIALECT, connect, create_file, migrate, refuse_foreign, store_fault
from watchword.stores.sqlite.database import Database, Observe, ignore
from watchword.stores.sqlite.events import SqliteEvents
from watchword.stores.sqlite.keys import SqliteKeys
from watchword.stores.sqlite.lives import SqliteLives
from watchword.stores.sqlite.operations import SqliteOperations
from watchword.stores.sqlite.policies import SqlitePolicies
from watchword.stores.sqlite.sessions import SqliteSessions
from watchword.stores.sqlite.tokens import SqliteTokens

PROBE_SECONDS = 5.0


class SqliteStore(
    SqliteTokens,
    SqliteLives,
    SqliteAccounts,
    SqliteSessions,
    SqlitePolicies,
    SqliteActors,
    SqliteKeys,
    SqliteEvents,
    SqliteOperations,
):
    async def probe(self) -> None:
        now = self.clock()
        await self._db.write(lambda c: c.execute("UPDATE state SET probed_at = ?", (now,)), PROBE_SECONDS)

    async def close(self) -> None:
        await self._db.close()


def open_store(path: Path, clock: Clock, observe: Observe = ignore) -> SqliteStore:
    """The store in this file, which `prepare` has brought to this version."""
    try:
        return SqliteStore(Database(path, observe=observe), clock)
    except apsw.Error as error:
        raise store_fault(error) from error


def is_sealed(path: Path) -> bool:
    """Whether the store holds secrets that a master key has sealed."""
    connection = connect(path, busy_ms=2_000, read_only=True)
    try:
        return bool(connection.execute("SELECT sealed_salt IS NOT NULL FROM state").get)
    finally:
        connection.close()


def prepare(path: Path, patience: float = 10.0, *, may_migrate: bool = True) -> tuple[int, int]:
    """Make the file if need be and migrate it; returns the schema version before and after. Where it may not be
    migrated, refuse one of another version.
    """
    deadline = time.monotonic() + patience
    while True:
        try:
            create_file(path)
            found = refuse_foreign(path)
            if not may_migrate:
                refuse_older(path, found, DIALECT)
            connection = connect(path, busy_ms=2_000)
            try:
                return migrate(connection)
            finally:
                connection.close()
        except apsw.BusyError as error:
            # Turning a new file to WAL mode does not wait for another process that does the same.
            if time.monotonic() > deadline:
                raise store_fault(error) from error
            time.sleep(0.02)
        except apsw.Error as error:
            raise store_fault(error) from error
