"""The store on SQLite: one file, any number of worker processes."""

import time
from pathlib import Path
from typing import Any

import apsw
import orjson

from watchword.domain.actors import Bearer, WritePrecondition, system_precondition
from watchword.domain.bulk_revocation import Revocation, TokenVisibility
from watchword.domain.filters import SEARCH_SECONDS, Search
from watchword.domain.ports import Clock, Issue, Page
from watchword.domain.sessions import FoundSession, Session
from watchword.domain.token_limits import UNLIMITED, readable
from watchword.domain.tokens import TokenRecord, TokenType
from watchword.stores import rows
from watchword.stores.sql import SqlStore, token_lifecycle
from watchword.stores.sql.search import page_of, search_sql
from watchword.stores.sql.transaction import PRECONDITION_SQL, Observe, Transaction, ignore
from watchword.stores.sqlite.connections import store_fault
from watchword.stores.sqlite.database import SqliteDatabase, bound_values, sqlite_text

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
# Whether all checks of a new token hold. The time is known. Otherwise each check runs alone and raises its own error.
_MAY_ADD = sqlite_text(f"""
SELECT {PRECONDITION_SQL} AND ({token_lifecycle.KEY_IN_USE}) = $5
   AND NOT EXISTS ({token_lifecycle.SUSPENDED.replace("$1", "$6")})
   AND ({token_lifecycle.TOTAL.replace("$1", "$6")}) < $7
""")
# A token that the precondition allows to revoke, if it has no relatives: nothing else is revoked with it.
_ALONE = sqlite_text(f"""
SELECT {rows.TOKEN} FROM tokens WHERE id = $5 AND revoked_at IS NULL AND replaces IS NULL AND replaced_by IS NULL
   AND NOT EXISTS (SELECT 1 FROM tokens AS child WHERE child.parent = $5 AND child.revoked_at IS NULL)
   AND {PRECONDITION_SQL}
""")


class SqliteStore(SqlStore):
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

    async def add_token(self, precondition: WritePrecondition, record: TokenRecord, issue: Issue) -> None:
        async def work(tx: Transaction) -> None:
            now = await self._check_new(tx, precondition, record, issue)
            await token_lifecycle.add(tx, precondition, record, now)

        async def undo(tx: Transaction) -> None:
            system = system_precondition("undelivered", precondition.request_id)
            await token_lifecycle.revoke(tx, system, [record.id], self.clock())

        # No client holds a token committed after its request failed. With an idempotency key the request is retried.
        await self._db.write(work, undo=undo if issue.idempotency is None else None)

    async def _revoke_token(
        self,
        tx: Transaction,
        *,
        precondition: WritePrecondition,
        token_id: str,
        visible: TokenVisibility | None,
        cascade: bool,
        many: bool,
    ) -> Revocation:
        if not (cascade or precondition.is_unconditional):
            now = self.clock()
            row = await tx.fetchrow(_ALONE, *_held(precondition, now), token_id)
            if row is not None and (visible is None or visible.covers(rows.token_of(row))):
                return Revocation(now, await token_lifecycle.revoke(tx, precondition, [token_id], now))
        return await super()._revoke_token(
            tx, precondition=precondition, token_id=token_id, visible=visible, cascade=cascade, many=many
        )

    async def _check_new(self, tx: Transaction, by: WritePrecondition, record: TokenRecord, issue: Issue) -> int:
        """As `token_lifecycle.check_new`. One statement is enough for a plain token that may be created."""
        plain = record.type is TokenType.PERSONAL and record.parent is None and issue.idempotency is None
        if plain and not by.is_unconditional:
            now = self.clock()
            values = (*_held(by, now), issue.kid, record.actor_urn, issue.max_live)
            if await tx.fetchval(_MAY_ADD, *values):
                return now
        return await token_lifecycle.check_new(tx, by, record, issue)

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
        await self._db.write(lambda tx: tx.execute("UPDATE state SET probed_at = $1", now), PROBE_SECONDS)

    async def close(self) -> None:
        await self._db.close()


def _held(by: WritePrecondition, now: int) -> tuple[Any, ...]:
    """The parameters of PRECONDITION_SQL."""
    return (by.policy_version, by.actor, by.bearer_id, now)


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
