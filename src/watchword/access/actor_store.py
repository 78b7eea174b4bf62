"""Actors: their status, profile and holdings, and the list of all known ones."""

import sys
from collections.abc import Awaitable, Callable, Collection, Sequence
from typing import Any, ClassVar

import orjson

from watchword.access.actor_rules import (
    MAX_GROUPS_SHOWN,
    MAX_LIVE_COUNTED,
    ActorHoldings,
    ActorPage,
    ActorSearch,
    ActorState,
    KnownActor,
    Profile,
    ProfileField,
)
from watchword.authority.callers import ActorSnapshot, ActorStatus
from watchword.authority.store import check_precondition
from watchword.basics.errors import Fault, Reason
from watchword.basics.names import NOTHING_STORED, SYSTEM_ACTOR, ShownActor
from watchword.basics.paging import SEARCH_SECONDS
from watchword.database import rows
from watchword.database.transaction import Dialect, SqlPart, Transaction, actor_lock, page, snapshot, transaction
from watchword.journal.events import Action, Event
from watchword.journal.preconditions import WritePrecondition
from watchword.journal.store import write_events

EndsWithActor = Callable[[Transaction, WritePrecondition, str, int], Awaitable[object]]
"""Ends something of an actor that is suspended at this time, and writes its events."""

_SET_STATUS = rows.put("actors", "urn, status, changed_at, changed_by", "urn")
_PUT_PROFILE = rows.put("actors", "urn, display_name, email", "urn")


