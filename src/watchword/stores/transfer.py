"""Transfer: everything that makes up a store, carried from one to another and proven to have arrived.

The tables have the same names and columns in every store, and a key by whose bytes they are read in the same order.
What can be counted or derived from them (totals, folded names) is not carried: each store makes its own. Memory is
bounded by one batch. What was read from the source and what is read back from the target must have the same digest.
"""

from collections.abc import AsyncIterator, Callable, Iterable, Mapping
from dataclasses import dataclass
from hashlib import sha256
from typing import Any, Protocol

import orjson

from watchword.domain.backups import Carried
from watchword.domain.errors import OperatorError
from watchword.stores import rows

BATCH = 2_000

Batch = list[tuple[Any, ...]]
Progress = Callable[[int, int], None]
"""Told after each batch: how much is done, and of how much."""


@dataclass(frozen=True, slots=True)
class Table:
    name: str
    columns: tuple[str, ...]
    key: str
    """By which it is ordered; no two rows have the same."""

    @property
    def ordered(self) -> str:
        return f"SELECT {', '.join(self.columns)} FROM {self.name} ORDER BY {self.key}"  # noqa: S608 - literal pieces

    @property
    def counted(self) -> str:
        return f"SELECT count(*) FROM {self.name}"  # noqa: S608 - literal pieces


def _table(name: str, columns: str, key: str) -> Table:
    return Table(name, tuple(column.strip() for column in columns.split(",")), key)


TABLES = (
    _table("state", "one, policy_version, defaults_made, sealed_salt, events_since, settings, node_id", "one"),
    _table("tokens", rows.TOKEN_COLUMNS, "actor_urn, id"),
    _table("service_accounts", rows.ACCOUNT, "urn"),
    _table("retries", rows.RETRY, "actor, digest"),
    _table("policies", rows.POLICY, "urn"),
    _table("groups", rows.GROUP, "urn"),
    _table("group_members", "actor_urn, group_urn", "actor_urn, group_urn"),
    _table("actors", "urn, status, changed_at, changed_by", "urn"),
    _table("keys", "seq, kid, public, sealed_private, created_at, retired_at, published_until", "seq"),
    _table("next_key", "one, kid, public, sealed_private, created_at", "one"),
    _table("events", f"seq, {rows.EVENT}", "seq"),
    _table(
        "operations",
        "number, home, index_name, state, plan, work, asked_by, asked_at, started_at, changed_at, finished_at,"
        "cancel_asked_at, cancel_asked_by, fence, held_until",
        "number",
    ),
)
NUMBERED = {"events": "seq", "operations": "number"}
"""Tables whose numbers must never come again, even when the rows that had them are gone."""


class Source(Protocol):
    """A store as it was at one moment."""

    async def count(self, table: Table) -> int: ...

    def batches(self, table: Table) -> AsyncIterator[Batch]:
        """All of its rows, in the order of its key."""

    async def last_numbers(self) -> Mapping[str, int]:
        """The highest number ever given in each of `NUMBERED`."""


class Target(Source, Protocol):
    """A store without content, to be filled in one piece."""

    async def begin(self) -> None: ...

    async def put(self, table: Table, batch: Batch) -> None: ...

    async def finish(self, last_numbers: Mapping[str, int]) -> None:
        """Make what is derived, and go on counting where the source stopped."""


class Digest:
    def __init__(self) -> None:
        self._hash = sha256()
        self.rows = 0

    def table(self, name: str) -> None:
        self._hash.update(b"# %s\n" % name.encode())

    def add(self, batch: Iterable[tuple[Any, ...]]) -> None:
        for row in batch:
            self.rows += 1
            self._hash.update(orjson.dumps(row, default=bytes.hex, option=orjson.OPT_APPEND_NEWLINE))

    def __str__(self) -> str:
        return self._hash.hexdigest()


async def carry(source: Source, target: Target, progress: Progress) -> Carried:
    """Fill the target from the source. Raises unless what is then read from it is what was read from the source."""
    counts = {table.name: await source.count(table) for table in TABLES}
    total = 2 * sum(counts.values())
    numbers = await source.last_numbers()
    sent, arrived = Digest(), Digest()
    await target.begin()
    for table in TABLES:
        sent.table(table.name)
        async for batch in source.batches(table):
            sent.add(batch)
            await target.put(table, batch)
            progress(sent.rows, total)
    await target.finish(numbers)
    for table in TABLES:
        arrived.table(table.name)
        async for batch in target.batches(table):
            arrived.add(batch)
            progress(sent.rows + arrived.rows, total)
    if str(sent) != str(arrived) or await target.last_numbers() != numbers:
        raise OperatorError(
            f"What arrived is not what was sent ({arrived.rows:,} rows of {sent.rows:,}). Nothing was changed."
        )
    return Carried(counts, str(sent))


async def rows_of(source: Source, name: str) -> AsyncIterator[tuple[Any, ...]]:
    """Of a small table."""
    (table,) = (table for table in TABLES if table.name == name)
    async for batch in source.batches(table):
        for row in batch:
            yield row
