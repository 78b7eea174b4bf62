"""A file as source or target of a transfer."""

from collections.abc import AsyncIterator, Mapping
from typing import Any

import apsw

from watchword.stores.transfer import BATCH, NUMBERED, TABLES, Batch, Table

# What follows from the tokens; only those not revoked are counted.
_TOTALS = (
    "INSERT INTO token_totals SELECT 'all', '', count(*) FROM tokens WHERE revoked_at IS NULL",
    "INSERT INTO token_totals SELECT 'actor', actor_urn, count(*) FROM tokens WHERE revoked_at IS NULL GROUP BY 2",
    "INSERT INTO token_totals SELECT 'owner', owner_urn, count(*) FROM tokens WHERE revoked_at IS NULL GROUP BY 2",
)
_MADE_LATER = "SELECT type, name, sql FROM sqlite_master WHERE type IN ('index', 'trigger') AND sql IS NOT NULL"


class SqliteSource:
    """In the read transaction that is open on the connection, or of a file that nobody changes."""

    def __init__(self, connection: apsw.Connection) -> None:
        self._connection = connection

    async def count(self, table: Table) -> int:
        counted: int = self._connection.execute(table.counted).get
        return counted

    async def batches(self, table: Table) -> AsyncIterator[Batch]:
        rows = self._connection.execute(table.ordered)
        batch: Batch = []
        for row in rows:
            batch.append(row)
            if len(batch) == BATCH:
                yield batch
                batch = []
        if batch:
            yield batch

    async def last_numbers(self) -> Mapping[str, int]:
        kept: list[Any] = self._connection.execute("SELECT name, seq FROM sqlite_sequence").fetchall()
        known: dict[str, int] = dict(kept)
        return {name: known.get(name, 0) for name in NUMBERED}


class SqliteTarget(SqliteSource):
    """A draft of this version's schema: until it is flushed and named, it is nothing."""

    def __init__(self, connection: apsw.Connection) -> None:
        super().__init__(connection)
        self._later: list[Any] = []

    async def begin(self) -> None:
        for pragma in ("journal_mode = OFF", "synchronous = OFF", "cache_size = -131072", "temp_store = MEMORY"):
            self._connection.execute(f"PRAGMA {pragma}")
        self._connection.execute("BEGIN")
        # Made anew at the end, in the same words: quicker, and nothing is counted twice.
        self._later = self._connection.execute(_MADE_LATER).fetchall()
        for kind, name, _ in self._later:
            self._connection.execute(f"DROP {kind} {name}")
        for table in TABLES:
            self._connection.execute(f"DELETE FROM {table.name}")  # noqa: S608 - literal

    async def put(self, table: Table, batch: Batch) -> None:
        places = ", ".join("?" * len(table.columns))
        self._connection.executemany(
            f"INSERT INTO {table.name} ({', '.join(table.columns)}) VALUES ({places})",  # noqa: S608 - literal pieces
            batch,
        )

    async def finish(self, last_numbers: Mapping[str, int]) -> None:
        for statement in _TOTALS:
            self._connection.execute(statement)
        for name, last in last_numbers.items():
            self._connection.execute("DELETE FROM sqlite_sequence WHERE name = ?", (name,))
            self._connection.execute("INSERT INTO sqlite_sequence (name, seq) VALUES (?, ?)", (name, last))
        for _, _, sql in self._later:
            self._connection.execute(sql)
        self._connection.execute("COMMIT")
