"""The tables that make up a store, and how they are copied from one store to another.

Both databases have the same tables and columns, and return their rows in the same order. Derived values (totals, folded
names) are not copied: the target computes them. Memory is bounded by one batch. The rows read from the source and those
read back from the target must have the same digest.
"""

from collections.abc import AsyncIterator, Callable, Mapping
from dataclasses import dataclass
from hashlib import sha256
from typing import Any, Protocol

import apsw
import orjson
from asyncpg import exceptions as pg

from watchword.domain.admin import CopyResult, SealedSecrets
from watchword.domain.errors import OperatorError
from watchword.domain.stores import PostgresUrl
from watchword.stores import rows
from watchword.stores.postgres.connections import Connection, folded
from watchword.stores.sql.transaction import Transaction
from watchword.stores.sql.webhooks import COLUMNS, DELIVERY
from watchword.stores.sqlite.database import SqliteTransaction

BATCH = 2_000

Batch = list[tuple[Any, ...]]
Progress = Callable[[int, int], None]
"""Called after each batch with the amounts done and total."""


@dataclass(frozen=True, slots=True)
class Table:
    name: str
    columns: str
    key: str

    @property
    def names(self) -> list[str]:
        return self.columns.split(", ")

    @property
    def select(self) -> str:
        return f"SELECT {self.columns} FROM {self.name} ORDER BY {self.key}"


TABLES = (
    Table("state", "one, policy_version, defaults_made, sealed_salt, events_since, settings, node_id", "one"),
    Table("tokens", rows.TOKEN_COLUMNS, "actor_urn, id"),
    Table("imported_tokens", "id, expires_at", "id"),
    Table("service_accounts", rows.ACCOUNT, "urn"),
    Table("retries", rows.RETRY, "actor, digest"),
    Table("policies", rows.POLICY, "urn"),
    Table("groups", rows.GROUP, "urn"),
    Table("resources", rows.RESOURCE, "name"),
    Table("group_members", "actor_urn, group_urn, external", "actor_urn, group_urn"),
    Table("identities", "issuer, subject, actor_urn, linked_at, signed_in_at", "issuer, subject"),
    Table("actors", rows.ACTOR, "urn"),
    Table("keys", "seq, kid, public, sealed_private, created_at, retired_at, published_until", "seq"),
    Table("next_key", "one, kid, public, sealed_private, created_at", "one"),
    Table("events", f"seq, {rows.EVENT}", "seq"),
    Table("event_cursors", "name, seq", "name"),
    Table("expiry_notices", "token_id, days", "token_id, days"),
    Table("token_networks", "token_id, network, first_at", "token_id, network"),
    Table("token_uses", "token_id, day, uses", "token_id, day"),
    Table("day_counts", "kind, day, number", "kind, day"),
    Table(
        "mails",
        "number, kind, recipient, address, items, more, made_at, state, attempts, next_at, done_at, error",
        "number",
    ),
    Table("mail_preferences", "actor_urn, kinds_off", "actor_urn"),
    Table(
        "operations",
        "number, home, index_name, state, plan, work, asked_by, asked_at, started_at, changed_at, finished_at, "
        "cancel_asked_at, cancel_asked_by, fence, held_until, not_before",
        "number",
    ),
    Table("retention_rules", "series, rule, set_name, changed_at, changed_by", "series"),
    Table("retention_holds", "series, reason, set_by, set_at, by_rule", "series, by_rule"),
    Table(
        "retention_runs",
        "number, home, series, due_at, state, rule, plan, asked_by, made_at, operation, approved_by, approved_at, "
        "error",
        "number",
    ),
    Table("webhooks", COLUMNS, "id"),
    Table("webhook_deliveries", DELIVERY, "number"),
    Table("series_sizes", "home, series, day, rows, bytes", "home, series, day"),
)
NUMBERED = {
    "events": "seq",
    "operations": "number",
    "retention_runs": "number",
    "webhook_deliveries": "number",
    "mails": "number",
}
"""Tables whose numbers are never used again, even after their rows were deleted."""


_LOCKED = ", ".join(
    [
        *(table.name for table in TABLES),
        "sessions",
        "devices",
        "token_totals",
        "probes",
        "retention_leases",
        "change_rates",
    ]
)


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


class CopyTarget(Protocol):
    """An empty store of this version's schema, filled in one transaction."""

    tx: Transaction

    async def begin(self) -> None: ...

    async def insert(self, table: Table, batch: Batch) -> None: ...

    async def finish(self, numbers: Mapping[str, int]) -> None:
        """Compute derived values, and continue the numbers of the source."""


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


async def copy_tables(source: Transaction, target: CopyTarget, progress: Progress) -> CopyResult:
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
        columns = table.names
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
