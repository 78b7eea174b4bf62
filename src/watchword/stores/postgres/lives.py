"""The lives of tokens in PostgreSQL: replaced, ended with all that die with them, and purged when they are long dead.

What ends tokens of many families has all of them alone meanwhile, so that none is made with one that is being ended.
Such work may take longer than an answer usually may; whoever makes a token waits for it.
"""

import time
from collections.abc import Sequence

from watchword.domain.actors import WritePrecondition
from watchword.domain.bulk_revocation import (
    MOST,
    MOST_ACTORS,
    Receipt,
    Revocation,
    RevocationPreview,
    Selection,
    Share,
    TokenVisibility,
    check_confirmed,
    check_count,
    receipt,
)
from watchword.domain.errors import Fault, Stale
from watchword.domain.filters import SEARCH_SECONDS
from watchword.domain.idempotency import KEPT, IdempotencyRecord
from watchword.domain.ports import Issue
from watchword.domain.tokens import TokenRecord
from watchword.stores import rows
from watchword.stores.postgres.connections import SEARCHED, SEARCHING, Connection, Row
from watchword.stores.postgres.database import Database, Lost, T, Work, unknown_outcome
from watchword.stores.postgres.issuing import changed_by, check_issue, keep, relied_on
from watchword.stores.postgres.searches import chosen
from watchword.stores.postgres.warrants import TOKENS, family, leave_events, proof, prove

AT_ONCE = 2_000
"""What dies with one token within the time that an answer usually may take."""
LONG_SECONDS = 60.0
"""What an ending of many may take."""

GET = f"SELECT {rows.TOKEN} FROM tokens WHERE id = $1"  # noqa: S608
_GET_RETRY = f"SELECT {rows.RETRY} FROM retries WHERE actor = $1 AND digest = $2 AND created_at > now_ms() - {KEPT}"  # noqa: S608
_REVOKE = "SELECT outcome, at, number FROM revoke_token($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11)"
# By the index of moments: a family is revoked in one.
_REVOKED = """
SELECT t.revoked_at, (SELECT count(*) FROM tokens AS o
    WHERE o.revoked_at = t.revoked_at AND coalesce(o.root, o.id) = coalesce(t.root, t.id))
FROM tokens AS t WHERE t.id = $1"""
_FIRST_USE = "SELECT note_first_use($1, $2, $3, $4, $5)"
_PURGE = "SELECT purge_tokens($1, $2)"
_DYING = "SELECT dying($1::text[], $2, $3, $4, $5)"
_END = "SELECT end_tokens($1::text[], $2, $3, $4, $5, $6, $7)"
_LIVE_TOTAL = "SELECT count(*) FROM tokens WHERE revoked_at IS NULL AND (expires_at IS NULL OR expires_at > now_ms())"


