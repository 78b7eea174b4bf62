"""A connection as a transaction. It reports a statement that no standby confirmed as one without an answer."""

from collections.abc import AsyncIterator, Iterable, Mapping, Sequence
from contextlib import suppress
from functools import cache
from itertools import count
from types import MappingProxyType
from typing import Any, Self, TypeVar

import asyncpg

from watchword.database import rows
from watchword.database.postgres.dialect import DIALECT
from watchword.database.postgres.errors import DRIVER_ERRORS, Unconfirmed, WaitCancelled
from watchword.database.transaction import Dialect, Locked
from watchword.database.urls import STANDBYS_SETTING, PostgresUrl, objection_to_standbys

T = TypeVar("T")

CANCEL_SECONDS = 0.5
SNAPSHOT = "BEGIN ISOLATION LEVEL REPEATABLE READ, READ ONLY"
NOW = "SELECT (extract(epoch FROM clock_timestamp()) * 1000)::bigint"
"""Works before the schema exists."""

# PostgreSQL commits on the primary and then waits for the standby. A wait that is cancelled ends in success and a
# warning; our connections report such a statement as one without an answer.
WARNING = "01000"
WAITS = "syncrep.c"
"""The source file of the warning. Its text is translated, and other warnings have the same SQLSTATE."""

STANDBYS = f"current_setting('{STANDBYS_SETTING}')"
LIST_STANDBYS = f"SELECT {STANDBYS}"
# The message takes a transaction id, so that the commit waits for the standbys. They then have all that was committed
# before. Without one there is nothing to wait for. The result is the list of standbys.
CONFIRM = f"SELECT {STANDBYS}, CASE WHEN {STANDBYS} <> '' THEN pg_logical_emit_message(true, 'watchword', '') END"
# No message if the list is `*`: its confirmation is not used, and without a standby the session would wait for ever.
MESSAGE = f"CASE WHEN {STANDBYS} NOT IN ('', '*') THEN pg_logical_emit_message(true, 'watchword', '') END"
CONFIRM_READ = f"SELECT {STANDBYS}, {MESSAGE}"

# The family of a token is read before it is locked: it never changes. The last CTE takes the locks, before the SELECT
# takes a slot.
_LOCK = """
WITH wanted AS MATERIALIZED (
    SELECT family_locks($3::text[]) AS bearers, family_locks($4::text[]) AS families,
        ARRAY(SELECT urn FROM unnest($5::text[], $6::bigint[]) AS few (urn, most)
              WHERE total_of('actor', urn) > most) AS near
), locked AS MATERIALIZED (
    SELECT families, near, lock_names(
        $1::text[] || bearers || ARRAY(SELECT 'limit:' || urn FROM unnest($5::text[]) AS urn WHERE urn <> ALL (near)),
        $2::text[] || families || ARRAY(SELECT 'limit:' || urn FROM unnest(near) AS urn))
    FROM wanted)
SELECT families, near{slot} FROM locked"""
_LOCK_PLAIN, _LOCK_AND_SLOT = _LOCK.format(slot=""), _LOCK.format(slot=", take_slot()")
# In one order, so that no two transactions that change the same rows wait for each other.
_LOCK_TOKENS = "SELECT id FROM tokens WHERE id = ANY ($1::text[]) ORDER BY id FOR NO KEY UPDATE"
# Counts the revoked tokens itself: a trigger would update the same few totals once for each of them. Without the
# condition of the partial indexes: a plan made on an empty table would read one of them.
_MARK_REVOKED = """
WITH locked AS MATERIALIZED ({locked}), revoked AS (
    UPDATE tokens SET revoked_at = $2
    WHERE id = ANY (ARRAY(SELECT id FROM locked)) AND coalesce(revoked_at, 0) = 0
    RETURNING id, actor_urn, owner_urn, name
), counted AS (
    INSERT INTO token_totals AS t (kind, urn, slot, total)
    SELECT kind, urn, current_slot(), -count(*) FROM revoked, LATERAL (
        VALUES ('actor', actor_urn), ('all', ''), ('owner', owner_urn)) AS each_of (kind, urn)
    GROUP BY kind, urn
    ON CONFLICT ON CONSTRAINT token_totals_pkey DO UPDATE SET total = t.total + excluded.total
)
SELECT id, actor_urn, name FROM revoked"""
_REVOKE = _MARK_REVOKED.format(locked="SELECT id FROM unnest($1::text[]) AS wanted (id)")
_LOCK_AND_REVOKE = _MARK_REVOKED.format(locked=_LOCK_TOKENS)
_NUMBERS = frozenset({"at", "created_at", "expires_at", "grace", "full_end"})
"""The columns of `insert_rows` that are no texts."""


