"""The store backends under test. Stores opened at one location share its data.

To add a backend, add a class here and a name to `BACKENDS`.
"""

import functools
import json
import tempfile
from contextlib import closing
from dataclasses import replace
from pathlib import Path
from typing import Any, Protocol

import apsw
import psycopg
import pytest
from psycopg import sql

from tests.support.postgres import KINDS_IN_TURN as POSTGRES_KINDS
from tests.support.postgres import OLDEST, Address, Home, SharedClusters
from tests.support.waiting import SECONDS, until
from watchword.admin.check import check
from watchword.admin.tables import POSTGRES_TOTALS
from watchword.database.sqlite.connections import STORE_FILE
from watchword.database.transaction import ignore
from watchword.database.urls import PostgresUrl, SqliteUrl
from watchword.journal.events import KeptEvent
from watchword.setting_values import database
from watchword.stores import open_store as open_at
from watchword.stores import prepare
from watchword.stores.joined import Store
from watchword.stores.sqlite import open_store

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

    def deadlocks(self) -> int:
        """How many deadlocks the database resolved."""


class Backend(Protocol):
    def location(self) -> StoreLocation:
        """Create an empty location."""

    def release(self) -> None:
        """The test, or an example of it, is done with the locations that it got."""


@functools.cache
def _migrated_file(number: int) -> bytes:
    """A new store; each number has one of its own, because a store has its own node id. A copy takes a tenth of the
    time of the migrations.
    """
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder, "watchword.db")
        STORE_FILE.prepare(path)
        assert [file.name for file in path.parent.iterdir()] == [path.name], "the file alone is not the whole store"
        return path.read_bytes()


class SqliteLocation:
    def __init__(self, path: Path, number: int) -> None:
        self.path = path
        self.clock: SettableClock = AdjustableClock()
        path.parent.mkdir(mode=0o700, parents=True)
        path.touch(0o600)
        path.write_bytes(_migrated_file(number))

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
            moment: int = file.execute("SELECT at FROM probes").get
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

    def deadlocks(self) -> int:
        return 0  # SQLite has one writer at a time


_MANY = """
INSERT INTO tokens (id, type, name, actor_urn, owner_urn, created_at)
SELECT 'many ' || n, 'PERSONAL', 'many', {actor}, {actor}, 0 FROM {numbers}"""


def _event(row: tuple[Any, ...]) -> KeptEvent:
    at, actor, bearer_id, action, target, peer, request_id, detail = row
    return KeptEvent(at, actor, bearer_id, action, target, peer, request_id, json.loads(detail))


class SqliteBackend:
    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._made = 0

    def location(self) -> StoreLocation:
        self._made += 1
        return SqliteLocation(self._folder / f"store{self._made}" / "watchword.db", self._made)

    def release(self) -> None:
        """pytest removes the files."""


class DatabaseClock:
    """Replace the database's clock in this schema."""

    def __init__(self, connection: psycopg.Connection) -> None:
        self._connection = connection
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


class PostgresLocation:
    def __init__(self, home: Home) -> None:
        self.home = home
        address = database(home.url)
        assert isinstance(address, PostgresUrl)
        self.url = replace(address, schema=home.schema, timeout=SECONDS)
        prepare(self.url)
        self._connection = home.address.connect(home.schema, application_name=KEPT)
        self.clock: SettableClock = DatabaseClock(self._connection)
        self._schema = ReusableSchema(self._connection, home.schema)

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

    def deadlocks(self) -> int:
        self.home.look("SELECT pg_stat_clear_snapshot()")
        ((number,),) = self.home.look("SELECT deadlocks FROM pg_stat_database WHERE datname = current_database()")
        return int(number)

    def take(self) -> None:
        self._schema.take()

    def note_changes(self) -> None:
        self._schema.note_changes()

    def empty(self) -> bool:
        """Make it as new; false if it cannot be used again and was dropped."""
        if self._schema.empty():
            self.clock.now = NOW
            return True
        self._connection.close()
        self.home.drop()
        return False


KEPT = "kept between tests"
"""The name of connections that are not of a test."""

# A sequence, which no transaction waits for or takes back.
_COUNT_CHANGES = """
CREATE SEQUENCE public.schema_changes;
CREATE FUNCTION public.count_change() RETURNS event_trigger LANGUAGE plpgsql AS $$
BEGIN PERFORM nextval('public.schema_changes'); END $$;
CREATE EVENT TRIGGER count_changes ON ddl_command_end EXECUTE FUNCTION public.count_change()"""