class PostgresLives:
    _db: Database

    async def get_idempotency_record(self, actor: str, digest: str) -> IdempotencyRecord | None:
        row = await self._db.confirmed_row(_GET_RETRY, actor, digest)
        return None if row is None else IdempotencyRecord(*row)

    async def note_replay(self, precondition: WritePrecondition, record: TokenRecord) -> bool:
        async def work(c: Connection) -> bool:
            now = await prove(c, precondition, relies=[TOKENS, family(record.family)])
            row = await c.fetchrow(GET, record.id)
            if row is None or not rows.token_of(row).is_live(now):
                return False
            await leave_events(c, precondition, [rows.replayed(record)], now)
            return True

        return await self._db.write(work)

    async def rotate_token(
        self, precondition: WritePrecondition, seen: TokenRecord, successor: TokenRecord, issue: Issue
    ) -> int:
        async def work(c: Connection) -> int:
            relied = [TOKENS, *relied_on(successor)]
            changed = [family(seen.family), family(successor.id), *changed_by(issue)]
            now = await prove(c, precondition, relies=relied, changes=changed)
            await check_issue(c, successor, issue)
            row = await c.fetchrow(GET, seen.id)
            old = None if row is None else rows.token_of(row)
            if old is None or rows.course(old) != rows.course(seen) or not old.is_live(now):
                raise Stale
            await c.execute("SELECT own_slot()")
            ended = 0
            if old.replaced_by is not None:
                await c.execute("SELECT hold_rows($1::text[])", [old.id, old.replaced_by])
                ended = await end(c, precondition, [old.replaced_by], now, old.id)
            await keep(c, precondition, successor, now)
            await c.execute("UPDATE tokens SET replaced_by = $2 WHERE id = $1", old.id, successor.id)
            return ended

        return await self._db.write(work)

    async def note_first_use(self, precondition: WritePrecondition, token_id: str) -> None:
        bound = (precondition.actor, precondition.bearer_id, precondition.peer, precondition.request_id, token_id)
        deadline = self._db.deadline()
        lost: BaseException | None = None

        def doubt(_: Row) -> bool:
            return lost is not None

        while True:
            try:
                await self._db.call(_FIRST_USE, *bound, deadline=deadline, doubt=doubt)
            except Lost as error:
                lost = error.why  # said again: a first use is one, however often it is noted
            except Fault as fault:
                if lost is None:
                    raise
                raise unknown_outcome(lost) from fault
            else:
                return

    async def revoke_token(
        self,
        precondition: WritePrecondition,
        token_id: str,
        visibility: TokenVisibility | None,
        *,
        cascade: bool = False,
    ) -> Revocation:
        if cascade:
            return await self._revoke_at_length(precondition, token_id, visibility, cascade=True)
        only_of, *more = (
            (None, False, False) if visibility is None else (visibility.actor, visibility.accounts, visibility.created)
        )
        bound = (
            *proof(precondition),
            precondition.peer,
            precondition.request_id,
            token_id,
            only_of,
            *more,
            AT_ONCE,
            precondition.by_possession,
        )
        deadline = self._db.deadline()
        lost: BaseException | None = None
        while True:
            try:
                outcome, at, number = await self._db.call(
                    _REVOKE, *bound, deadline=deadline, doubt=lambda row: row[0] == "already"
                )
                break
            except Lost as error:
                lost = error.why  # asked again: a token is revoked once, however often that is said
            except Fault as fault:
                if lost is None:
                    raise
                raise unknown_outcome(lost) from fault
        if outcome in ("already", "stale") and lost is not None and await self._revoked_here(precondition, token_id):
            outcome = "revoked"
            at, number = await self._db.row(_REVOKED, token_id)
        match outcome:
            case "revoked":
                return Revocation(at, number)
            case "already":
                raise rows.already_revoked(at)
            case "unknown":
                raise rows.no_token()
            case "many":
                return await self._revoke_at_length(precondition, token_id, visibility, cascade=False)
            case _:
                raise Stale

    async def withdraw_token(self, precondition: WritePrecondition, token_id: str) -> int:
        async def work(c: Connection) -> int:
            root = await c.fetchval("SELECT family_of($1)", token_id)
            now = await prove(c, precondition, relies=[TOKENS], changes=[family(root)])
            return await end(c, precondition, [token_id], now)

        return await self._db.write(work)

    async def revoke_tokens(
        self, precondition: WritePrecondition, selection: Selection, seconds: float = SEARCH_SECONDS
    ) -> Receipt:
        condition, bound = chosen(selection)
        meant = f"SELECT id FROM tokens WHERE {condition} LIMIT {MOST + 1:d}"  # noqa: S608 - literal pieces

        async def look(c: Connection) -> list[str]:
            return [row[0] for row in await c.fetch(meant, *bound.values)]

        found = None if selection.is_plain else await self._db.scan(look, seconds)

        async def work(c: Connection) -> Receipt:
            now = await prove(c, precondition, changes=[TOKENS])
            await c.execute(SEARCHING)
            those = await look(c) if found is None else found
            await c.execute(SEARCHED)
            ids: list[str] = await c.fetchval(_DYING, those, now, selection.cascade, False, MOST + 1)
            check_count(len(ids), selection.at_most)
            if not selection.may_be_all:
                check_confirmed(selection, len(ids), spares=await c.fetchval(_LIVE_TOTAL) > len(ids))
            made = receipt(ids, now)
            await end(c, precondition, ids, now)
            await leave_events(c, precondition, [rows.many_revoked(selection, made)], now)
            return made

        return await at_length(self._db, work)

    async def revocation_preview(self, selection: Selection, seconds: float = SEARCH_SECONDS) -> RevocationPreview:
        condition, bound = chosen(selection)
        cascade = bound.add(selection.cascade, "boolean")
        statement = (
            "SELECT t.actor_urn, count(*) FROM unnest(dying("  # noqa: S608 - literal pieces
            f"ARRAY(SELECT id FROM tokens WHERE {condition} LIMIT {MOST + 1:d}), now_ms(), {cascade}, false,"
            f" {MOST + 1:d}"
            ")) AS dead (id) JOIN tokens AS t ON t.id = dead.id GROUP BY t.actor_urn ORDER BY 2 DESC, 1"
        )

        async def work(c: Connection) -> RevocationPreview:
            began = time.perf_counter()
            found = await c.fetch(statement, *bound.values)
            seconds = time.perf_counter() - began
            count = sum(number for _, number in found)
            check_count(count)
            if not selection.may_be_all:
                check_confirmed(selection, count, spares=await c.fetchval(_LIVE_TOTAL) > count)
            return RevocationPreview(count, tuple(Share(*row) for row in found[:MOST_ACTORS]), len(found), seconds)

        return await self._db.scan(work, seconds)

    async def purge_tokens(self, before: int, most: int) -> int:
        purged: int = await self._db.write(lambda c: c.fetchval(_PURGE, before, most))
        return purged

    async def purge_idempotency_records(self, most: int) -> int:
        purged: int = await self._db.write(lambda c: c.fetchval("SELECT purge_retries($1)", most))
        return purged

    async def _revoke_at_length(
        self, precondition: WritePrecondition, token_id: str, visibility: TokenVisibility | None, *, cascade: bool
    ) -> Revocation:
        """With all that die with it, however many; what was minted with it could be ended apart."""

        async def work(c: Connection) -> Revocation:
            now = await prove(c, precondition, changes=[TOKENS])
            row = await c.fetchrow(GET, token_id)
            record = None if row is None else rows.token_of(row)
            if record is None or not (visibility is None or visibility.covers(record)):
                raise rows.no_token()
            ids: list[str] = await c.fetchval(_DYING, [token_id], now, cascade, True, MOST + 1 if cascade else None)
            if not ids:
                raise rows.already_revoked(record.revoked_at or now)
            if cascade:
                check_count(len(ids))
            return Revocation(now, await end(c, precondition, ids, now, token_id))

        return await at_length(self._db, work)

    async def _revoked_here(self, precondition: WritePrecondition, token_id: str) -> bool:
        """Whether the revocation was ours, of an earlier attempt."""
        statement = "SELECT actor, request_id FROM events WHERE target = $1 AND action = 'token.revoked'"
        row = await self._db.confirmed_row(statement, token_id)
        return row is not None and tuple(row) == (precondition.actor, precondition.request_id)


async def end(
    c: Connection, precondition: WritePrecondition, ids: Sequence[str], now: int, why: str | None = None
) -> int:
    """Revoke just these, each with its event; returns how many."""
    origin = (precondition.actor, precondition.bearer_id, precondition.peer, precondition.request_id)
    ended: int = await c.fetchval(_END, ids, now, *origin, why)
    return ended


async def at_length(database: Database, work: Work[T]) -> T:
    """A write that may take long."""
    seconds = max(LONG_SECONDS, database.timeout)

    async def patiently(c: Connection) -> T:
        for name in ("statement_timeout", "idle_in_transaction_session_timeout"):
            await c.execute(f"SET LOCAL {name} = {int(seconds * 1000):d}")
        return await work(c)

    return await database.write(patiently, time.monotonic() + seconds)
