"""The store on SQLite: one file, any number of worker processes."""

import time
from pathlib import Path

import apsw
import orjson

from watchword.authority.callers import Bearer
from watchword.authority.limits import UNLIMITED, readable
from watchword.basics.paging import SEARCH_SECONDS
from watchword.basics.times import Clock
from watchword.database import rows
from watchword.database.sqlite.connections import store_fault
from watchword.database.sqlite.database import SqliteDatabase, bound_values, sqlite_text
from watchword.database.transaction import Observe, ignore
from watchword.signin.session_rules import FoundSession, Session
from watchword.stores.joined import Store
from watchword.tokens.filters import Page, Search
from watchword.tokens.search_store import page_of, search_sql

PROBE_SECONDS = 5.0
# All that a verification needs, in one statement: one snapshot, committed before the read began. A view, because the
# driver compares the text of a statement each time it runs it.
_BEARERS = """
bearers AS
SELECT id, actor_urn, expires_at, revoked_at,
       EXISTS (SELECT 1 FROM main.actors WHERE urn = tokens.actor_urn AND status = 'SUSPENDED'),
       iif(EXISTS (SELECT 1 FROM main.group_members WHERE actor_urn = tokens.actor_urn),
           (SELECT json_group_array(group_urn) FROM main.group_members WHERE actor_urn = tokens.actor_urn), '[]'),
       (SELECT policy_version FROM main.state),
       limits, grace IS NOT NULL, parent IS NOT NULL
FROM main.tokens AS tokens
"""
_FIND_BEARER = "SELECT * FROM bearers WHERE id = ?"
_OF_SESSION = len(Session._fields)
_FIND_SESSION = f"""
SELECT {rows.columns("s", rows.SESSION)}, b.*
FROM main.sessions AS s LEFT JOIN bearers AS b ON b.id = s.token_id WHERE s.id = ? AND s.ends_at > ?
"""


class SqliteStore(Store):
    timeline = 0

    def __init__(self, database: SqliteDatabase) -> None:
        self._db: SqliteDatabase = database
        self.clock = database.clock
        self._read = database.define(_BEARERS)

    async def find_bearer(self, token_id: str) -> Bearer | None:
        try:
            row = self._read(_FIND_BEARER, (token_id,)).get
        except apsw.Error:
            row = await self._db.row(_FIND_BEARER, token_id)
        return None if row is None else _bearer(row, self.clock())

    def find_bearer_now(self, token_id: str) -> Bearer | None:
        try:
            row = self._read(_FIND_BEARER, (token_id,)).get
        except apsw.Error:  # `find_bearer` waits, or reports what is wrong
            return None
        return None if row is None else _bearer(row, self.clock())

    async def find_session(self, session_id: str) -> FoundSession | None:
        now = self.clock()
        row = await self._db.row(_FIND_SESSION, session_id, now)
        if row is None:
            return None
        return FoundSession(
            Session._make(row[:_OF_SESSION]), None if row[_OF_SESSION] is None else _bearer(row[_OF_SESSION:], now)
        )

    async def search(self, search: Search, seconds: float = SEARCH_SECONDS) -> Page:
        sql, bound, inline = search_sql(search, self._db.dialect)
        text, values = sqlite_text(sql), bound_values(bound)

        # An inline search is short; to ask for the time of the thread costs a microsecond.
        clock = time.perf_counter if inline else time.thread_time

        def page(c: apsw.Connection) -> Page:
            began = clock()
            return page_of(c.execute(text, values).get, search, clock, began)

        return await (self._db.read(page) if inline else self._db.scan_file(page, seconds))

    async def probe(self) -> None:
        now = self.clock()
        await self._db.write(lambda tx: tx.execute("UPDATE probes SET at = $1", now), PROBE_SECONDS)

    async def close(self) -> None:
        await self._db.close()


def _bearer(row: rows.Row, now: int) -> Bearer:
    """Of a row of `bearers`."""
    token_id, actor, expires_at, revoked_at, suspended, groups, version, limits, pending, derived = row
    return Bearer._make(
        (
            token_id,
            actor,
            expires_at,
            revoked_at,
            suspended != 0,
            () if groups == "[]" else tuple(orjson.loads(groups)),
            version,
            now,
            UNLIMITED if limits is None else readable(limits, token_id),
            pending != 0,
            derived != 0,
        )
    )


def open_store(path: Path, clock: Clock, observe: Observe = ignore) -> SqliteStore:
    """`stores.prepare` must have migrated the file."""
    try:
        return SqliteStore(SqliteDatabase(path, clock, observe=observe))
    except apsw.Error as error:
        raise store_fault(error) from error
