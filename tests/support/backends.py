"""The store backends under test. Stores opened at one location share its data.

To add a backend, add a class here and a name to `BACKENDS`.
"""

import json
from contextlib import closing
from dataclasses import replace
from pathlib import Path
from typing import Any, Protocol

import apsw
import pytest

from tests.support.postgres import KINDS_IN_TURN as POSTGRES_KINDS
from tests.support.postgres import OLDEST, Address, Home, SharedClusters
from tests.support.waiting import SECONDS
from watchword.domain.events import KeptEvent
from watchword.domain.ports import Store
from watchword.domain.store_urls import PostgresUrl, SqliteUrl
from watchword.setting_values import database
from watchword.stores.admin.check import check
from watchword.stores.admin.tables import POSTGRES_TOTALS
from watchword.stores.migrations import migrations
from watchword.stores.open import open_store as open_at
from watchword.stores.open import prepare
from watchword.stores.sql.transaction import ignore
from watchword.stores.sqlite import open_store
from watchword.stores.sqlite.connections import STORE_FILE

NOW = 1_767_225_600_000


class SettableClock(Protocol):
    """A clock that tests set."""

    now: int

    def __call__(self) -> int: ...


class AdjustableClock:
    def __init__(self, now: int = NOW) -> None:
        self.now = now

    def __call__(self) -> int:
        return self.now


class StoreLocation(Protocol):
    """Where the data of a store is."""

    clock: SettableClock

    async def open(self) -> Store:
        """Open another store on the same data, as another process would."""

    def events(self) -> list[KeptEvent]:
        """The committed events, oldest first, read from the database."""

    def probed_at(self) -> int:
        """When the last probe was committed, read from the database."""

    def problems(self) -> list[str]:
        """The problems that `check` finds."""

    def put_many(self, actor: str, count: int) -> None:
        """Insert live tokens of an actor into the database."""

    def migrate_again(self, name: str, before: str) -> None:
        """Run a statement, then the migration of this name."""

    def deadlocks(self) -> int:
        """How many deadlocks the database resolved."""


class Backend(Protocol):
    def location(self) -> StoreLocation:
        """Create an empty location."""

    def close(self) -> None:
        """Remove every location."""


class SqliteLocation:
    def __init__(self, path: Path) -> None:
        self.path = path
        self.clock: SettableClock = AdjustableClock()
        STORE_FILE.prepare(path)

    async def open(self) -> Store:
        return open_store(self.path, self.clock)

    def events(self) -> list[KeptEvent]:
        # Use the driver of the store: closing the file in the sqlite3 module, a second copy of SQLite in this process,
        # would drop the locks of the store.
        columns = "at, actor, bearer_id, action, target, peer, request_id, detail"
        with closing(apsw.Connection(str(self.path), flags=apsw.SQLITE_OPEN_READONLY)) as file:
            rows = file.execute(f"SELECT {columns} FROM events ORDER BY seq").fetchall()
        return [_event(row) for row in rows]

    def probed_at(self) -> int:
        with closing(apsw.Connection(str(self.path), flags=apsw.SQLITE_OPEN_READONLY)) as file:
            moment: int = file.execute("SELECT probed_at FROM state").get
        return moment

    def problems(self) -> list[str]:
        return [f"{law}: {problem}" for law, problem in check(SqliteUrl(self.path)) if problem is not None]

    def put_many(self, actor: str, count: int) -> None:
        numbers = (
            f"(WITH RECURSIVE s (n) AS (SELECT 1 UNION ALL SELECT n + 1 FROM s WHERE n < {count}) SELECT n FROM s)"
        )
        with closing(apsw.Connection(str(self.path))) as file:
            file.execute("PRAGMA synchronous = OFF")
            file.execute(_MANY.format(actor="?1", numbers=numbers), (actor,))

    def migrate_again(self, name: str, before: str) -> None:
        with closing(apsw.Connection(str(self.path))) as file:
            file.execute(before)
            file.execute(_migration("sqlite", name))

    def deadlocks(self) -> int:
        return 0  # SQLite has one writer at a time


