"""The event log: read newest first by an index, pruned oldest first in small batches."""

import json
from collections.abc import Sequence
from dataclasses import replace
from operator import attrgetter
from typing import Any

import orjson

from watchword.domain.events import MAX_PAGE_BYTES, EventPage, EventSearch, KeptEvent
from watchword.domain.filters import SEARCH_SECONDS
from watchword.stores import rows
from watchword.stores.sql.transaction import ADD_EVENT, Dialect, SqlPart, Transaction, delete_oldest, transaction

# Word for word the condition of the partial index on these.
_ADD_FIRST = f"""
INSERT INTO events ({rows.EVENT})
SELECT $1::bigint, $2::text, $3::text, $4::text, $5::text, $6::text, $7::text, $8::text WHERE NOT EXISTS (
    SELECT 1 FROM events
    WHERE action = 'authentication.failed' AND bearer_id = $3::text AND at > $9::bigint AND detail = $8::text)
"""
_columns = attrgetter(*rows.EVENT.split(", "))


class SqlEvents(SqlPart):
    async def events(self, search: EventSearch, seconds: float = SEARCH_SECONDS) -> EventPage:
        sql, bound = events_sql(search, self._db.dialect)

        async def work(tx: Transaction) -> EventPage:
            found: list[KeptEvent] = []
            weight = 0
            async for row in tx.stream(sql, *bound):
                weight += len(row[7])
                if len(found) == search.count or (found and weight > MAX_PAGE_BYTES):
                    return EventPage(tuple(found), more=True)
                found.append(_event(row))
            return EventPage(tuple(found), more=False)

        return await self._db.scan(work, seconds)

    async def count_events(self, search: EventSearch, most: int, seconds: float = SEARCH_SECONDS) -> int:
        sql, bound = events_sql(replace(search, after=None, count=most - 1), self._db.dialect)

        async def work(tx: Transaction) -> int:
            return int(await tx.fetchval(f"SELECT count(*) FROM ({sql}) AS found", *bound))

        return await self._db.scan(work, seconds)

    async def add_events(self, events: Sequence[KeptEvent], firsts: Sequence[KeptEvent] = (), within: int = 0) -> None:
        values = [_values(event) for event in events]
        once = [(*_values(event), event.at - within) for event in firsts]

        async def work(tx: Transaction) -> None:
            await tx.executemany(_ADD_FIRST, once)
            await tx.executemany(ADD_EVENT, values)

        await self._db.write(work)

    @transaction
    async def prune_events(self, tx: Transaction, before: int, most: int) -> int:
        pruned = await delete_oldest(tx, "events", "seq", "at", before, most)
        if pruned:
            await tx.execute("UPDATE state SET events_since = $1 WHERE events_since < $1", before)
        return pruned


def events_sql(search: EventSearch, dialect: Dialect) -> tuple[str, list[Any]]:
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
    return f"SELECT {rows.EVENT}, seq FROM events WHERE {where} ORDER BY at DESC, seq DESC LIMIT {most}::bigint", bound


def _event(row: rows.Row) -> KeptEvent:
    """A row of EVENT and its seq."""
    at, actor, bearer_id, action, target, peer, request_id, detail, seq = row
    return KeptEvent(at, actor, bearer_id, action, target, peer, request_id, orjson.loads(detail), seq)


def _values(event: KeptEvent) -> tuple[Any, ...]:
    *plain, detail = _columns(event)
    return (*plain, rows.json_text(dict(detail)))
