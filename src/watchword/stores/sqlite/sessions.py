"""Sessions in SQLite."""

from typing import Any

import apsw

from watchword.domain.actors import WritePrecondition
from watchword.domain.events import Action
from watchword.domain.ports import Clock
from watchword.domain.sessions import HOUR, FoundSession, Session, sessions_ended, signed_in_too_often
from watchword.stores import rows
from watchword.stores.sqlite.database import Database
from watchword.stores.sqlite.tokens import bearer_of
from watchword.stores.sqlite.warrants import leave_event, prove

_ADD = f"INSERT INTO sessions ({rows.SESSION}) VALUES (?, ?, ?, ?, ?)"  # noqa: S608 - literal pieces
# The token as every verification sees it, by the view that is made for those.
_FIND = """
SELECT s.id, s.actor_urn, s.token_id, s.created_at, s.ends_at, b.*
FROM main.sessions AS s LEFT JOIN bearers AS b ON b.id = s.token_id WHERE s.id = ? AND s.ends_at > ?
"""
# Of one token, or of one actor without a token.
_SURPLUS = """
DELETE FROM sessions WHERE id IN (
    SELECT id FROM sessions WHERE token_id = :token ORDER BY created_at DESC, id LIMIT -1 OFFSET :most)
"""
_SURPLUS_CHOSEN = """
DELETE FROM sessions WHERE id IN (
    SELECT id FROM sessions WHERE actor_urn = :actor AND token_id IS NULL
    ORDER BY created_at DESC, id LIMIT -1 OFFSET :most)
"""
# The last sign-in but so many. By the index of targets: the action must not choose another.
_EARLIER = """
SELECT at FROM events WHERE target = :holder AND at > :since AND action || '' = 'session.started'
ORDER BY at DESC LIMIT 1 OFFSET :others
"""
_PURGE = "DELETE FROM sessions WHERE id IN (SELECT id FROM sessions WHERE ends_at <= ? ORDER BY ends_at LIMIT ?)"


class SqliteSessions:
    def __init__(self, database: Database, clock: Clock) -> None:
        self._db = database
        self.clock = clock

    async def add_session(self, precondition: WritePrecondition, session: Session, most: int, an_hour: int) -> None:
        def work(c: apsw.Connection) -> None:
            now = self.clock()
            prove(c, precondition, now)
            bound = {"holder": session.holder, "since": now - HOUR, "others": an_hour - 1}
            earlier = c.execute(_EARLIER, bound).get
            if earlier is not None:
                raise signed_in_too_often(earlier + HOUR - now, session.whose)
            # Before the new one comes, which may be no later than the others by the clock.
            if session.token_id is None:
                c.execute(_SURPLUS_CHOSEN, {"actor": session.actor, "most": most - 1})
            else:
                c.execute(_SURPLUS, {"token": session.token_id, "most": most - 1})
            c.execute(_ADD, session)
            leave_event(c, precondition, session.event(Action.SESSION_STARTED), now)

        await self._db.write(work)

    async def find_session(self, session_id: str) -> FoundSession | None:
        now = self.clock()
        row: Any = await self._db.row(_FIND, session_id, now)
        if row is None:
            return None
        return FoundSession(Session._make(row[:5]), None if row[5] is None else bearer_of(row[5:], now))

    async def end_session(self, precondition: WritePrecondition, session: Session) -> None:
        def work(c: apsw.Connection) -> None:
            c.execute("DELETE FROM sessions WHERE id = ?", (session.id,))
            if c.changes():
                leave_event(c, precondition, session.event(Action.SESSION_ENDED), self.clock())

        await self._db.write(work)

    async def end_sessions_of(self, precondition: WritePrecondition, actor: str) -> int:
        def work(c: apsw.Connection) -> int:
            now = self.clock()
            prove(c, precondition, now)
            live: int = c.execute("SELECT count(*) FROM sessions WHERE actor_urn = ? AND ends_at > ?", (actor, now)).get
            c.execute("DELETE FROM sessions WHERE actor_urn = ?", (actor,))
            if live:
                leave_event(c, precondition, sessions_ended(actor, live), now)
            return live

        return await self._db.write(work)

    async def purge_sessions(self, most: int) -> int:
        def work(c: apsw.Connection) -> int:
            c.execute(_PURGE, (self.clock(), most))
            return c.changes()

        return await self._db.write(work)
