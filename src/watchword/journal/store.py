"""The event log: read newest first by an index, pruned oldest first in small batches; and read in the order of their
numbers, by readers that keep a cursor.
"""

import asyncio
import json
from collections import Counter
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import replace
from itertools import pairwise
from operator import attrgetter
from typing import Any

import orjson

from watchword.basics.errors import Reason, too_often
from watchword.basics.paging import SEARCH_SECONDS
from watchword.basics.times import DAY
from watchword.database import rows
from watchword.database.transaction import Database, Dialect, SqlPart, Transaction, delete_oldest, snapshot, transaction
from watchword.journal.day_counts import DayCounter, day_of
from watchword.journal.events import (
    MAX_PAGE_BYTES,
    CursorLost,
    Event,
    EventPage,
    EventSearch,
    KeptEvent,
    TimedCount,
    counts_as_change,
)
from watchword.journal.preconditions import WritePrecondition

# Word for word the condition of the partial index on these.
_ADD_FIRST = f"""
INSERT INTO events ({rows.EVENT})
SELECT $1::bigint, $2::text, $3::text, $4::text, $5::text, $6::text, $7::text, $8::text WHERE NOT EXISTS (
    SELECT 1 FROM events
    WHERE action = 'authentication.failed' AND bearer_id = $3::text AND at > $9::bigint AND detail = $8::text)
"""
_columns = attrgetter(*rows.EVENT.split(", "))
_AFTER = f"SELECT {rows.EVENT}, seq FROM events WHERE seq > $1 AND seq <= $2 ORDER BY seq LIMIT $3"
_LAST = "SELECT coalesce(max(seq), 0) FROM events"
_HIGHEST = 2**63 - 1
_LATEST = "SELECT seq FROM events ORDER BY seq DESC LIMIT $1"
_MANY = 1_000
# A later end than now and the wanted time comes from a clock that was set back.
_LEASE = """
INSERT INTO event_cursors (name, seq, holder, held_until) VALUES ($1, $4, $2, (SELECT now_ms()) + $3)
ON CONFLICT (name) DO UPDATE SET holder = excluded.holder, held_until = excluded.held_until
WHERE event_cursors.holder = excluded.holder OR event_cursors.held_until <= (SELECT now_ms())
    OR event_cursors.held_until > excluded.held_until
RETURNING event_cursors.seq"""
_MOVE = """
UPDATE event_cursors SET seq = $3 WHERE name = $1 AND holder = $2 AND held_until > (SELECT now_ms()) AND seq < $3"""
_PAUSES = 0.002, 0.01, 0.03, 0.1
"""Between looks at transactions that may hold a missing number. Most end within the first."""
# When the actor may make a whole burst again. A later time than a burst ahead comes from a clock that was set back.
_COUNT_CHANGE = """
INSERT INTO change_rates (actor_urn, full_at) VALUES ($1, $2::bigint + $3::bigint)
ON CONFLICT (actor_urn) DO UPDATE SET full_at = $3::bigint + CASE
    WHEN change_rates.full_at > $2::bigint + $4::bigint THEN $2::bigint + $4::bigint - $3::bigint
    WHEN change_rates.full_at > $2::bigint THEN change_rates.full_at ELSE $2::bigint END
RETURNING full_at"""


