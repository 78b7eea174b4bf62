"""The store on PostgreSQL: one database, any number of instances.

Here is what is written apart from `stores.sql` for speed: verification, the insert of a token, the revocation of one
token that has no relatives, and searches. The insert and the revocation are one statement each, so that they take one
round trip, and an instance that is stopped holds none of their locks.
"""

import asyncio
import time
from collections.abc import Awaitable, Callable
from dataclasses import astuple
from typing import Any

from watchword.domain.actors import Bearer, WritePrecondition, no_account, system_precondition
from watchword.domain.bulk_revocation import Revocation, TokenVisibility
from watchword.domain.errors import Fault, Stale
from watchword.domain.events import Action, Event
from watchword.domain.filters import SEARCH_SECONDS, Search
from watchword.domain.ports import Issue, Page, Repeated
from watchword.domain.sessions import FoundSession, Session
from watchword.domain.stores import PostgresUrl
from watchword.domain.tokens import TokenRecord
from watchword.stores import rows
from watchword.stores.postgres.connections import ConnectionBackoff, folded, store_fault
from watchword.stores.postgres.database import Lost, PostgresDatabase, WriteBatcher, make_pool, unknown_outcome
from watchword.stores.postgres.verify_batcher import BEARER, DatabaseClock, VerifyBatcher, bearer_of
from watchword.stores.sql import SqlStore
from watchword.stores.sql.search import page_of, search_sql
from watchword.stores.sql.transaction import Observe, Transaction, write_events

_PLAIN_COLUMNS = 12
"""How many of the values of a new token one has that replaces no other."""
TRY_AGAIN = 1.0
PRIMARY = "primary"
"""The name of a lock."""

# The token as a verification sees it. The session's end is checked by the database's clock.
_OF_SESSION = len(Session._fields)
_FIND_SESSION = f"""
SELECT {rows.columns("s", rows.SESSION)}, {BEARER}
FROM sessions AS s LEFT JOIN tokens AS t ON t.id = s.token_id WHERE s.id = $1 AND s.ends_at > (SELECT now_ms())
"""
ADD = """SELECT add_tokens(
    $1::text[], $2::text[], $3::bigint[], $4::text[], $5::text[], $6::text[], $7::bigint[], $8::text[],
    $9::text[], $10::text[], $11::text[], $12::text[], $13::text[], $14::bigint[], $15::bigint[], $16::text[],
    $17::text[], $18::text[], $19::text[], $20::text[], $21::text[], $22::bigint[], $23::bigint[], $24::text[],
    $25::text[], $26::text[], $27::text[], $28::text[], $29::text[])"""
REVOKE = """SELECT outcomes, ats FROM revoke_tokens(
    $1::text[], $2::text[], $3::bigint[], $4::text[], $5::text[], $6::text[], $7::text[], $8::boolean[], $9::boolean[],
    $10::boolean[], $11::text)"""
_REVOKED_BY = "SELECT actor, request_id, at FROM events WHERE target = $1 AND action = 'token.revoked'"
_IS_NOTED = "SELECT 1 FROM events WHERE action = $1 AND target = $2 LIMIT 1"
_WITHDRAW = "SELECT withdraw_token($1, $2, $3, $4)"


