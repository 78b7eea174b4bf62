"""New tokens in PostgreSQL: kept by one statement, each once.

Where its answer was lost, what became of it is looked up. A token that nobody received is ended, except under a key:
whoever asked asks again, and of two requests under one key the later fails.
"""

import asyncio
from dataclasses import astuple
from typing import Any

from watchword.domain.accounts import no_account
from watchword.domain.actors import WritePrecondition, system_precondition
from watchword.domain.errors import Fault, Stale
from watchword.domain.idempotency import IdempotencyRecord
from watchword.domain.ports import Issue, Repeated
from watchword.domain.tokens import TokenRecord
from watchword.stores import rows
from watchword.stores.postgres.connections import Connection, store_fault
from watchword.stores.postgres.creates import Creates
from watchword.stores.postgres.database import Database, Lost, unknown_outcome
from watchword.stores.postgres.searches import folded
from watchword.stores.postgres.warrants import KEYS, actor, leave_events, proof, retried

_WITHDRAW = "SELECT withdraw_token($1, $2, $3, $4)"
_FAULT = "SELECT issue_fault($1, $2, $3, $4, $5, $6, $7)"
_KEEP_RETRY = "SELECT keep_retry($1, $2, $3, $4, $5, $6)"
_KEEP = """
INSERT INTO tokens (id, type, name, description, actor_urn, owner_urn, created_at, expires_at, minted_with,
    limits, parent, root, replaces, grace, full_end, name_folded, description_folded)
VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11, $12, $13, $14, $15, $16, $17)
"""
_OF_A_PLAIN_ONE = 12
"""Of the values of a new token, those that one which replaces no other has."""
WITHDRAW_AGAIN = 1.0


class PostgresIssuing:
    _db: Database
    _creates: Creates
    _withdrawals: set[asyncio.Task[None]]

    async def add_token(self, precondition: WritePrecondition, record: TokenRecord, issue: Issue) -> None:
        event = rows.created(record)
        bound = (
            *(*proof(precondition), precondition.peer, precondition.request_id, issue.kid, issue.max_live),
            *(event.action.value, rows.json_text(event.detail), *_retry_values(issue.retry)),
            *(*rows.token_values(record)[:_OF_A_PLAIN_ONE], folded(record.name), folded(record.description)),
        )
        deadline = self._db.deadline()
        lost: BaseException | None = None
        outcome = "again"
        try:
            while outcome == "again":
                try:
                    outcome = await self._creates.add(bound, deadline)
                except Lost as error:
                    lost = error.why  # asked for again under the same id: it is kept once
        except Fault as fault:
            if lost is None:
                raise
            self._withdraw(record, issue)
            raise unknown_outcome(lost) from fault
        if outcome == "there" and lost is not None:
            outcome = "kept"  # by an earlier attempt
        if lost is not None and outcome != "kept":
            self._withdraw(record, issue)  # the first request may still be on its way
        if outcome == "kept":
            return
        if outcome == "there" and issue.retry is None:
            raise store_fault(ValueError(f"the id {record.id} was given before"))
        raise refusal("repeated" if outcome == "there" else outcome, issue)

    async def settle_withdrawals(self) -> None:
        """At the end: a last moment for what nobody received."""
        if self._withdrawals:
            await asyncio.wait(self._withdrawals, timeout=self._db.timeout)
        for task in list(self._withdrawals):
            task.cancel()
        await asyncio.gather(*self._withdrawals, return_exceptions=True)

    def _withdraw(self, record: TokenRecord, issue: Issue) -> None:
        if issue.retry is not None:
            return
        task = asyncio.get_running_loop().create_task(self._withdrawn(record))
        self._withdrawals.add(task)
        task.add_done_callback(self._withdrawals.discard)

    async def _withdrawn(self, record: TokenRecord) -> None:
        system = system_precondition("undelivered")
        while True:
            try:
                bound = (record.id, record.family, system.actor, system.peer)
                await self._db.call(_WITHDRAW, *bound, doubt=lambda _: True)
            except (Fault, Lost):
                await asyncio.sleep(WITHDRAW_AGAIN)
            else:
                return


def relied_on(record: TokenRecord) -> list[str]:
    """What must not change before a new token can be seen, besides what its warrant rests on."""
    return [KEYS, actor(record.actor_urn)]


def changed_by(issue: Issue) -> list[str]:
    return [] if issue.retry is None else [retried(issue.retry)]


async def check_issue(c: Connection, record: TokenRecord, issue: Issue) -> None:
    """Raise unless this token may be kept now; note the request it came with."""
    end = record.expires_at if record.grace is None else record.full_end
    key = (None, None) if issue.retry is None else (issue.retry.actor, issue.retry.digest)
    fault = await c.fetchval(_FAULT, issue.kid, record.type.value, record.actor_urn, record.parent, end, *key)
    if fault is not None:
        raise refusal(fault, issue)
    if issue.retry is not None:
        await c.execute(_KEEP_RETRY, *_retry_values(issue.retry))


async def keep(c: Connection, precondition: WritePrecondition, record: TokenRecord, now: int) -> None:
    """In a transaction that has a slot to count in."""
    await c.execute(_KEEP, *rows.token_values(record), folded(record.name), folded(record.description))
    await leave_events(c, precondition, [rows.created(record)], now)


def refusal(outcome: str, issue: Issue) -> Exception:
    match outcome:
        case "repeated":
            return Repeated()
        case "unknown":
            return no_account()
        case "suspended":
            return rows.actor_suspended()
        case "full":
            return rows.no_room(issue.max_live)
        case _:
            return Stale()


def _retry_values(retry: IdempotencyRecord | None) -> tuple[Any, ...]:
    return (None,) * 6 if retry is None else astuple(retry)
