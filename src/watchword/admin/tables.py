"""The tables that make up a store, and how they are copied from one store to another.

Both databases have the same tables and columns, and return their rows in the same order. Derived values (totals, folded
names) are not copied: the target computes them. Memory is bounded by one batch. The rows read from the source and those
read back from the target must have the same digest.
"""

from collections.abc import AsyncIterator, Callable, Iterator, Mapping
from contextlib import closing
from dataclasses import dataclass
from hashlib import sha256
from operator import itemgetter
from typing import Any

import apsw
import orjson
from asyncpg import exceptions as pg

from watchword.admin.rules import CopyResult, SealedSecrets
from watchword.basics.errors import OperatorError
from watchword.database.postgres.connections import Connection
from watchword.database.postgres.dialect import folded
from watchword.database.sqlite.connections import STORE_FILE
from watchword.database.sqlite.database import SqliteTransaction
from watchword.database.transaction import Transaction
from watchword.database.urls import PostgresUrl

BATCH = 2_000

Batch = list[tuple[Any, ...]]
Progress = Callable[[int, int], None]
"""Called after each batch with the amounts done and total."""


@dataclass(frozen=True, slots=True)
class Table:
    name: str
    names: tuple[str, ...]
    """Of its columns."""
    key: str

    @property
    def columns(self) -> str:
        return ", ".join(self.names)

    @property
    def select(self) -> str:
        return f"SELECT {self.columns} FROM {self.name} ORDER BY {self.key}"


_NOT_COPIED = ("sessions", "devices", "token_totals", "change_rates", "probes", "sqlite_sequence")
_COLUMNS_NOT_COPIED = {("event_cursors", "holder"), ("event_cursors", "held_until")}


def empty_schema(version: int) -> apsw.Connection:
    """The tables of an SQLite store of this version, in memory."""
    schema = apsw.Connection(":memory:")
    for migration in STORE_FILE.migrations[:version]:
        schema.execute(migration)
    return schema


def _tables() -> Iterator[tuple[Table, bool]]:
    """Each table, and whether its numbers are never used again. Both databases have the same tables and columns."""
    listed = "SELECT name, sql LIKE '%AUTOINCREMENT%' FROM sqlite_master WHERE type = 'table' ORDER BY rowid"
    with closing(empty_schema(STORE_FILE.latest)) as schema:
        found: list[Any] = schema.execute(listed).fetchall()
        for name, is_numbered in found:
            if name not in _NOT_COPIED:
                columns: list[Any] = schema.execute("SELECT name, pk FROM pragma_table_info(?)", (name,)).fetchall()
                key = ", ".join(column for column, place in sorted(columns, key=itemgetter(1)) if place)
                names = tuple(column for column, _ in columns if (name, column) not in _COLUMNS_NOT_COPIED)
                yield Table(name, names, key), bool(is_numbered)


_ALL = tuple(_tables())
TABLES = tuple(table for table, _ in _ALL)
NUMBERED = {table.name: table.key for table, is_numbered in _ALL if is_numbered}
"""Tables whose numbers are never used again, even after their rows were deleted."""
_LOCKED = ", ".join([*(table.name for table in TABLES), *_NOT_COPIED[:-1]])
_TOTALS = """
INSERT INTO token_totals SELECT 'all', ''{slot}, count(*) FROM tokens WHERE revoked_at IS NULL
UNION ALL SELECT 'actor', actor_urn{slot}, count(*) FROM tokens WHERE revoked_at IS NULL GROUP BY actor_urn
UNION ALL SELECT 'owner', owner_urn{slot}, count(*) FROM tokens WHERE revoked_at IS NULL GROUP BY owner_urn"""
POSTGRES_TOTALS = _TOTALS.format(slot=", 0")
_NAMES = ", ".join(f"'{name}'" for name in NUMBERED)
_SQLITE_NUMBERS = f"SELECT name, seq FROM sqlite_sequence WHERE name IN ({_NAMES})"
_PAIRS = ", ".join(f"('{name}', '{key}')" for name, key in NUMBERED.items())
_POSTGRES_NUMBERS = f"""
SELECT name, coalesce(pg_sequence_last_value(pg_get_serial_sequence(name, key)::regclass), 0)
FROM (VALUES {_PAIRS}) AS numbered (name, key)"""


async def last_numbers(tx: Transaction) -> dict[str, int]:
    """The highest number ever used in each table of `NUMBERED`."""
    statement = _SQLITE_NUMBERS if isinstance(tx, SqliteTransaction) else _POSTGRES_NUMBERS
    return {**dict.fromkeys(NUMBERED, 0), **{name: int(number) for name, number in await tx.fetch(statement)}}


async def batches(tx: Transaction, statement: str) -> AsyncIterator[Batch]:
    batch: Batch = []
    async for row in tx.stream(statement, prefetch=BATCH):
        batch.append(tuple(row))
        if len(batch) == BATCH:
            yield batch
            batch = []
    if batch:
        yield batch


async def sealed_secrets(tx: Transaction) -> SealedSecrets:
    salt = await tx.fetchval("SELECT sealed_salt FROM state")
    keys = list(await tx.fetch("SELECT kid, sealed_private FROM keys"))
    keys += await tx.fetch("SELECT kid, sealed_private FROM next_key")
    return SealedSecrets(salt, [(kid, private) for kid, private in keys])


