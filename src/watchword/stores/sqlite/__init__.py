"""The store on SQLite: one file, any number of worker processes."""

import time
from pathlib import Path

import apsw
import orjson

from watchword.domain.actors import Bearer, WritePrecondition, system_precondition
from watchword.domain.filters import SEARCH_SECONDS, Search
from watchword.domain.ports import Clock, Issue, Page
from watchword.domain.sessions import FoundSession, Session
from watchword.domain.token_limits import UNLIMITED, unpacked
from watchword.domain.tokens import TokenRecord
from watchword.stores import rows
from watchword.stores.sql import SqlStore, token_lifecycle
from watchword.stores.sql.search import TokenStatement, translate
from watchword.stores.sql.transaction import Observe, Transaction, check_precondition, ignore
from watchword.stores.sqlite.connections import store_fault
from watchword.stores.sqlite.database import SqliteDatabase, in_snapshot, sqlite_text

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
_FIND_SESSION = """
SELECT s.id, s.actor_urn, s.token_id, s.created_at, s.ends_at, b.*
FROM main.sessions AS s LEFT JOIN bearers AS b ON b.id = s.token_id WHERE s.id = ? AND s.ends_at > ?
"""
_TOTAL = "SELECT total FROM token_totals WHERE kind = ? AND urn = ?"


class SqliteStore(SqlStore):
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

    async def find_session(self, session_id: str) -> FoundSession | None:
        now = self.clock()
        row = await self._db.row(_FIND_SESSION, session_id, now)
        if row is None:
            return None
        return FoundSession(Session._make(row[:5]), None if row[5] is None else _bearer(row[5:], now))

    async def add_token(self, precondition: WritePrecondition, record: TokenRecord, issue: Issue) -> None:
        async def work(tx: Transaction) -> None:
            now = await check_precondition(tx, precondition)
            await token_lifecycle.check_issue(tx, record, issue, now)
            await token_lifecycle.check_room(tx, record.actor_urn, issue.max_live, now)
            await token_lifecycle.add(tx, precondition, record, now)

        async def undo(tx: Transaction) -> None:
            system = system_precondition("undelivered", precondition.request_id)
            await token_lifecycle.revoke(tx, system, [record.id], self.clock())

        # Nobody has a token that is committed after its request failed. With an idempotency key the request is retried.
        await self._db.write(work, undo=undo if issue.idempotency is None else None)

    async def search(self, search: Search, seconds: float = SEARCH_SECONDS) -> Page:
        statement = translate(search, self._db.dialect)
        if statement.inline:
            return await self._db.read(lambda c: in_snapshot(c, lambda c: _page(c, statement, search)))
        return await self._db.scan_file(lambda c: _page(c, statement, search), seconds)

    async def probe(self) -> None:
        now = self.clock()
        await self._db.write(lambda tx: tx.execute("UPDATE state SET probed_at = $1", now), PROBE_SECONDS)

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
            UNLIMITED if limits is None else unpacked(limits),
            pending != 0,
            derived != 0,
        )
    )


def _page(c: apsw.Connection, statement: TokenStatement, search: Search) -> Page:
    began = time.thread_time()
    where = sqlite_text(statement.where)
    bound = tuple([rows.json_text(value) if type(value) is list else value for value in statement.bound])
    if statement.counted is not None:
        total = c.execute(_TOTAL, statement.counted).get or 0
    else:
        total = c.execute(f"SELECT count(*) FROM tokens WHERE {where}", bound).get
    if search.count == 0 or search.start >= total:
        return Page(total, (), time.thread_time() - began)
    columns, make = rows.token_reader(search.record_fields)
    found = c.execute(
        f"SELECT {columns} FROM tokens WHERE {where} ORDER BY {statement.order} LIMIT ? OFFSET ?",
        (*bound, search.count, search.start),
    )
    return Page(total, tuple(map(make, found)), time.thread_time() - began)


def open_store(path: Path, clock: Clock, observe: Observe = ignore) -> SqliteStore:
    """`stores.open.prepare` must have migrated the file."""
    try:
        return SqliteStore(SqliteDatabase(path, clock, observe=observe))
    except apsw.Error as error:
        raise store_fault(error) from error
