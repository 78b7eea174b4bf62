"""Events in PostgreSQL: read newest first by an index, pruned oldest first in small batches."""

from collections.abc import Sequence
from typing import Any

from watchword.domain.events import MAX_PAGE_BYTES, EventPage, EventSearch, KeptEvent
from watchword.domain.filters import SEARCH_SECONDS
from watchword.stores import rows
from watchword.stores.postgres.connections import Connection
from watchword.stores.postgres.database import Database
from watchword.stores.postgres.warrants import KEEP_EVENT

# In the words of the index that has these alone.
_KEEP_FIRST = f"""
INSERT INTO events ({rows.EVENT})
SELECT $1::bigint, $2::text, $3::text, $4::text, $5::text, $6::text, $7::text, $8::text WHERE NOT EXISTS (
    SELECT 1 FROM events
    WHERE action = 'authentication.failed' AND bearer_id = $3 AND at > $9::bigint AND detail = $8)
"""  # noqa: S608 - literal pieces
_PRUNE = """
DELETE FROM events WHERE seq = ANY (ARRAY(
    SELECT seq FROM events WHERE at < $1 ORDER BY at, seq LIMIT $2 FOR UPDATE SKIP LOCKED))"""
_A_TIME = 100


class PostgresEvents:
    _db: Database

    async def events(self, search: EventSearch, seconds: float = SEARCH_SECONDS) -> EventPage:
        statement, bound = translate(search)

        async def work(c: Connection) -> EventPage:
            found: list[KeptEvent] = []
            weight = 0
            async for row in c.cursor(statement, *bound, prefetch=_A_TIME):
                weight += len(row[7])
                if len(found) == search.count or (found and weight > MAX_PAGE_BYTES):
                    return EventPage(tuple(found), more=True)
                found.append(rows.event_of(row))
            return EventPage(tuple(found), more=False)

        return await self._db.scan(work, seconds)

    async def keep_events(self, events: Sequence[KeptEvent], firsts: Sequence[KeptEvent] = (), within: int = 0) -> None:
        values = [rows.event_values(event) for event in events]
        once = [(*rows.event_values(event), event.at - within) for event in firsts]

        async def work(c: Connection) -> None:
            await c.executemany(_KEEP_FIRST, once)
            await c.executemany(KEEP_EVENT, values)

        await self._db.write(work)

    async def prune_events(self, before: int, most: int) -> int:
        async def work(c: Connection) -> int:
            pruned = int((await c.execute(_PRUNE, before, most)).split()[-1])
            if pruned:
                await c.execute(
                    "UPDATE state SET events_since = greatest(events_since, $1) WHERE events_since < $1", before
                )
            return pruned

        return await self._db.write(work)


def translate(search: EventSearch) -> tuple[str, list[Any]]:
    """The statement that reads this page, and what is bound in it."""
    bound: list[Any] = []
    terms = ["true"]

    def bind(value: Any, kind: str) -> str:
        bound.append(value)
        return f"${len(bound)}::{kind}"

    for column, words in (("actor", search.actors), ("action", search.actions), ("target", search.targets)):
        if len(words) == 1:
            # An equality lets the index give the order too; a list is sorted.
            terms.append(f"{column} = {bind(words[0], 'text')}")
        elif words:
            terms.append(f"{column} = ANY ({bind(list(words), 'text[]')})")
    if search.since is not None:
        terms.append(f"at >= {bind(search.since, 'bigint')}")
    if search.until is not None:
        terms.append(f"at < {bind(search.until, 'bigint')}")
    if search.after is not None:
        terms.append(f"(at, seq) < ({bind(search.after.at, 'bigint')}, {bind(search.after.seq, 'bigint')})")
    where = " AND ".join(terms)
    most = bind(search.count + 1, "bigint")
    return f"SELECT {rows.EVENT}, seq FROM events WHERE {where} ORDER BY at DESC, seq DESC LIMIT {most}", bound  # noqa: S608
