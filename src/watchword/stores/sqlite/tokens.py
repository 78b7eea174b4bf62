"""Tokens in SQLite: found, made and listed by indexed statements; searched under a deadline."""

import time
from collections.abc import Mapping

import apsw
import orjson

from watchword.domain.actors import ActorSnapshot, Bearer, WritePrecondition, system_precondition
from watchword.domain.filters import SEARCH_SECONDS, Search
from watchword.domain.ports import Clock, Issue, Page, Use
from watchword.domain.token_limits import UNLIMITED, unpacked
from watchword.domain.tokens import TokenRecord
from watchword.stores import rows
from watchword.stores.sqlite.database import Database, in_snapshot
from watchword.stores.sqlite.issuing import check_issue, get, keep
from watchword.stores.sqlite.lives import withdraw
from watchword.stores.sqlite.searches import Statement, translate
from watchword.stores.sqlite.warrants import prove

# Everything a verdict rests on, in one statement: one state of the store, committed before the read began.
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

_STANDING = """
SELECT EXISTS (SELECT 1 FROM actors WHERE urn = ?1 AND status = 'SUSPENDED'),
       (SELECT json_group_array(group_urn) FROM group_members WHERE actor_urn = ?1),
       (SELECT policy_version FROM state)
"""

# Counters of use grow; a time is never moved back, and the network is that of the latest use.
_USE = """
UPDATE tokens SET use_count = use_count + :count,
    last_network = iif(ifnull(last_used_at, 0) <= :last, :network, last_network),
    last_used_at = max(ifnull(last_used_at, 0), :last)
WHERE id = :id
"""

_TOTAL = "SELECT total FROM token_totals WHERE kind = ? AND urn = ?"

# Bounded by its LIMIT, and asked only of an actor that has that many tokens, dead ones included.
_LIVE = """
SELECT count(*) FROM (
    SELECT 1 FROM tokens WHERE actor_urn = :actor AND revoked_at IS NULL AND expires_at IS NULL
    UNION ALL
    SELECT 1 FROM tokens WHERE actor_urn = :actor AND revoked_at IS NULL AND expires_at > :now
    LIMIT :most)
"""


def bearer_of(row: rows.Row, now: int) -> Bearer:
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
        ),
    )


class SqliteTokens:
    def __init__(self, database: Database, clock: Clock) -> None:
        self._db = database
        self.clock = clock
        database.define(_BEARERS)
        self._at_once = database.at_once

    async def find_bearer(self, token_id: str) -> Bearer | None:
        try:
            row = self._at_once(_FIND_BEARER, (token_id,)).get
        except apsw.Error:
            row = await self._db.row(_FIND_BEARER, token_id)
        if row is None:
            return None
        return bearer_of(row, self.clock())

    async def snapshot(self, actor: str) -> ActorSnapshot:
        row = await self._db.row(_STANDING, actor)
        assert row is not None
        suspended, groups, version = row
        return ActorSnapshot(suspended != 0, tuple(orjson.loads(groups)), version)

    async def get_token(self, token_id: str) -> TokenRecord | None:
        return await self._db.read(lambda c: get(c, token_id))

    async def add_token(self, precondition: WritePrecondition, record: TokenRecord, issue: Issue) -> None:
        def work(c: apsw.Connection) -> None:
            now = self.clock()
            prove(c, precondition, now)
            check_issue(c, record, issue, now)
            _check_room(c, record.actor_urn, issue.max_live, now)
            keep(c, precondition, record, now)

        def undo(c: apsw.Connection) -> None:
            withdraw(c, system_precondition("undelivered", precondition.request_id), record.id, self.clock())

        # Nobody holds a token that is committed after its request was answered. Under a key the request comes again.
        await self._db.write(work, undo=undo if issue.retry is None else None)

    async def search(self, search: Search, seconds: float = SEARCH_SECONDS) -> Page:
        statement = translate(search, self.clock())
        if statement.inline:
            return await self._db.read(lambda c: in_snapshot(c, lambda c: _page(c, statement, search)))
        return await self._db.scan(lambda c: _page(c, statement, search), seconds)

    async def record_uses(self, uses: Mapping[str, Use]) -> None:
        seen = [{"id": i, "last": use.last, "count": use.count, "network": use.network} for i, use in uses.items()]
        await self._db.write(lambda c: c.executemany(_USE, seen))


def _page(c: apsw.Connection, statement: Statement, search: Search) -> Page:
    began = time.thread_time()
    if statement.counted is not None:
        total = c.execute(_TOTAL, statement.counted).get or 0
    else:
        total = c.execute(f"SELECT count(*) FROM tokens WHERE {statement.where}", statement.bound).get  # noqa: S608
    if search.count == 0 or search.start >= total:
        return Page(total, (), time.thread_time() - began)
    columns, make = rows.token_reader(search.record_fields)
    found = c.execute(
        f"SELECT {columns} FROM tokens WHERE {statement.where}"  # noqa: S608 - literal pieces; values are bound
        f" ORDER BY {statement.order} LIMIT :count OFFSET :start",
        {**statement.bound, "count": search.count, "start": search.start},
    )
    page = tuple(map(make, found))
    return Page(total, page, time.thread_time() - began)


def _check_room(c: apsw.Connection, actor: str, max_live: int, now: int) -> None:
    if (c.execute(_TOTAL, ("actor", actor)).get or 0) < max_live:
        return
    live = c.execute(_LIVE, {"actor": actor, "now": now, "most": max_live}).get
    if live >= max_live:
        raise rows.no_room(max_live)