class PostgresStore(SqlStore):
    find_bearer_now = None

    def __init__(self, backoff: ConnectionBackoff, database: PostgresDatabase, observe: Observe) -> None:
        self._backoff = backoff
        backoff.on_new_primary = self._note_new_primary
        self._db: PostgresDatabase = database
        self.clock = DatabaseClock()
        self._verifier = VerifyBatcher(backoff, self.clock, observe)
        self._creates = WriteBatcher(database, ADD, done="kept")
        self._revocations = WriteBatcher(database, REVOKE, done="revoked", has_patience=True)
        self._tasks: set[asyncio.Task[None]] = set()
        """What is written after a request: withdrawals, and new primaries."""

    @property
    def timeline(self) -> int:
        return self._backoff.timeline

    async def find_bearer(self, token_id: str) -> Bearer | None:
        return await self._verifier.find(token_id)

    async def find_session(self, session_id: str) -> FoundSession | None:
        row = await self._db.row(_FIND_SESSION, session_id)
        if row is None:
            return None
        return FoundSession(
            Session(*row[:_OF_SESSION]), None if row[_OF_SESSION] is None else bearer_of(row[_OF_SESSION:])
        )

    async def search(self, search: Search, seconds: float = SEARCH_SECONDS) -> Page:
        sql, bound, inline = search_sql(search, self._db.dialect)

        async def page(tx: Transaction) -> Page:
            began = time.perf_counter()
            row = await tx.fetchrow(sql, *bound)
            assert row is not None
            return page_of(row, search, time.perf_counter, began)

        if inline:
            return await self._db.read(page)
        return await self._db.scan(page, seconds)

    async def add_token(self, precondition: WritePrecondition, record: TokenRecord, issue: Issue) -> None:
        event = rows.created(record)
        idempotency = (None,) * 6 if issue.idempotency is None else astuple(issue.idempotency)
        bound = (
            *(*_checked(precondition), precondition.peer, precondition.request_id, issue.kid, issue.max_live),
            *(event.action.value, rows.json_text(event.detail), *idempotency),
            *(*rows.token_values(record)[:_PLAIN_COLUMNS], folded(record.name), folded(record.description)),
        )
        deadline = self._db.deadline()
        lost: BaseException | None = None
        outcome = "again"
        try:
            while outcome == "again":
                try:
                    (outcome,) = await self._creates.write(bound, deadline)
                except Lost as error:
                    lost = error.cause  # sent again with the same id: it is added once
        except Fault as fault:
            if lost is None:
                raise
            self._withdraw(record, issue)
            raise unknown_outcome(lost) from fault
        if outcome == "there" and lost is not None:
            outcome = "kept"  # by an earlier attempt
        if lost is not None and outcome != "kept":
            self._withdraw(record, issue)  # the first statement may still arrive
        if outcome == "kept":
            return
        if outcome == "there" and issue.idempotency is None:
            raise store_fault(ValueError(f"the id {record.id} is in use"))
        raise _rejected("repeated" if outcome == "there" else outcome, issue)

    async def revoke_token(
        self, precondition: WritePrecondition, token_id: str, visible: TokenVisibility | None, *, cascade: bool = False
    ) -> Revocation:
        if cascade:
            return await super().revoke_token(precondition, token_id, visible, cascade=True)
        seen = (None, False, False) if visible is None else (visible.actor, visible.accounts, visible.created)
        origin = (*_checked(precondition), precondition.peer, precondition.request_id)
        bound = (*origin, token_id, *seen, precondition.by_possession)
        deadline = self._db.deadline()
        lost: BaseException | None = None
        while True:
            try:
                outcome, at = await self._revocations.write(bound, deadline)
                break
            except Lost as error:
                lost = error.cause  # sent again: a token is revoked once
            except Fault as fault:
                if lost is None:
                    raise
                raise unknown_outcome(lost) from fault
        if outcome in ("already", "stale") and lost is not None:
            # Perhaps by our own first attempt.
            row = await self._db.confirmed_row(_REVOKED_BY, token_id)
            if row is not None and tuple(row[:2]) == (precondition.actor, precondition.request_id):
                outcome, at = "revoked", row[2]
        match outcome:
            case "revoked":
                return Revocation(at, 1)
            case "already":
                raise rows.already_revoked(at)
            case "unknown":
                raise rows.no_token()
            case "family":
                return await super().revoke_token(precondition, token_id, visible)
            case _:
                raise Stale

    async def probe(self) -> None:
        await self._db.write(lambda tx: tx.execute("UPDATE probes SET at = now_ms()"))
        if self._db.was_full:
            # That row fits into an existing page, and says nothing about the disk.
            await self._db.write(_grow)
            self._db.was_full = False

    async def close(self) -> None:
        await self._verifier.close()
        await asyncio.gather(self._creates.finish(), self._revocations.finish())
        if self._tasks:
            await asyncio.wait(self._tasks, timeout=self._db.timeout)
        for task in list(self._tasks):
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        await self._db.close()

    def _withdraw(self, record: TokenRecord, issue: Issue) -> None:
        """Revoke a token that its caller never received. With an idempotency key the caller asks for it again."""
        if issue.idempotency is None:
            system = system_precondition("undelivered")
            bound = (record.id, record.family, system.actor, system.peer)
            self._keep_trying(lambda: self._db.call(_WITHDRAW, *bound, doubt=lambda _: True))

    def _note_new_primary(self, timeline: int) -> None:
        """Write an event, unless another worker or instance has."""

        async def note(tx: Transaction) -> None:
            event = Event(Action.STORE_PRIMARY_CHANGED, str(timeline))
            await tx.lock(exclusive=[PRIMARY])
            if not await tx.fetchval(_IS_NOTED, event.action.value, event.target):
                await write_events(tx, system_precondition("failover"), [event], await tx.now())

        self._keep_trying(lambda: self._db.write(note))

    def _keep_trying(self, write: Callable[[], Awaitable[Any]]) -> None:
        async def keep_trying() -> None:
            while True:
                try:
                    await write()
                except (Fault, Lost):
                    await asyncio.sleep(TRY_AGAIN)
                else:
                    return

        task = asyncio.get_running_loop().create_task(keep_trying())
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)


def _checked(precondition: WritePrecondition) -> tuple[str, str | None, int | None]:
    """Actor, bearer and version as the schema's functions take them."""
    unconditional = precondition.is_unconditional
    return (precondition.actor, precondition.bearer_id, None if unconditional else precondition.policy_version)


def _rejected(outcome: str, issue: Issue) -> Exception:
    faults: dict[str, Callable[[], Exception]] = {
        "repeated": Repeated,
        "unknown": no_account,
        "suspended": rows.actor_suspended,
        "full": lambda: rows.no_room(issue.max_live),
    }
    return faults.get(outcome, Stale)()


async def _grow(tx: Transaction) -> None:
    """Write a row as large as a page until the table has grown, which takes room on the disk."""
    size = "SELECT pg_relation_size('probes')"
    before = await tx.fetchval(size)
    while await tx.fetchval(size) <= before:
        await tx.execute("UPDATE probes SET filler = repeat('x', 8000)")
    await tx.execute("UPDATE probes SET filler = NULL")


async def open_store(place: PostgresUrl, observe: Observe) -> PostgresStore:
    """The store in this database, which `migrate` has brought to this version. Opens although the database is
    unavailable: requests fail until it is back.
    """
    backoff = ConnectionBackoff(place)
    return PostgresStore(backoff, PostgresDatabase(backoff, await make_pool(backoff), observe), observe)