SessionSettings = Mapping[str, str]
"""Settings of a connection, besides those that every connection has."""

# Point reads and writes have one good plan at any size, which is made once. It may be made while the tables are empty,
# and must not scan them when they are full, nor use an index that only seemed to fit.
POINT = {"plan_cache_mode": "force_generic_plan", "enable_seqscan": "off"}
SEARCHING = "SET LOCAL plan_cache_mode = auto; SET LOCAL enable_seqscan = on"
"""In a transaction: the next statements are planned for their values, with any plan."""
SEARCHED = "; ".join(f"SET LOCAL {name} = {value}" for name, value in POINT.items())

DEFAULT_SETTINGS: SessionSettings = MappingProxyType({})
# The statement that verifies has one good plan at any size.
READING_MANY_TOKENS = {"enable_hashjoin": "off", "enable_mergejoin": "off", "enable_bitmapscan": "off"}


@cache
def _each_text(sql: str, names: Sequence[str]) -> str:
    return sql.replace("{wanted}", DIALECT.each_row(names, 2))


@cache
def _insert_text(inserts: Sequence[tuple[str, str]], result: str) -> str:
    """The inserts into these columns of these tables, and a row of what stands in `result`, in one statement. Its
    parameters are a list for each column, and that of `{}` in `result`.
    """
    numbers = count(1)
    parts: list[str] = []
    for table, names in inserts:
        types = ("bigint" if name in _NUMBERS else "text" for name in names.split(", "))
        lists = ", ".join(f"${next(numbers)}::{type_}[]" for type_ in types)
        parts.append(f"inserted_{len(parts)} AS (INSERT INTO {table} ({names}) SELECT * FROM unnest({lists}))")
    with_inserts = f"WITH {', '.join(parts)} " if parts else ""
    return f"{with_inserts}SELECT {result.format(f'${next(numbers)}')}"


