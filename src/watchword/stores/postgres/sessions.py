"""Sessions in PostgreSQL."""

from watchword.domain.actors import Bearer, WritePrecondition
from watchword.domain.events import Action
from watchword.domain.sessions import HOUR, FoundSession, Session, sessions_ended, signed_in_too_often
from watchword.domain.token_limits import unpacked
from watchword.stores import rows
from watchword.stores.postgres.connections import Connection
from watchword.stores.postgres.database import Database
from watchword.stores.postgres.lanes import BEARER
from watchword.stores.postgres.warrants import leave_events, prove

_ADD = f"INSERT INTO sessions ({rows.SESSION}) VALUES ($1, $2, $3, $4, $5)"  # noqa: S608 - literal pieces
# The token as every verification sees it. A verdict is by the database's clock.
_FIND = f"""
SELECT s.id, s.actor_urn, s.token_id, s.created_at, s.ends_at, {BEARER}
FROM sessions AS s LEFT JOIN tokens AS t ON t.id = s.token_id WHERE s.id = $1 AND s.ends_at > (SELECT now_ms())
"""  # noqa: S608
_SURPLUS = """
DELETE FROM sessions WHERE id IN (
    SELECT id FROM sessions WHERE token_id = $1 ORDER BY created_at DESC, id OFFSET $2)"""
_SURPLUS_CHOSEN = """
DELETE FROM sessions WHERE id IN (
    SELECT id FROM sessions WHERE actor_urn = $1 AND token_id IS NULL ORDER BY created_at DESC, id OFFSET $2)"""
# The last sign-in but so many. By the index of targets: the action must not choose another.
_EARLIER = """
SELECT at FROM events WHERE target = $1 AND at > $2 AND action || '' = 'session.started'
ORDER BY at DESC LIMIT 1 OFFSET $3"""
_PURGE = """
WITH gone AS (
    DELETE FROM sessions WHERE id IN (
        SELECT id FROM sessions WHERE ends_at <= (SELECT now_ms()) ORDER BY ends_at LIMIT $1 FOR UPDATE SKIP LOCKED)
    RETURNING 1)
SELECT count(*) FROM gone"""


class PostgresSessions:
    _db: Database

    async def add_session(self, precondition: WritePrecondition, session: Session, most: int, an_hour: int) -> None:
        async def work(c: Connection) -> None:
            now = await prove(c, precondition, changes=[f"sessions:{session.holder}"])
            earlier = await c.fetchval(_EARLIER, session.holder, now - HOUR, an_hour - 1)
            if earlier is not None:
                raise signed_in_too_often(earlier + HOUR - now, session.whose)
            # Before the new one comes, which may be no later than the others by the clock.
            surplus = _SURPLUS_CHOSEN if session.token_id is None else _SURPLUS
            await c.execute(surplus, session.holder, most - 1)
            await c.execute(_ADD, *session)
            await leave_events(c, precondition, [session.event(Action.SESSION_STARTED)], now)

        await self._db.write(work)

    async def find_session(self, session_id: str) -> FoundSession | None:
        row = await self._db.row(_FIND, session_id)
        if row is None:
            return None
        session = Session(*row[:5])
        token_id, actor, expires_at, revoked_at, suspended, groups, version, now, limits, *kinds = row[5:]
        if token_id is None:
            return FoundSession(session, None)
        snapshot = (suspended, tuple(groups), version)
        return FoundSession(
            session, Bearer(token_id, actor, expires_at, revoked_at, *snapshot, now, unpacked(limits), *kinds)
        )

    async def end_session(self, precondition: WritePrecondition, session: Session) -> None:
        async def work(c: Connection) -> None:
            now = await prove(c, precondition)
            if await c.fetchval("DELETE FROM sessions WHERE id = $1 RETURNING 1", session.id):
                await leave_events(c, precondition, [session.event(Action.SESSION_ENDED)], now)

        await self._db.write(work)

    async def end_sessions_of(self, precondition: WritePrecondition, actor: str) -> int:
        async def work(c: Connection) -> int:
            now = await prove(c, precondition)
            ends = await c.fetch("DELETE FROM sessions WHERE actor_urn = $1 RETURNING ends_at", actor)
            live = sum(1 for (ends_at,) in ends if ends_at > now)
            if live:
                await leave_events(c, precondition, [sessions_ended(actor, live)], now)
            return live

        return await self._db.write(work)

    async def purge_sessions(self, most: int) -> int:
        async def work(c: Connection) -> int:
            return int(await c.fetchval(_PURGE, most))

        return await self._db.write(work)