async def count_rows(tx: Transaction) -> dict[str, int]:
    return {table.name: await tx.fetchval(f"SELECT count(*) FROM {table.name}") for table in TABLES}


async def copy_tables(source: Transaction, target: "SqliteTarget | PostgresTarget", progress: Progress) -> CopyResult:
    """Fill the target from the source. Raises unless the target then returns the same rows."""
    counts = await count_rows(source)
    total = 2 * sum(counts.values())
    numbers = await last_numbers(source)
    sent, received = sha256(), sha256()
    done = 0
    await target.begin()
    for table in TABLES:
        async for batch in batches(source, table.select):
            sent.update(_encoded(table, batch))
            await target.insert(table, batch)
            progress(done := done + len(batch), total)
    await target.finish(numbers)
    for table in TABLES:
        async for batch in batches(target.tx, table.select):
            received.update(_encoded(table, batch))
            progress(done := done + len(batch), total)
    if sent.digest() != received.digest() or await last_numbers(target.tx) != numbers:
        raise OperatorError("The rows in the target differ from those in the source. Nothing was changed.")
    return CopyResult(counts, sent.hexdigest())


def _encoded(table: Table, batch: Batch) -> bytes:
    return b"".join(
        orjson.dumps((table.name, *row), default=bytes.hex, option=orjson.OPT_APPEND_NEWLINE) for row in batch
    )


_INDICES_AND_TRIGGERS = (
    "SELECT type, name, sql FROM sqlite_master WHERE type IN ('index', 'trigger') AND sql IS NOT NULL"
)


class SqliteTarget:
    """A draft file. It needs no journal: a draft that is not finished is deleted."""

    def __init__(self, connection: apsw.Connection) -> None:
        self._connection = connection
        self.tx: Transaction = SqliteTransaction(connection)
        self._dropped: list[Any] = []

    async def begin(self) -> None:
        set_for_draft(self._connection)
        self._connection.execute("BEGIN")
        # `finish` creates them again with the same SQL: faster, and the triggers count nothing twice.
        self._dropped = self._connection.execute(_INDICES_AND_TRIGGERS).fetchall()
        for kind, name, _ in self._dropped:
            self._connection.execute(f"DROP {kind} {name}")
        for table in TABLES:
            self._connection.execute(f"DELETE FROM {table.name}")

    async def insert(self, table: Table, batch: Batch) -> None:
        values = ", ".join("?" * len(table.names))
        self._connection.executemany(f"INSERT INTO {table.name} ({table.columns}) VALUES ({values})", batch)

    async def finish(self, numbers: Mapping[str, int]) -> None:
        self._connection.execute(_TOTALS.format(slot=""))
        for name, last in numbers.items():
            self._connection.execute("DELETE FROM sqlite_sequence WHERE name = ?", (name,))
            self._connection.execute("INSERT INTO sqlite_sequence (name, seq) VALUES (?, ?)", (name, last))
        for _, _, sql in self._dropped:
            self._connection.execute(sql)
        self._connection.execute("COMMIT")


def set_for_draft(connection: apsw.Connection) -> None:
    """A draft is flushed once, when it is finished."""
    for pragma in ("journal_mode = OFF", "synchronous = OFF", "cache_size = -131072", "temp_store = MEMORY"):
        connection.execute(f"PRAGMA {pragma}")


_SET_NUMBER = "SELECT setval(pg_get_serial_sequence($1, $2), greatest($3::bigint, 1), $3::bigint > 0)"
_FOLDED = ("name", "description")
_COUNTED_BY_TRIGGER = ("tokens", "group_members")


class PostgresTarget:
    def __init__(self, connection: Connection) -> None:
        self._connection = connection
        self.tx: Transaction = connection

    async def begin(self) -> None:
        for name in _COUNTED_BY_TRIGGER:
            await self._connection.execute(f"ALTER TABLE {name} DISABLE TRIGGER USER")
        await self._connection.execute("DELETE FROM state")

    async def insert(self, table: Table, batch: Batch) -> None:
        columns = list(table.names)
        if table.name == "tokens":
            positions = [columns.index(name) for name in _FOLDED]
            columns += [f"{name}_folded" for name in _FOLDED]
            batch = [(*row, *(folded(row[position]) for position in positions)) for row in batch]
        await self._connection.copy_records_to_table(table.name, records=batch, columns=columns)

    async def finish(self, numbers: Mapping[str, int]) -> None:
        await self._connection.execute(POSTGRES_TOTALS)
        last_key = await self._connection.fetchval("SELECT coalesce(max(seq), 0) FROM keys")
        for name, column in NUMBERED.items():
            await self._connection.execute(_SET_NUMBER, name, column, numbers[name])
        await self._connection.execute(_SET_NUMBER, "keys", "seq", last_key)
        for name in _COUNTED_BY_TRIGGER:
            await self._connection.execute(f"ALTER TABLE {name} ENABLE TRIGGER USER")
        names = ", ".join(table.name for table in TABLES)
        await self._connection.execute(f"ANALYZE {names}, token_totals")


async def lock_tables(connection: Connection, url: PostgresUrl, mode: str) -> None:
    """Until the transaction ends, also against sessions that are not Watchword's."""
    try:
        await connection.execute(f"LOCK TABLE {_LOCKED} IN {mode} MODE")
    except pg.LockNotAvailableError:
        raise OperatorError(f"Another session uses the store at {url}. Stop it, then try again.") from None
