"""The stores under test. Each backend makes places; stores opened on one place share what is kept there.

A further backend is a further class here and a further word in `BACKENDS`: the contract's tests know none of them.
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


class Hand(Protocol):
    """A clock that tests set."""

    now: int

    def __call__(self) -> int: ...


class AdjustableClock:
    def __init__(self, now: int = NOW) -> None:
        self.now = now

    def __call__(self) -> int:
        return self.now


class Place(Protocol):
    """Where one store's content lies."""

    clock: Hand

    async def open(self) -> Store:
        """Another store on the same content, as another process would open it."""

    def events(self) -> list[KeptEvent]:
        """The events that are committed, oldest first, read past the store."""

    def probed_at(self) -> int:
        """When the last probe was committed, read past the store."""

    def problems(self) -> list[str]:
        """What the store's own check finds wrong."""

    def put_many(self, actor: str, count: int) -> None:
        """So many live tokens of an actor, past the store."""

    def migrate_again(self, name: str, before: str) -> None:
        """Run a statement, then the migration of this name."""

    def circles(self) -> int:
        """How often the backend had to end somebody's write because several waited for each other."""


class Backend(Protocol):
    def place(self) -> Place:
        """A new, empty place."""

    def close(self) -> None:
        """Leave nothing behind."""


class SqlitePlace:
    def __init__(self, path: Path) -> None:
        self.path = path
        self.clock: Hand = AdjustableClock()
        STORE_FILE.prepare(path)

    async def open(self) -> Store:
        return open_store(self.path, self.clock)

    def events(self) -> list[KeptEvent]:
        # By the driver the store uses: the standard library's own copy of SQLite in one process with it would, on
        # closing the file, drop the other's locks.
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

    def circles(self) -> int:
        return 0  # one writer at a time waits for nobody


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

    def place(self) -> Place:
        self._made += 1
        return SqlitePlace(self._folder / f"place{self._made}" / "watchword.db")

    def close(self) -> None:
        """Its files go with the test's folder."""


class DatabaseHand:
    """The hand of the database's clock, set by tests; all that ask this schema for the time are told it."""

    def __init__(self, home: Home) -> None:
        self._connection = home.connect()
        self._connection.execute("CREATE TABLE hand (now bigint)")
        self._connection.execute("INSERT INTO hand VALUES (%s)", (NOW,))
        self._connection.execute(
            "CREATE OR REPLACE FUNCTION now_ms() RETURNS bigint LANGUAGE sql VOLATILE AS 'SELECT now FROM hand'"
        )
        self._now = NOW

    @property
    def now(self) -> int:
        return self._now

    @now.setter
    def now(self, moment: int) -> None:
        self._connection.execute("UPDATE hand SET now = %s", (moment,))
        self._now = moment

    def __call__(self) -> int:
        return self._now

    def close(self) -> None:
        self._connection.close()


class PostgresPlace:
    def __init__(self, home: Home) -> None:
        self.home = home
        address = database(home.url)
        assert isinstance(address, PostgresUrl)
        self.place = replace(address, schema=home.schema, timeout=SECONDS)
        prepare(self.place)
        self.hand = DatabaseHand(home)
        self.clock: Hand = self.hand

    async def open(self) -> Store:
        return await open_at(self.place, self.clock, ignore)

    def events(self) -> list[KeptEvent]:
        columns = "at, actor, bearer_id, action, target, peer, request_id, detail"
        return [_event(row) for row in self.home.look(f"SELECT {columns} FROM events ORDER BY seq")]

    def probed_at(self) -> int:
        ((moment,),) = self.home.look("SELECT at FROM probes")
        return int(moment)

    def problems(self) -> list[str]:
        return [f"{law}: {problem}" for law, problem in check(self.place) if problem is not None]

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

    def circles(self) -> int:
        self.home.look("SELECT pg_stat_clear_snapshot()")
        ((number,),) = self.home.look("SELECT deadlocks FROM pg_stat_database WHERE datname = current_database()")
        return int(number)

    def close(self) -> None:
        self.hand.close()
        self.home.drop()


class PostgresBackend:
    def __init__(self, address: Address, folder: Path) -> None:
        self._address = address
        self._folder = folder
        self._made: list[PostgresPlace] = []

    def place(self) -> Place:
        self._made.append(PostgresPlace(Home(self._address, self._folder)))
        return self._made[-1]

    def close(self) -> None:
        for place in self._made:
            place.close()


BACKENDS = ("sqlite", *POSTGRES_KINDS, pytest.param(OLDEST, marks=pytest.mark.soak))


def backend_of(kind: str, folder: Path, clusters: SharedClusters) -> Backend:
    return SqliteBackend(folder) if kind == "sqlite" else PostgresBackend(clusters.apart(kind), folder)
