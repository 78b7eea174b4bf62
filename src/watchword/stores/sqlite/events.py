"""Events in SQLite: read newest first by an index, pruned oldest first in small batches."""

from collections.abc import Sequence
from typing import Any

import apsw
import orjson

from watchword.domain.events import MAX_PAGE_BYTES, EventPage, EventSearch, KeptEvent
from watchword.domain.filters import SEARCH_SECONDS
from watchword.domain.ports import Clock
from watchword.stores import rows
from watchword.stores.sqlite.database import Database
from watchword.stores.sqlite.warrants import KEEP_EVENT

# In the words of the index that has these alone.
_KEEP_FIRST = f"""
INSERT INTO events ({rows.EVENT}) SELECT ?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8 WHERE NOT EXISTS (
    SELECT 1 FROM events
    WHERE action = 'authentication.failed' AND bearer_id = ?3 AND at > ?9 AND detail = ?8)
"""  # noqa: S608 - literal pieces
_OLDEST = "SELECT seq FROM events WHERE at < ? ORDER BY at, seq LIMIT ?"


class SqliteEvents:
    def __init__(self, database: Database, clock: Clock) -> None:
        self._db = database
        self.clock = clock

    async def events(self, search: EventSearch, seconds: float = SEARCH_SECONDS) -> EventPage:
        statement, bound = translate(search)

        def work(c: apsw.Connection) -> EventPage:
            found: list[KeptEvent] = []
            weight = 0
            for row in c.execute(statement, bound):
                weight += len(str(row[7]))
                if len(found) == search.count or (found and weight > MAX_PAGE_BYTES):
                    return EventPage(tuple(found), more=True)
                found.append(rows.event_of(row))
            return EventPage(tuple(found), more=False)

        return await self._db.scan(work, seconds)

    async def keep_events(self, events: Sequence[KeptEvent], firsts: Sequence[KeptEvent] = (), within: int = 0) -> None:
        values = [rows.event_values(event) for event in events]
        once = [(*rows.event_values(event), event.at - within) for event in firsts]

        def work(c: apsw.Connection) -> None:
            c.executemany(_KEEP_FIRST, once)
            c.executemany(KEEP_EVENT, values)

        await self._db.write(work)

    async def prune_events(self, before: int, most: int) -> int:
        def work(c: apsw.Connection) -> int:
            c.execute(f"DELETE FROM events WHERE seq IN ({_OLDEST})", (before, most))  # noqa: S608
            pruned: int = c.changes()
            if pruned:
                c.execute("UPDATE state SET events_since = max(events_since, ?)", (before,))
            return pruned

        return await self._db.write(work)


def translate(search: EventSearch) -> tuple[str, dict[str, Any]]:
    """The statement that reads this page, and what is bound in it."""
    bound: dict[str, Any] = {"most": search.count + 1}
    terms = ["true"]
    for column, words in (("actor", search.actors), ("action", search.actions), ("target", search.targets)):
        if len(words) == 1:
            # An equality lets the index give the order too; a list is sorted.
            terms.append(f"{column} = :{column}")
            bound[column] = words[0]
        elif words:
            terms.append(f"{column} IN (SELECT value FROM json_each(:{column}))")  # noqa: S608 - literal pieces
            bound[column] = orjson.dumps(words).decode()
    if search.since is not None:
        terms.append("at >= :since")
        bound["since"] = search.since
    if search.until is not None:
        terms.append("at < :until")
        bound["until"] = search.until
    if search.after is not None:
        terms.append("(at, seq) < (:after_at, :after_seq)")
        bound |= {"after_at": search.after.at, "after_seq": search.after.seq}
    where = " AND ".join(terms)
    return f"SELECT {rows.EVENT}, seq FROM events WHERE {where} ORDER BY at DESC, seq DESC LIMIT :most", bound  # noqa: S608