class ActorStore(SqlPart):
    ends_with_actor: ClassVar[Sequence[EndsWithActor]] = ()
    """What a suspension ends in its transaction, by the parts of the store that have it."""

    async def actor_snapshot(self, actor: str) -> ActorSnapshot:
        groups = self._db.dialect.json_array("group_urn", "group_members WHERE actor_urn = $1::text")
        row = await self._db.row(
            f"""SELECT EXISTS (SELECT 1 FROM actors WHERE urn = $1::text AND status = 'SUSPENDED'), {groups},
                (SELECT policy_version FROM state WHERE one = 1)""",
            actor,
        )
        assert row is not None
        return ActorSnapshot(bool(row[0]), tuple(orjson.loads(row[1])), row[2])

    async def actor_state(self, actor: str) -> ActorState:
        row = await self._db.row("SELECT urn, status, changed_at, changed_by, email FROM actors WHERE urn = $1", actor)
        return ActorState(actor, ActorStatus.ACTIVE) if row is None else _actor_state(row)

    async def shown_actors(self, actors: Collection[str]) -> dict[str, ShownActor]:
        """Names, e-mail addresses and status of these actors, service accounts included; without those of whom nothing
        is stored.
        """
        any_of = self._db.dialect.any_of("$1")
        sql = f"""
        SELECT urn, name, NULL, NULL FROM service_accounts WHERE urn {any_of}
        UNION ALL SELECT urn, display_name, email, status FROM actors WHERE urn {any_of}"""
        shown: dict[str, ShownActor] = {}
        for urn, name, email, status in await self.fetch_of(actors, sql):
            before = shown.get(urn, NOTHING_STORED)
            suspended = before.suspended or status == ActorStatus.SUSPENDED.value
            shown[urn] = ShownActor(name or before.name, email or before.email, suspended)
        return shown

    @transaction
    async def set_profile(self, tx: Transaction, precondition: WritePrecondition, actor: str, profile: Profile) -> None:
        now = await check_precondition(tx, precondition, exclusive=[actor_lock(actor)])
        await put_profile(tx, precondition, actor, profile, now)

    @transaction
    async def set_actor_status(
        self, tx: Transaction, precondition: WritePrecondition, actor: str, status: ActorStatus
    ) -> None:
        """A suspension ends what `ends_with_actor` lists. NOT_EDITABLE if the actor is a deleted service account."""
        now = await check_precondition(tx, precondition, exclusive=[actor_lock(actor)])
        if await tx.fetchval("SELECT deleted_at FROM service_accounts WHERE urn = $1", actor) is not None:
            raise Fault(Reason.NOT_EDITABLE, "The service account was deleted. Create a new one.")
        row = await tx.fetchrow("SELECT status, changed_by FROM actors WHERE urn = $1", actor)
        before, by = row or (ActorStatus.ACTIVE.value, None)
        if before == status.value:
            if status is ActorStatus.SUSPENDED and by == SYSTEM_ACTOR != precondition.actor:
                # An import suspended it, and must not resume it any more.
                await put_status(tx, precondition, actor, status, now)
            return
        await put_status(tx, precondition, actor, status, now)
        if status is ActorStatus.SUSPENDED:
            for end in self.ends_with_actor:
                await end(tx, precondition, actor, now)
        action = Action.ACTOR_SUSPENDED if status is ActorStatus.SUSPENDED else Action.ACTOR_RESUMED
        await write_events(tx, precondition, [Event(action, actor)], now)

    @snapshot
    async def actor_holdings(self, tx: Transaction, actor: str) -> ActorHoldings:
        row = await tx.fetchrow(
            f"""
            SELECT (SELECT count(*) FROM tokens WHERE actor_urn = $1::text AND revoked_at IS NULL
                    AND (expires_at IS NULL OR expires_at > (SELECT now_ms()))),
                EXISTS (SELECT 1 FROM actors WHERE urn = $1::text AND status = 'SUSPENDED'),
                (SELECT count(*) FROM sessions WHERE actor_urn = $1::text AND ends_at > (SELECT now_ms())),
                EXISTS (SELECT 1 FROM token_totals WHERE urn = $1::text)
                OR EXISTS (SELECT 1 FROM actors WHERE urn = $1::text AND coalesce(display_name, email) IS NOT NULL)
                OR EXISTS (SELECT 1 FROM group_members WHERE actor_urn = $1::text)
                OR EXISTS (SELECT 1 FROM sessions WHERE actor_urn = $1::text)
                OR EXISTS (SELECT 1 FROM service_accounts WHERE urn = $1::text)
                OR EXISTS (SELECT 1 FROM policies {tx.dialect.policy_users} WHERE named.value = $1::text)""",
            actor,
        )
        assert row is not None
        tokens, suspended, sessions, known = row
        live, stopped = (0, tokens) if suspended else (tokens, 0)
        return ActorHoldings(live, sessions, bool(known), stopped)

    async def known_actors(self, search: ActorSearch, seconds: float = SEARCH_SECONDS) -> ActorPage:
        """Actors, by urn, that have or had tokens, a status, a name or a group, or that a policy names. Costs what the
        page and the policies cost; DEADLINE if that takes longer.
        """
        sql, bound = known_actors_sql(search, self._db.dialect)

        async def work(tx: Transaction) -> ActorPage:
            found = [_known_actor(row) for row in await tx.fetch(sql, *bound)]
            return ActorPage(tuple(found[: search.count]), more=len(found) > search.count)

        return await self._db.scan(work, seconds)

    async def find_actors(
        self, query: str, start: int, count: int, seconds: float = SEARCH_SECONDS
    ) -> tuple[int, tuple[str, ...]]:
        """The urns of the known actors whose urn, name or e-mail address contains the query, and their number. Costs
        what all known actors cost; DEADLINE if that takes longer.
        """
        matching = _matching(_known_urns(self._db.dialect), "$4::text", self._db.dialect)
        bound = ("", ActorSearch().bound, sys.maxsize, query.lower())

        async def work(tx: Transaction) -> tuple[int, tuple[str, ...]]:
            total, found = await page(tx, "known.urn", matching, "known.urn", start, count, bound)
            return total, tuple(urn for (urn,) in found)

        return await self._db.scan(work, seconds)


def _known_urns(dialect: Dialect) -> str:
    """From the first parameter on, before the second, and at most as many as the third. Each source gives its first
    ones, so that together they hold the first of all.
    """
    between = "urn >= $1::text AND urn < $2::text"
    page = "ORDER BY urn LIMIT $3"
    return f"""
        SELECT urn FROM (SELECT DISTINCT urn FROM token_totals WHERE kind = 'actor' AND {between} {page}) AS counted
        UNION SELECT urn FROM (SELECT urn FROM actors WHERE {between} {page}) AS with_row
        UNION SELECT urn FROM (SELECT DISTINCT actor_urn AS urn FROM group_members
            WHERE actor_urn >= $1::text AND actor_urn < $2::text ORDER BY actor_urn LIMIT $3) AS in_groups
        UNION SELECT named.value FROM policies {dialect.policy_users}
            WHERE named.value >= $1::text AND named.value < $2::text
        {page}"""