class EventStore(SqlPart):
    async def events(self, search: EventSearch, seconds: float = SEARCH_SECONDS) -> EventPage:
        """The newest events that match, newest first: at least one if any matches, at most `count`, and at most
        MAX_PAGE_BYTES of details after the first; DEADLINE if that takes longer.
        """
        sql, bound = events_sql(search, self._db.dialect)
        return await self._db.scan(lambda tx: _read_page(tx, search.count, sql, *bound), seconds)

    async def count_events(self, search: EventSearch, most: int, seconds: float = SEARCH_SECONDS) -> int:
        """The number of events on all pages of the search, counted up to `most`; DEADLINE as above."""
        sql, bound = events_sql(replace(search, after=None, count=most - 1), self._db.dialect)
        counted = f"SELECT count(*) FROM ({sql}) AS found"
        return int(await self._db.scan(lambda tx: tx.fetchval(counted, *bound), seconds))

    async def count_events_by_time(
        self, search: EventSearch, step: int, seconds: float = SEARCH_SECONDS
    ) -> tuple[TimedCount, ...]:
        """How many events of each action there are in each step of milliseconds from `since` on: of the newest `count`
        and one that match; DEADLINE as above.
        """
        sql, bound = events_sql(replace(search, after=None), self._db.dialect, "at, action")
        since, width = (f"${len(bound) + number}::bigint" for number in (1, 2))
        counts = f"""
        SELECT {since} + (at - {since}) / {width} * {width}, action, count(*), min(at) FROM ({sql}) AS found
        GROUP BY 1, 2 ORDER BY 1, 2"""

        async def work(tx: Transaction) -> tuple[TimedCount, ...]:
            return tuple(TimedCount(*row) for row in await tx.fetch(counts, *bound, search.since, step))

        return await self._db.scan(work, seconds)

    async def add_events(self, events: Sequence[KeptEvent], firsts: Sequence[KeptEvent] = (), within: int = 0) -> None:
        """Add events that belong to no change. `firsts` are failed authentications with known tokens: one is left out
        if there is another with the same token and detail from the time `within` before it.
        """
        values = [_values(event) for event in events]
        once = [(*_values(event), event.at - within) for event in firsts]

        async def work(tx: Transaction) -> None:
            await tx.executemany(_ADD_FIRST, once)
            await tx.insert_rows("events", rows.EVENT, values)
            await add_rejections(tx, [*firsts, *events])

        await self._db.write(work)

    async def events_after(self, seq: int, most: int) -> tuple[KeptEvent, ...]:
        """The next events after this number, by number: at most `most`, and at most MAX_PAGE_BYTES of details after the
        first. No event with a lower number than one of these is committed later: it stops before a number that a
        transaction still running may have.
        """
        found = await self._read_after(seq, _HIGHEST, most)
        in_order = _in_order(found, seq)
        if len(in_order) == len(found):
            return found
        # A number is missing: its transaction was rolled back, its event was pruned, or its transaction still runs.
        if not await _writers_end(self._db):
            return in_order
        return await self._read_after(seq, found[-1].seq, most)

    async def _read_after(self, seq: int, until: int, most: int) -> tuple[KeptEvent, ...]:
        return (await self._db.scan(lambda tx: _read_page(tx, most, _AFTER, seq, until, most))).events

    async def last_event(self) -> int:
        """The highest number of an event; 0 without events."""
        row = await self._db.row(_LAST)
        assert row is not None
        return int(row[0])

    @snapshot
    async def newest_event(self, tx: Transaction) -> tuple[int, int]:
        """The latest time of an event, 0 without events; and the store's time."""
        at = await tx.fetchval("SELECT at FROM events ORDER BY at DESC LIMIT 1")
        return at or 0, await tx.now()

    @transaction
    async def purge_change_rates(self, tx: Transaction, most: int) -> int:
        """Forget at most `most` actors that may make a whole burst of changes again; returns how many."""
        return await delete_oldest(tx, "change_rates", "actor_urn", "full_at", await tx.now(), most)

    @transaction
    async def lease_cursor(self, tx: Transaction, name: str, holder: str, millis: int) -> int | None:
        """Take or renew the lease of a cursor; returns its number, or None if another holder has it. A new cursor
        begins after the last event.
        """
        is_known = await tx.fetchval("SELECT 1 FROM event_cursors WHERE name = $1", name)
        start = 0 if is_known else await last_settled(tx)
        seq: int | None = await tx.fetchval(_LEASE, name, holder, millis, start)
        return seq

    @transaction
    async def move_cursor(self, tx: Transaction, name: str, holder: str, seq: int) -> None:
        """`CursorLost` unless this holder has the lease and the cursor has a lower number."""
        await move_cursor(tx, name, holder, seq)

    @transaction
    async def release_cursor(self, tx: Transaction, name: str, holder: str) -> None:
        await tx.execute("UPDATE event_cursors SET held_until = 0 WHERE name = $1 AND holder = $2", name, holder)

    @transaction
    async def prune_events(self, tx: Transaction, before: int, most: int) -> int:
        """Delete at most `most` of the oldest events from before this time; returns how many."""
        pruned = await delete_oldest(tx, "events", "seq", "at", before, most)
        if pruned:
            await tx.execute("UPDATE state SET events_since = $1 WHERE events_since < $1", before)
        return pruned


async def _read_page(tx: Transaction, most: int, sql: str, *bound: Any) -> EventPage:
    found: list[KeptEvent] = []
    weight = 0
    async for row in tx.stream(sql, *bound):
        weight += len(row[7])
        if len(found) == most or (found and weight > MAX_PAGE_BYTES):
            return EventPage(tuple(found), more=True)
        found.append(event_of(row))
    return EventPage(tuple(found), more=False)


async def last_settled(tx: Transaction) -> int:
    """Where a new reader starts: no event with this number or a lower one is committed later. While a transaction
    that may have written an event runs, the number before the first missing one of the latest.
    """
    last: int = await tx.fetchval(_LAST)
    if await _writers_end(tx):
        return last
    latest: list[int] = [seq for (seq,) in await tx.fetch(_LATEST, _MANY)]
    if len(latest) < _MANY:
        latest.append(0)
    before_gaps = [lower for higher, lower in pairwise(latest) if higher > lower + 1]
    return before_gaps[-1] if before_gaps else latest[0]


async def _writers_end(db: Database | Transaction) -> bool:
    """Whether all transactions that may have written an event by now have ended, after a short wait for them."""
    writers = await _event_writers(db)
    for pause in _PAUSES:
        if not writers:
            break
        await asyncio.sleep(pause)
        writers &= await _event_writers(db)
    return not writers


async def _event_writers(db: Database | Transaction) -> set[str]:
    query = db.dialect.event_writers
    return set() if query is None else {writer for (writer,) in await db.fetch(query)}


