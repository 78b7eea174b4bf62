"""The actors that are known, in SQLite: a page of each index that has them, merged."""

from collections.abc import Collection
from typing import Any

import apsw
import orjson

from watchword.domain.actors import (
    MAX_GROUPS_SHOWN,
    ActorHoldings,
    ActorPage,
    ActorSearch,
    ActorState,
    ActorStatus,
    KnownActor,
)
from watchword.domain.filters import SEARCH_SECONDS
from watchword.domain.ports import Clock
from watchword.stores.sqlite.database import Database

_MEANT = "urn >= :least AND urn < :bound"
_SUSPENDED = f"SELECT urn FROM actors WHERE {_MEANT} AND status = 'SUSPENDED' ORDER BY urn LIMIT :most"  # noqa: S608 - literal pieces
# Each gives its first ones, so that together they have the first of all, whatever else there is.
_KNOWN = f"""
    SELECT urn FROM (SELECT urn FROM token_totals WHERE kind = 'actor' AND {_MEANT} ORDER BY urn LIMIT :most)
    UNION SELECT urn FROM (SELECT urn FROM actors WHERE {_MEANT} ORDER BY urn LIMIT :most)
    UNION SELECT urn FROM (
        SELECT DISTINCT actor_urn AS urn FROM group_members WHERE actor_urn >= :least AND actor_urn < :bound
        ORDER BY actor_urn LIMIT :most)
    UNION SELECT value FROM policies, json_each(policies.users) WHERE value >= :least AND value < :bound
    ORDER BY urn LIMIT :most"""  # noqa: S608
_PAGE = """
SELECT known.urn, coalesce(actors.status, 'ACTIVE'), actors.changed_at, actors.changed_by,
    coalesce((SELECT total FROM token_totals WHERE kind = 'actor' AND urn = known.urn), 0),
    (SELECT json_group_array(group_urn) FROM (
        SELECT group_urn FROM group_members WHERE actor_urn = known.urn ORDER BY group_urn LIMIT :groups))
FROM ({known}) AS known LEFT JOIN actors ON actors.urn = known.urn ORDER BY known.urn"""


_AMONG = "SELECT urn FROM actors WHERE status = 'SUSPENDED' AND urn IN (SELECT value FROM json_each(?))"
_HOLDINGS = """
SELECT (SELECT count(*) FROM tokens
        WHERE actor_urn = :urn AND revoked_at IS NULL AND (expires_at IS NULL OR expires_at > :now)),
    (SELECT count(*) FROM sessions WHERE actor_urn = :urn AND ends_at > :now),
    EXISTS (SELECT 1 FROM token_totals WHERE urn = :urn)
        OR EXISTS (SELECT 1 FROM group_members WHERE actor_urn = :urn)
        OR EXISTS (SELECT 1 FROM sessions WHERE actor_urn = :urn)
        OR EXISTS (SELECT 1 FROM service_accounts WHERE urn = :urn)
        OR EXISTS (SELECT 1 FROM policies, json_each(policies.users) WHERE value = :urn)"""


class SqliteActors:
    def __init__(self, database: Database, clock: Clock) -> None:
        self._db = database
        self.clock = clock

    async def known_actors(self, search: ActorSearch, seconds: float = SEARCH_SECONDS) -> ActorPage:
        statement, bound = translate(search)

        def work(c: apsw.Connection) -> ActorPage:
            found = [_actor(row) for row in c.execute(statement, bound)]
            return ActorPage(tuple(found[: search.count]), more=len(found) > search.count)

        return await self._db.scan(work, seconds)

    async def suspended_among(self, actors: Collection[str]) -> frozenset[str]:
        urns = orjson.dumps(list(actors)).decode()
        return await self._db.read(lambda c: frozenset(urn for (urn,) in c.execute(_AMONG, (urns,))))

    async def actor_holdings(self, actor: str) -> ActorHoldings:
        def work(c: apsw.Connection) -> ActorHoldings:
            ((tokens, sessions, known),) = c.execute(_HOLDINGS, {"urn": actor, "now": self.clock()})
            return ActorHoldings(tokens, sessions, bool(known))

        return await self._db.scan(work)


def translate(search: ActorSearch) -> tuple[str, dict[str, Any]]:
    """The statement that reads this page, and what is bound in it."""
    bound = {"least": search.least, "bound": search.bound, "most": search.count + 1, "groups": MAX_GROUPS_SHOWN}
    return _PAGE.format(known=_SUSPENDED if search.only_suspended else _KNOWN), bound


def _actor(row: tuple[Any, ...]) -> KnownActor:
    urn, status, changed_at, changed_by, tokens, groups = row
    return KnownActor(ActorState(urn, ActorStatus(status), changed_at, changed_by), tokens, tuple(orjson.loads(groups)))