def _matching(urns: str, query: str, dialect: Dialect) -> str:
    """A source: `known`, those of the urns whose text, name or e-mail address contains the query, which is in
    lower case.
    """
    columns = ("known.urn", "actors.display_name", "actors.email", "service_accounts.name")
    texts = [f"{dialect.position(dialect.folded(column), query)} > 0" for column in columns]
    return f"""({urns}) AS known LEFT JOIN actors ON actors.urn = known.urn
        LEFT JOIN service_accounts ON service_accounts.urn = known.urn WHERE {query} = '' OR {" OR ".join(texts)}"""


def known_actors_sql(search: ActorSearch, dialect: Dialect) -> tuple[str, tuple[Any, ...]]:
    suspended = "urn >= $1::text AND urn < $2::text AND status = 'SUSPENDED' ORDER BY urn LIMIT $3"
    known = f"SELECT urn FROM actors WHERE {suspended}" if search.only_suspended else _known_urns(dialect)
    most: int = search.count + 1
    found: tuple[Any, ...] = ()
    if search.query:
        known = f"SELECT known.urn FROM {_matching(known, '$6::text', dialect)} ORDER BY known.urn LIMIT $7"
        most, found = sys.maxsize, (search.query.lower(), search.count + 1)
    groups = dialect.json_array(
        "group_urn", "group_members WHERE actor_urn = known.urn ORDER BY group_urn LIMIT $4::bigint"
    )
    # Two ranges of an index: expired tokens are not read.
    by_actor = dialect.by_index("tokens_actor")
    live = " + ".join(
        f"""(SELECT count(*) FROM (SELECT 1 FROM tokens {by_actor} WHERE actor_urn = known.urn AND revoked_at IS NULL
            AND {end} LIMIT $5::bigint) AS counted)"""
        for end in ("expires_at IS NULL", "expires_at > (SELECT now_ms())")
    )
    sql = f"""
    SELECT known.urn, coalesce(actors.status, 'ACTIVE'), actors.changed_at, actors.changed_by, actors.email,
        CASE WHEN actors.status = 'SUSPENDED' THEN 0 ELSE {live} END, {groups}
    FROM ({known}) AS known LEFT JOIN actors ON actors.urn = known.urn ORDER BY known.urn"""
    return sql, (search.least, search.bound, most, MAX_GROUPS_SHOWN, MAX_LIVE_COUNTED, *found)


async def put_status(
    tx: Transaction, precondition: WritePrecondition, actor: str, status: ActorStatus, now: int
) -> None:
    await tx.execute(_SET_STATUS, actor, status.value, now, precondition.actor)


async def put_profile(tx: Transaction, precondition: WritePrecondition, actor: str, profile: Profile, now: int) -> None:
    """Change the profile under the lock of the actor. The event names the fields that changed, without their text."""
    row = await tx.fetchrow("SELECT display_name, email FROM actors WHERE urn = $1", actor)
    before = dict(zip(ProfileField, row or (None, None), strict=True))
    after = before | dict(profile)
    changed: list[str] = [field.value for field in ProfileField if before[field] != after[field]]
    if changed:
        await tx.execute(_PUT_PROFILE, actor, *after.values())
        await write_events(tx, precondition, [Event(Action.ACTOR_UPDATED, actor, {"fields": changed})], now)


def _actor_state(row: rows.Row) -> ActorState:
    urn, status, *others = row
    return ActorState(urn, ActorStatus(status), *others)


def _known_actor(row: rows.Row) -> KnownActor:
    *state, tokens, groups = row
    return KnownActor(_actor_state(state), min(tokens, MAX_LIVE_COUNTED), tuple(orjson.loads(groups)))