async def move_cursor(tx: Transaction, name: str, holder: str, seq: int) -> None:
    """Move the cursor, in the transaction that records the result of the events up to this one."""
    if not await tx.execute(_MOVE, name, holder, seq):
        raise CursorLost


def _in_order(events: tuple[KeptEvent, ...], seq: int) -> tuple[KeptEvent, ...]:
    """Those before the first missing number."""
    return tuple(event for number, event in enumerate(events, seq + 1) if event.seq == number)


def events_sql(search: EventSearch, dialect: Dialect, columns: str = f"{rows.EVENT}, seq") -> tuple[str, list[Any]]:
    bound: list[Any] = []
    terms = ["true"]

    def bind(value: Any) -> str:
        bound.append(value)
        return f"${len(bound)}"

    for column, words in (("actor", search.actors), ("action", search.actions), ("target", search.targets)):
        if len(words) == 1:
            # With an equality the index gives the order too; a list is sorted.
            terms.append(f"{column} = {bind(words[0])}::text")
        elif words:
            terms.append(f"{column} {dialect.any_of(bind(list(words)))}")
    if search.about:
        urns = dialect.any_of(bind(list(search.about)))
        named = [
            f"{dialect.position('detail', f'{bind(json.dumps(urn, ensure_ascii=False))}::text')} > 0"
            for urn in search.about
        ]
        tokens = f"target IN (SELECT id FROM tokens WHERE actor_urn {urns})"
        terms.append(f"({' OR '.join([f'target {urns}', tokens, *named])})")
    if search.since is not None:
        terms.append(f"at >= {bind(search.since)}::bigint")
    if search.until is not None:
        terms.append(f"at < {bind(search.until)}::bigint")
    if search.after is not None:
        terms.append(f"(at, seq) < ({bind(search.after.at)}::bigint, {bind(search.after.seq)}::bigint)")
    where = " AND ".join(terms)
    most = bind(search.count + 1)
    return f"SELECT {columns} FROM events WHERE {where} ORDER BY at DESC, seq DESC LIMIT {most}::bigint", bound


def event_of(row: rows.Row) -> KeptEvent:
    """A row of EVENT and its seq."""
    at, actor, bearer_id, action, target, peer, request_id, detail, seq = row
    return KeptEvent(at, actor, bearer_id, action, target, peer, request_id, orjson.loads(detail), seq)


def _values(event: KeptEvent) -> tuple[Any, ...]:
    *plain, detail = _columns(event)
    return (*plain, rows.json_text(dict(detail)))


async def write_events(tx: Transaction, precondition: WritePrecondition, events: Sequence[Event], now: int) -> None:
    by = precondition
    if by.daily_changes and counts_as_change(events):
        await _count_change(tx, by, now)
    await write_events_of(tx, [(by, event) for event in events], now)


async def write_events_of(tx: Transaction, events: Iterable[tuple[WritePrecondition, Event]], now: int) -> None:
    """The same for requests whose events do not count as changes."""
    values = [
        (now, by.actor, by.bearer_id, e.action.value, e.target, by.peer, by.request_id, rows.json_text(e.detail))
        for by, e in events
    ]
    await tx.insert_rows("events", rows.EVENT, values)


async def _count_change(tx: Transaction, by: WritePrecondition, now: int) -> None:
    """Half of the daily changes at once, and the other half over the day: never more in any 24 hours. The row stays
    locked until the commit, so that instances share the count.
    """
    interval = max(2 * DAY // by.daily_changes, 1)
    burst = max(DAY, interval)
    full_at: int = await tx.fetchval(_COUNT_CHANGE, by.actor, now, interval, burst)
    wait = full_at - now - burst
    if wait > 0:
        message = f"An actor may make {by.daily_changes:,} changes a day, half of them at once."
        raise too_often(Reason.TOO_MANY_CHANGES, wait, message)


_ADD_DAY_COUNT = """
INSERT INTO day_counts (kind, day, number) VALUES ($1, $2, $3)
ON CONFLICT (kind, day) DO UPDATE SET number = day_counts.number + excluded.number"""
_REJECTIONS = {DayCounter.DENIALS.value, DayCounter.FAILED_AUTHENTICATIONS.value}


async def add_rejections(tx: Transaction, events: Collection[KeptEvent]) -> None:
    """Count denials and failed authentications, with those that the event only reports as left out."""
    sums: Counter[tuple[str, int]] = Counter()
    for event in events:
        if event.action in _REJECTIONS:
            left_out = event.detail.get("leftOut", 0)
            sums[event.action, day_of(event.at)] += 1 + (left_out if isinstance(left_out, int) else 0)
    await add_day_counts(tx, sums)


async def add_day_counts(tx: Transaction, sums: Mapping[tuple[str, int], int]) -> None:
    """By kind and day, in one order for all transactions."""
    for (kind, day), number in sorted(sums.items()):
        await tx.execute(_ADD_DAY_COUNT, kind, day, number)