class ReusableSchema:
    """A migrated schema for one test after another. To migrate and drop one takes 0.07 s of processor time, `TRUNCATE`
    of all tables 0.05 s, because each gets new files, and `DELETE` 0.001 s.

    A schema is used again only if the test changed no definition in this database, as an event trigger counts them.
    """

    MOST_BYTES = 8 << 20
    """The deleted rows of a larger one would slow the next tests."""

    def __init__(self, connection: psycopg.Connection, schema: str) -> None:
        self._connection = connection
        self._schema = schema
        tables = self._names("r")
        self._script = ";\n".join(
            [
                "BEGIN",
                "SET LOCAL lock_timeout = '60s'",
                f"LOCK TABLE {', '.join(tables)} IN ACCESS EXCLUSIVE MODE",
                "SET LOCAL session_replication_role = replica",  # fires no trigger
                *(f"DELETE FROM {table}" for table in tables),
                *(f"SELECT setval('{sequence}', 1, false)" for sequence in self._names("S")),
                *(self._insertion(table) for table in tables if self._rows(f"SELECT FROM {table}")),
                "COMMIT",
            ]
        ).encode()
        if not self._rows("SELECT 1 FROM pg_event_trigger"):
            connection.execute(_COUNT_CHANGES)
        self._changed = False
        self._changes = 0
        self.take()

    def take(self) -> None:
        """Whatever changes definitions from now on is the test."""
        self._changes = self._counted()

    def note_changes(self) -> None:
        self._changed = self._changed or self._counted() != self._changes

    def empty(self) -> bool:
        """Bring back the first rows; false if the schema cannot be used again. First waits until the connections of
        the test are gone: their locks would disturb the next one.
        """
        until(lambda: not self._rows(_CONNECTIONS), "the test's connections to PostgreSQL are closed")
        self.note_changes()
        ((size,),) = self._rows(
            f"SELECT sum(pg_relation_size(oid)) FROM pg_class WHERE relnamespace = '{self._schema}'::regnamespace"
        )
        if self._changed or size > self.MOST_BYTES:
            return False
        self._connection.execute(self._script)
        return True

    def _insertion(self, table: str) -> str:
        """A statement that inserts the rows which the table has now."""
        rows = [
            f"({', '.join(sql.Literal(value).as_string(self._connection) for value in row)})"
            for row in self._rows(f"SELECT * FROM {table}")
        ]
        return f"INSERT INTO {table} VALUES {', '.join(rows)}"

    def _counted(self) -> int:
        ((number,),) = self._rows("SELECT last_value FROM public.schema_changes")
        return int(number)

    def _names(self, kind: str) -> list[str]:
        where = f"relnamespace = '{self._schema}'::regnamespace AND relkind = '{kind}'"
        return [name for (name,) in self._rows(f"SELECT relname FROM pg_class WHERE {where} ORDER BY 1")]

    def _rows(self, query: str) -> list[Any]:
        return self._connection.execute(query.encode()).fetchall()


_CONNECTIONS = f"""
SELECT 1 FROM pg_stat_activity
WHERE datname = current_database() AND backend_type = 'client backend' AND application_name <> '{KEPT}'"""


class PostgresBackend:
    """Gives schemas that earlier tests of this process used, emptied."""

    def __init__(self, address: Address, folder: Path) -> None:
        self._address = address
        self._folder = folder
        self._free = _free_locations(address)
        self._used: list[PostgresLocation] = []

    def location(self) -> StoreLocation:
        if self._free:
            taken = self._free.pop()
        else:
            for location in self._used:
                location.note_changes()
            taken = PostgresLocation(Home(self._address, self._folder))
        self._used.append(taken)
        for location in self._used:
            location.take()
        return taken

    def release(self) -> None:
        while self._used:
            location = self._used.pop()
            if location.empty():
                self._free.append(location)


@functools.cache
def _free_locations(address: Address) -> list[PostgresLocation]:
    return []


BACKENDS = ("sqlite", *POSTGRES_KINDS, pytest.param(OLDEST, marks=pytest.mark.soak))


def backend_of(kind: str, folder: Path, clusters: SharedClusters) -> Backend:
    return SqliteBackend(folder) if kind == "sqlite" else PostgresBackend(clusters.apart(kind), folder)
