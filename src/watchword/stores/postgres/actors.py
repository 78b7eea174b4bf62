"""The actors that are known, in PostgreSQL: a page of each index that has them, merged."""

from collections.abc import Collection
from typing import Any

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
from watchword.stores.postgres.connections import Connection
from watchword.stores.postgres.database import Database

_MEANT = "urn >= $1 AND urn < $2"
_SUSPENDED = f"SELECT urn FROM actors WHERE {_MEANT} AND status = 'SUSPENDED' ORDER BY urn LIMIT $3"  # noqa: S608 - literal pieces
# Each gives its first ones, so that together they have the first of all, whatever else there is.
_KNOWN = f"""
    (SELECT DISTINCT urn FROM token_totals WHERE kind = 'actor' AND {_MEANT} ORDER BY urn LIMIT $3)
    UNION (SELECT urn FROM actors WHERE {_MEANT} ORDER BY urn LIMIT $3)
    UNION (SELECT DISTINCT actor_urn FROM group_members WHERE actor_urn >= $1 AND actor_urn < $2
        ORDER BY actor_urn LIMIT $3)
    UNION SELECT named.urn COLLATE "C" FROM policies AS p, json_array_elements_text(p.users::json) AS named (urn)
        WHERE named.urn COLLATE "C" >= $1 AND named.urn COLLATE "C" < $2
    ORDER BY urn LIMIT $3"""  # noqa: S608
_PAGE = """
SELECT known.urn, coalesce(actors.status, 'ACTIVE'), actors.changed_at, actors.changed_by,
    total_of('actor', known.urn),
    ARRAY(SELECT group_urn FROM group_members WHERE actor_urn = known.urn ORDER BY group_urn LIMIT $4)
FROM ({known}) AS known LEFT JOIN actors ON actors.urn = known.urn ORDER BY known.urn"""


_AMONG = "SELECT urn FROM actors WHERE status = 'SUSPENDED' AND urn = ANY ($1::text[])"
_HOLDINGS = """
SELECT (SELECT count(*) FROM tokens
        WHERE actor_urn = $1 AND revoked_at IS NULL AND (expires_at IS NULL OR expires_at > (SELECT now_ms()))),
    (SELECT count(*) FROM sessions WHERE actor_urn = $1 AND ends_at > (SELECT now_ms())),
    EXISTS (SELECT 1 FROM token_totals WHERE urn = $1)
        OR EXISTS (SELECT 1 FROM group_members WHERE actor_urn = $1)
        OR EXISTS (SELECT 1 FROM sessions WHERE actor_urn = $1)
        OR EXISTS (SELECT 1 FROM service_accounts WHERE urn = $1)
        OR EXISTS (SELECT 1 FROM policies AS p, json_array_elements_text(p.users::json) AS named (urn)
            WHERE named.urn = $1)"""


class PostgresActors:
    _db: Database

    async def known_actors(self, search: ActorSearch, seconds: float = SEARCH_SECONDS) -> ActorPage:
        statement, bound = translate(search)

        async def work(c: Connection) -> ActorPage:
            found = [_actor(row) for row in await c.fetch(statement, *bound)]
            return ActorPage(tuple(found[: search.count]), more=len(found) > search.count)

        return await self._db.scan(work, seconds)

    async def suspended_among(self, actors: Collection[str]) -> frozenset[str]:
        return frozenset(urn for (urn,) in await self._db.rows(_AMONG, list(actors)))

    async def actor_holdings(self, actor: str) -> ActorHoldings:
        async def work(c: Connection) -> ActorHoldings:
            (row,) = await c.fetch(_HOLDINGS, actor)
            return ActorHoldings(*row)

        return await self._db.scan(work)


def translate(search: ActorSearch) -> tuple[str, tuple[Any, ...]]:
    """The statement that reads this page, and what is bound in it."""
    bound = (search.least, search.bound, search.count + 1, MAX_GROUPS_SHOWN)
    return _PAGE.format(known=_SUSPENDED if search.only_suspended else _KNOWN), bound


def _actor(row: Any) -> KnownActor:
    urn, status, changed_at, changed_by, tokens, groups = row
    return KnownActor(ActorState(urn, ActorStatus(status), changed_at, changed_by), tokens, tuple(groups))
