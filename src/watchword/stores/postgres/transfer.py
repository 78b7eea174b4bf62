"""A schema as source or target of a transfer, in the transaction that is open on the connection."""

from collections.abc import AsyncIterator, Mapping
from typing import Any

from watchword.stores.postgres.connections import Connection, folded
from watchword.stores.transfer import BATCH, NUMBERED, TABLES, Batch, Table

_FOLDED = ("name", "description")
_UNNUMBERED = "SELECT coalesce(pg_sequence_last_value(pg_get_serial_sequence($1, $2)::regclass), 0)"
_NUMBER = "SELECT setval(pg_get_serial_sequence($1, $2), greatest($3::bigint, 1), $3::bigint > 0)"
TOTALS = """
INSERT INTO token_totals (kind, urn, slot, total)
SELECT 'all', '', 0, count(*) FROM tokens WHERE revoked_at IS NULL
UNION ALL SELECT 'actor', actor_urn, 0, count(*) FROM tokens WHERE revoked_at IS NULL GROUP BY actor_urn
UNION ALL SELECT 'owner', owner_urn, 0, count(*) FROM tokens WHERE revoked_at IS NULL GROUP BY owner_urn"""
_COUNTING = ("tokens", "group_members")


class PostgresSource:
    def __init__(self, connection: Connection) -> None:
        self._connection = connection

    async def count(self, table: Table) -> int:
        return int(await self._connection.fetchval(table.counted))

    async def batches(self, table: Table) -> AsyncIterator[Batch]:
        batch: Batch = []
        async for row in self._connection.cursor(table.ordered, prefetch=BATCH):
            batch.append(tuple(row))
            if len(batch) == BATCH:
                yield batch
                batch = []
        if batch:
            yield batch

    async def last_numbers(self) -> Mapping[str, int]:
        return {
            name: int(await self._connection.fetchval(_UNNUMBERED, name, column)) for name, column in NUMBERED.items()
        }


class PostgresTarget(PostgresSource):
    """Of this version's schema. What the tables count themselves is counted once, at the end."""

    async def begin(self) -> None:
        for name in _COUNTING:
            await self._connection.execute(f"ALTER TABLE {name} DISABLE TRIGGER USER")
        await self._connection.execute("DELETE FROM state")

    async def put(self, table: Table, batch: Batch) -> None:
        columns: tuple[str, ...] = table.columns
        if table.name == "tokens":
            columns = (*columns, *(f"{name}_folded" for name in _FOLDED))
            places = [table.columns.index(name) for name in _FOLDED]
            batch = [(*row, *(folded(row[place]) for place in places)) for row in batch]
        await self._connection.copy_records_to_table(table.name, records=batch, columns=columns)

    async def finish(self, last_numbers: Mapping[str, int]) -> None:
        await self._connection.execute(TOTALS)
        for name, column in NUMBERED.items():
            await self._number(name, column, last_numbers[name])
        await self._number("keys", "seq", await self._connection.fetchval("SELECT coalesce(max(seq), 0) FROM keys"))
        for name in _COUNTING:
            await self._connection.execute(f"ALTER TABLE {name} ENABLE TRIGGER USER")
        names = ", ".join(table.name for table in TABLES)
        await self._connection.execute(f"ANALYZE {names}, token_totals")

    async def _number(self, name: str, column: str, last: Any) -> None:
        await self._connection.execute(_NUMBER, name, column, last)