_MANY = """
INSERT INTO tokens (id, type, name, actor_urn, owner_urn, created_at)
SELECT 'many ' || n, 'PERSONAL', 'many', {actor}, {actor}, 0 FROM {numbers}"""


def _migration(dialect: str, name: str) -> str:
    (sql,) = (migration.sql for migration in migrations(dialect) if migration.name == name)
    return sql


def _event(row: tuple[Any, ...]) -> KeptEvent:
    at, actor, bearer_id, action, target, peer, request_id, detail = row
    return KeptEvent(at, actor, bearer_id, action, target, peer, request_id, json.loads(detail))


class SqliteBackend:
    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._made = 0

    def location(self) -> StoreLocation:
        self._made += 1
        return SqliteLocation(self._folder / f"store{self._made}" / "watchword.db")

    def close(self) -> None:
        """pytest removes the files."""


class DatabaseClock:
    """Replace the database's clock in this schema."""

    def __init__(self, home: Home) -> None:
        self._connection = home.connect()
        self._connection.execute("CREATE TABLE test_clock (now bigint)")
        self._connection.execute("INSERT INTO test_clock VALUES (%s)", (NOW,))
        self._connection.execute(
            "CREATE OR REPLACE FUNCTION now_ms() RETURNS bigint LANGUAGE sql VOLATILE AS 'SELECT now FROM test_clock'"
        )
        self._now = NOW

    @property
    def now(self) -> int:
        return self._now

    @now.setter
    def now(self, moment: int) -> None:
        self._connection.execute("UPDATE test_clock SET now = %s", (moment,))
        self._now = moment

    def __call__(self) -> int:
        return self._now

    def close(self) -> None:
        self._connection.close()


class PostgresLocation:
    def __init__(self, home: Home) -> None:
        self.home = home
        address = database(home.url)
        assert isinstance(address, PostgresUrl)
        self.url = replace(address, schema=home.schema, timeout=SECONDS)
        prepare(self.url)
        self.test_clock = DatabaseClock(home)
        self.clock: SettableClock = self.test_clock

    async def open(self) -> Store:
        return await open_at(self.url, self.clock, ignore)

    def events(self) -> list[KeptEvent]:
        columns = "at, actor, bearer_id, action, target, peer, request_id, detail"
        return [_event(row) for row in self.home.look(f"SELECT {columns} FROM events ORDER BY seq")]

    def probed_at(self) -> int:
        ((moment,),) = self.home.look("SELECT at FROM probes")
        return int(moment)

    def problems(self) -> list[str]:
        return [f"{law}: {problem}" for law, problem in check(self.url) if problem is not None]

    def put_many(self, actor: str, count: int) -> None:
        numbers = f"generate_series(1, {count}) AS n"
        self.home.look("ALTER TABLE tokens DISABLE TRIGGER USER")
        self.home.look(_MANY.format(actor=f"'{actor}'", numbers=numbers))
        self.home.look("ALTER TABLE tokens ENABLE TRIGGER USER")
        self.home.look(POSTGRES_TOTALS)

    def migrate_again(self, name: str, before: str) -> None:
        for statement in (before, *_migration("postgres", name).split(";\n")):
            if statement:
                self.home.look(statement)

    def deadlocks(self) -> int:
        self.home.look("SELECT pg_stat_clear_snapshot()")
        ((number,),) = self.home.look("SELECT deadlocks FROM pg_stat_database WHERE datname = current_database()")
        return int(number)

    def close(self) -> None:
        self.test_clock.close()
        self.home.drop()


class PostgresBackend:
    def __init__(self, address: Address, folder: Path) -> None:
        self._address = address
        self._folder = folder
        self._made: list[PostgresLocation] = []

    def location(self) -> StoreLocation:
        self._made.append(PostgresLocation(Home(self._address, self._folder)))
        return self._made[-1]

    def close(self) -> None:
        for location in self._made:
            location.close()


BACKENDS = ("sqlite", *POSTGRES_KINDS, pytest.param(OLDEST, marks=pytest.mark.soak))


def backend_of(kind: str, folder: Path, clusters: SharedClusters) -> Backend:
    return SqliteBackend(folder) if kind == "sqlite" else PostgresBackend(clusters.apart(kind), folder)