class Connection(asyncpg.Connection):  # type: ignore[misc]  # comes without types
    """The driver's connection, as a `Transaction`. Raises `WaitCancelled` in place of the result of a statement that no
    standby confirmed. Prepared statements are not watched: ours only read.
    """

    __slots__ = ("_inserts", "_wait_cancelled", "place", "timeline")
    place: PostgresUrl
    timeline: int
    """The server's; each promotion of a standby begins a new one. 0 if the server does not say."""
    dialect: Dialect = DIALECT
    clock = None

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self._wait_cancelled = False
        self._inserts: dict[tuple[str, str], list[rows.Row]] = {}
        """Rows that the transaction inserts with its next statement, by table and columns."""
        self.watch()

    def watch(self) -> Self:
        """From when the pool gives it out until it is given back: the pool wants no listener on it then. Returns the
        connection itself, which, unlike the pool's proxy, can be used after it was closed.
        """
        self.add_log_listener(self._notice)
        return self

    def unwatch(self) -> None:
        self.remove_log_listener(self._notice)

    def _notice(self, _: Any, message: Any) -> None:
        """Called before the statement's result is handed on: the server sends the warning first."""
        if message.sqlstate == WARNING and message.server_source_filename in (None, WAITS):
            self._wait_cancelled = True

    def _confirmed(self, result: T) -> T:
        if self._wait_cancelled:
            raise WaitCancelled("the wait for the synchronous standby was cancelled")
        return result

    async def confirm(self) -> None:
        """Returns when the synchronous standbys have confirmed all that was read on this connection. Without confirmed
        reads an empty list of standbys means that there is nothing to wait for.
        """
        if self.place.reads_confirmed:
            names = await self.fetchval(CONFIRM_READ)
            self.check_standbys(names)
            await self.check_unchanged(names)
        else:
            await self.execute(CONFIRM)

    def check_standbys(self, names: str) -> None:
        """With confirmed reads, raise unless a confirmation by these standbys proves something."""
        problem = objection_to_standbys(names) if self.place.reads_confirmed else None
        if problem is not None:
            raise Unconfirmed(problem)

    async def check_unchanged(self, names: str) -> None:
        """After a wait, with confirmed reads: PostgreSQL ends the wait for a standby that is taken from the list."""
        if self.place.reads_confirmed and await self.fetchval(LIST_STANDBYS) != names:
            raise Unconfirmed(f"{STANDBYS_SETTING} changed")

    async def cancel_wait(self) -> None:
        """Close it after a statement was given up. The driver's request to cancel must arrive first: a session that
        waits for a standby does not notice that its client has gone, and would wait until the standby is back.
        """
        with suppress(*DRIVER_ERRORS):
            await self.close(timeout=CANCEL_SECONDS)

    async def execute(self, sql: str, *bound: Any) -> int:
        await self._send_inserts()
        tag = self._confirmed(await super().execute(sql, *bound)).rpartition(" ")[2]  # such as DELETE 3
        return int(tag) if tag.isdigit() else 0

    async def executemany(self, sql: str, bound: Iterable[Sequence[Any]]) -> None:
        await self._send_inserts()
        self._confirmed(await super().executemany(sql, bound))

    async def fetch(self, sql: str, *bound: Any) -> list[rows.Row]:
        await self._send_inserts()
        return self._confirmed(await super().fetch(sql, *bound))

    async def fetchrow(self, sql: str, *bound: Any) -> rows.Row | None:
        await self._send_inserts()
        row: rows.Row | None = self._confirmed(await super().fetchrow(sql, *bound))
        return row

    async def fetchval(self, sql: str, *bound: Any) -> Any:
        await self._send_inserts()
        return self._confirmed(await super().fetchval(sql, *bound))

    async def search(self, sql: str, *bound: Any) -> list[rows.Row]:
        await self.execute(SEARCHING)
        found = await self.fetch(sql, *bound)
        await self.execute(SEARCHED)
        return found

    async def stream(self, sql: str, *bound: Any, prefetch: int = 100) -> AsyncIterator[rows.Row]:
        await self._send_inserts()
        async for row in self.cursor(sql, *bound, prefetch=prefetch):
            yield row

    async def now(self) -> int:
        return int(await self.fetchval("SELECT now_ms()"))

    async def fetch_each(self, sql: str, names: Sequence[str], each: Sequence[rows.Row]) -> list[rows.Row]:
        return await self.fetch(_each_text(sql, names), None, *map(list, zip(*each, strict=True)))

    async def lock(
        self,
        *,
        shared: Iterable[str] = (),
        exclusive: Iterable[str] = (),
        bearers: Iterable[str | None] = (),
        families: Sequence[str] = (),
        limits: Mapping[str, int] = MappingProxyType({}),
        slot: bool = False,
    ) -> Locked | None:
        bound = (list(shared), list(exclusive), list(bearers), list(families), list(limits), list(limits.values()))
        row = await self.fetchrow(_LOCK_AND_SLOT if slot else _LOCK_PLAIN, *bound)
        assert row is not None
        return Locked(row[0], row[1])

    async def take_slot(self) -> None:
        await self.execute("SELECT take_slot()")

    async def lock_tokens(self, ids: Sequence[str]) -> None:
        await self.execute(_LOCK_TOKENS, list(ids))

    async def roll_back(self) -> None:
        self._inserts.clear()
        await self.execute("ROLLBACK")

    async def insert_rows(self, table: str, names: str, values: Iterable[rows.Row]) -> None:
        if values := list(values):
            self._inserts.setdefault((table, names), []).extend(values)

    async def finish(self, mark: str) -> str:
        """Send the inserts and write the mark; returns the list of standbys. The commit is next."""
        names: str = await self._insert(f"{STANDBYS}, write_mark({{}})", mark)
        return names

    async def _insert(self, result: str, *bound: Any) -> Any:
        text = _insert_text(tuple(self._inserts), result)
        lists = [list(column) for values in self._inserts.values() for column in zip(*values, strict=True)]
        self._inserts.clear()
        return await self.fetchval(text, *lists, *bound)

    async def _send_inserts(self) -> None:
        if self._inserts:
            await self._insert("1")

    async def mark_revoked(self, ids: Sequence[str], now: int, *, lock_rows: bool) -> list[rows.Row]:
        return await self.fetch(_LOCK_AND_REVOKE if lock_rows else _REVOKE, list(ids), now)
