"""Tokens in PostgreSQL: verified by shared reads, searched under a deadline, their uses noted apart from both."""

import asyncio
import time
from collections.abc import Mapping

from watchword.domain.actors import ActorSnapshot, Bearer
from watchword.domain.filters import SEARCH_SECONDS, Search
from watchword.domain.ports import Page, Use
from watchword.domain.tokens import TokenRecord
from watchword.stores import rows
from watchword.stores.postgres.clock import DatabaseClock
from watchword.stores.postgres.connections import Connection
from watchword.stores.postgres.creates import Creates
from watchword.stores.postgres.database import Database, Lost, unknown_outcome
from watchword.stores.postgres.lanes import VerifyBatcher
from watchword.stores.postgres.lives import GET
from watchword.stores.postgres.searches import Statement, translate

_STANDING = """
SELECT EXISTS (SELECT 1 FROM actors WHERE urn = $1 AND status = 'SUSPENDED'),
       ARRAY(SELECT group_urn FROM group_members WHERE actor_urn = $1),
       (SELECT policy_version FROM state)
"""
USES = "SELECT note_uses($1::text[], $2::bigint[], $3::bigint[], $4::text[])"


class PostgresTokens:
    def __init__(self, database: Database, lanes: VerifyBatcher, clock: DatabaseClock) -> None:
        self._db = database
        self._lanes = lanes
        self.clock = clock
        self._creates = Creates(database)
        self._withdrawals: set[asyncio.Task[None]] = set()

    async def find_bearer(self, token_id: str) -> Bearer | None:
        return await self._lanes.find(token_id)

    async def snapshot(self, actor: str) -> ActorSnapshot:
        suspended, groups, version = await self._db.row(_STANDING, actor)
        return ActorSnapshot(suspended, tuple(groups), version)

    async def get_token(self, token_id: str) -> TokenRecord | None:
        row = await self._db.row(GET, token_id)
        return None if row is None else rows.token_of(row)

    async def search(self, search: Search, seconds: float = SEARCH_SECONDS) -> Page:
        statement = translate(search)
        if statement.inline:
            return await self._db.read(lambda c: _page(c, statement, search))
        return await self._db.scan(lambda c: _page(c, statement, search), seconds)

    async def record_uses(self, uses: Mapping[str, Use]) -> None:
        seen = list(uses.values())
        columns = ([use.last for use in seen], [use.count for use in seen], [use.network for use in seen])
        try:
            await self._db.call(USES, list(uses), *columns)
        except Lost as lost:
            raise unknown_outcome(lost.why) from lost


async def _page(c: Connection, statement: Statement, search: Search) -> Page:
    began = time.perf_counter()
    found = await c.fetch(statement.text, *statement.bound)
    seconds = time.perf_counter() - began
    total = found[0][0]
    _, make = rows.token_reader(search.record_fields)
    return Page(total, tuple(make(row[1:]) for row in found if row[1] is not None), seconds)
