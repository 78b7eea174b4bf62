"""The store on PostgreSQL: one database, any number of instances.

Here is what is written apart from the stores of the rooms, for speed: verification, sessions and searches.
"""

import time

from watchword.authority.callers import Bearer
from watchword.basics.paging import SEARCH_SECONDS
from watchword.database import rows
from watchword.database.postgres.database import PostgresDatabase, make_pool
from watchword.database.postgres.hosts import ConnectionBackoff
from watchword.database.transaction import Observe, Transaction
from watchword.database.urls import PostgresUrl
from watchword.journal.events import Action, Event
from watchword.journal.preconditions import system_precondition
from watchword.journal.store import write_events
from watchword.signin.session_rules import FoundSession, Session
from watchword.stores.joined import Store
from watchword.stores.postgres_verify import BEARER, DatabaseClock, VerifyBatcher, bearer_of
from watchword.tokens.filters import Page, Search
from watchword.tokens.search_store import page_of, search_sql

PRIMARY = "primary"
"""The name of a lock."""

# The token as a verification sees it. The session's end is checked by the database's clock.
_OF_SESSION = len(Session._fields)
_FIND_SESSION = f"""
SELECT {rows.columns("s", rows.SESSION)}, {BEARER}
FROM sessions AS s LEFT JOIN tokens AS t ON t.id = s.token_id WHERE s.id = $1 AND s.ends_at > (SELECT now_ms())
"""
_IS_NOTED = "SELECT 1 FROM events WHERE action = $1 AND target = $2 LIMIT 1"


class PostgresStore(Store):
    find_bearer_now = None

    def __init__(self, backoff: ConnectionBackoff, database: PostgresDatabase, observe: Observe) -> None:
        self._backoff = backoff
        backoff.on_new_primary = self._note_new_primary
        self._db: PostgresDatabase = database
        self.clock = DatabaseClock()
        self._verifier = VerifyBatcher(backoff, self.clock, observe)

    @property
    def timeline(self) -> int:
        return self._backoff.timeline

    async def find_bearer(self, token_id: str) -> Bearer | None:
        return await self._verifier.find(token_id)

    async def find_session(self, session_id: str) -> FoundSession | None:
        row = await self._db.row(_FIND_SESSION, session_id)
        if row is None:
            return None
        return FoundSession(
            Session(*row[:_OF_SESSION]), None if row[_OF_SESSION] is None else bearer_of(row[_OF_SESSION:])
        )

    async def search(self, search: Search, seconds: float = SEARCH_SECONDS) -> Page:
        sql, bound, inline = search_sql(search, self._db.dialect)

        async def page(tx: Transaction) -> Page:
            began = time.perf_counter()
            row = await tx.fetchrow(sql, *bound)
            assert row is not None
            return page_of(row, search, time.perf_counter, began)

        if inline:
            return await self._db.read(page)
        return await self._db.scan(page, seconds)

    async def probe(self) -> None:
        await self._db.write(lambda tx: tx.execute("UPDATE probes SET at = now_ms()"))
        if self._db.was_full:
            # That row fits into an existing page, and says nothing about the disk.
            await self._db.write(_grow)
            self._db.was_full = False

    async def close(self) -> None:
        await self._verifier.close()
        await self._db.close()

    def _note_new_primary(self, timeline: int) -> None:
        """Write an event, unless another worker or instance has."""

        async def note(tx: Transaction) -> None:
            event = Event(Action.STORE_PRIMARY_CHANGED, str(timeline))
            await tx.lock(exclusive=[PRIMARY])
            if not await tx.fetchval(_IS_NOTED, event.action.value, event.target):
                await write_events(tx, system_precondition("failover"), [event], await tx.now())

        self._db.keep_trying(lambda: self._db.write(note))


async def _grow(tx: Transaction) -> None:
    """Write a row as large as a page until the table has grown, which takes room on the disk."""
    size = "SELECT pg_relation_size('probes')"
    before = await tx.fetchval(size)
    while await tx.fetchval(size) <= before:
        await tx.execute("UPDATE probes SET filler = repeat('x', 8000)")
    await tx.execute("UPDATE probes SET filler = NULL")


async def open_store(place: PostgresUrl, observe: Observe) -> PostgresStore:
    """The store in this database, which `migrate` has brought to this version. Opens although the database is
    unavailable: requests fail until it is back.
    """
    backoff = ConnectionBackoff(place)
    return PostgresStore(backoff, PostgresDatabase(backoff, await make_pool(backoff), observe), observe)
