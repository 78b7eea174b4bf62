"""Tokens in SQLite: found, made, ended and listed by indexed statements; searched under a deadline."""

from collections.abc import Mapping

import apsw
import orjson

from watchword.domain.actors import Bearer, Standing, Warrant
from watchword.domain.errors import Stale
from watchword.domain.events import Action, Event
from watchword.domain.filters import SEARCH_SECONDS, Search
from watchword.domain.ports import Clock, Page
from watchword.domain.tokens import TokenRecord
from watchword.stores import rows
from watchword.stores.sqlite.database import Database, in_snapshot
from watchword.stores.sqlite.searches import Statement, translate
from watchword.stores.sqlite.warrants import leave_event, prove

# Everything a verdict rests on, in one statement: one state of the store, committed before the read began.
_FIND_BEARER = """
SELECT actor_urn, expires_at, revoked_at,
       EXISTS (SELECT 1 FROM actors WHERE urn = tokens.actor_urn AND status = 'SUSPENDED'),
       (SELECT json_group_array(group_urn) FROM group_members WHERE actor_urn = tokens.actor_urn),
       (SELECT policy_version FROM state)
FROM tokens WHERE id = ?
"""

_STANDING = """
SELECT EXISTS (SELECT 1 FROM actors WHERE urn = ?1 AND status = 'SUSPENDED'),
       (SELECT json_group_array(group_urn) FROM group_members WHERE actor_urn = ?1),
       (SELECT policy_version FROM state)
"""

_GET = f"SELECT {rows.TOKEN} FROM tokens WHERE id = ?"  # noqa: S608

_ADD = """
INSERT INTO tokens (id, type, name, description, actor_urn, owner_urn, created_at, expires_at, minted_with)
VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?)
"""

_KEY_IN_USE = "SELECT kid FROM keys ORDER BY seq DESC LIMIT 1"

_TOTAL = "SELECT total FROM token_totals WHERE kind = ? AND urn = ?"

# Bounded by its LIMIT, and asked only of an actor that has that many tokens, dead ones included.
_LIVE = """
SELECT count(*) FROM (
    SELECT 1 FROM tokens WHERE actor_urn = :actor AND revoked_at IS NULL AND expires_at IS NULL
    UNION ALL
    SELECT 1 FROM tokens WHERE actor_urn = :actor AND revoked_at IS NULL AND expires_at > :now
    LIMIT :most)
"""


class SqliteTokens:
    def __init__(self, database: Database, clock: Clock) -> None:
        self._db = database
        self.clock = clock

    async def find_bearer(self, token_id: str) -> Bearer | None:
        row = await self._db.row(_FIND_BEARER, (token_id,))
        if row is None:
            return None
        actor, expires_at, revoked_at, suspended, groups, version = row
        now = self.clock()
        return Bearer(token_id, actor, expires_at, revoked_at, bool(suspended), _listed(groups), version, now)

    async def standing(self, actor: str) -> Standing:
        row = await self._db.row(_STANDING, (actor,))
        assert row is not None
        suspended, groups, version = row
        return Standing(bool(suspended), _listed(groups), version)

    async def get_token(self, token_id: str) -> TokenRecord | None:
        return await self._db.read(lambda c: _get(c, token_id))

    async def add_token(self, warrant: Warrant, record: TokenRecord, kid: str, max_live: int) -> None:
        def work(c: apsw.Connection) -> None:
            now = self.clock()
            prove(c, warrant, now)
            if c.execute(_KEY_IN_USE).get != kid:
                raise Stale
            _check_room(c, record.actor_urn, max_live, now)
            c.execute(_ADD, rows.token_values(record))
            leave_event(c, warrant, rows.created(record), now)

        await self._db.write(work)

    async def revoke_token(self, warrant: Warrant, token_id: str, only_of: str | None) -> int:
        def work(c: apsw.Connection) -> int:
            now = self.clock()
            prove(c, warrant, now)
            record = _get(c, token_id)
            if record is None or (only_of is not None and only_of not in (record.actor_urn, record.owner_urn)):
                raise rows.no_token()
            if record.revoked_at is not None:
                raise rows.already_revoked(record.revoked_at)
            c.execute("UPDATE tokens SET revoked_at = ? WHERE id = ?", (now, token_id))
            leave_event(c, warrant, Event(Action.TOKEN_REVOKED, token_id, {"actorUrn": record.actor_urn}), now)
            return now

        return await self._db.write(work)

    async def search(self, search: Search, seconds: float = SEARCH_SECONDS) -> Page:
        statement = translate(search, self.clock())
        if statement.inline:
            return await self._db.read(lambda c: in_snapshot(c, lambda c: _page(c, statement, search)))
        return await self._db.scan(lambda c: _page(c, statement, search), seconds)

    async def record_uses(self, uses: Mapping[str, int]) -> None:
        def work(c: apsw.Connection) -> None:
            c.executemany(
                "UPDATE tokens SET last_used_at = ?2 WHERE id = ?1 AND ifnull(last_used_at, 0) < ?2",
                uses.items(),
            )

        await self._db.write(work)


def _page(c: apsw.Connection, statement: Statement, search: Search) -> Page:
    if statement.counted is not None:
        total = c.execute(_TOTAL, statement.counted).get or 0
    else:
        total = c.execute(f"SELECT count(*) FROM tokens WHERE {statement.where}", statement.bound).get  # noqa: S608
    if search.count == 0 or search.start >= total:
        return Page(total, ())
    found = c.execute(
        f"SELECT {rows.TOKEN} FROM tokens WHERE {statement.where}"  # noqa: S608 - literal pieces; values are bound
        f" ORDER BY {statement.order} LIMIT :count OFFSET :start",
        {**statement.bound, "count": search.count, "start": search.start},
    )
    return Page(total, tuple(rows.token_of(row) for row in found))


def _check_room(c: apsw.Connection, actor: str, max_live: int, now: int) -> None:
    if c.execute("SELECT 1 FROM actors WHERE urn = ? AND status = 'SUSPENDED'", (actor,)).get:
        raise rows.actor_suspended()
    if (c.execute(_TOTAL, ("actor", actor)).get or 0) < max_live:
        return
    live = c.execute(_LIVE, {"actor": actor, "now": now, "most": max_live}).get
    if live >= max_live:
        raise rows.no_room(max_live)


def _get(c: apsw.Connection, token_id: str) -> TokenRecord | None:
    row = c.execute(_GET, (token_id,)).fetchone()
    return None if row is None else rows.token_of(row)


def _listed(groups: str) -> tuple[str, ...]:
    return () if groups == "[]" else tuple(orjson.loads(groups))
