"""Warrants and events: every write proves what it was allowed by, and says so, in its own transaction.

What the proof rests on is held until the commit, shared with other writes and closed to whoever would change it: so it
still holds when the write can be seen.
"""

from collections.abc import Iterable
from typing import Any

from watchword.domain.actors import WritePrecondition
from watchword.domain.errors import Stale
from watchword.domain.events import Event
from watchword.domain.idempotency import IdempotencyRecord
from watchword.stores import rows
from watchword.stores.postgres.connections import Connection

POLICIES = "policies"
KEYS = "keys"
TOKENS = "tokens"
"""Every family of tokens at once."""

KEEP_EVENT = f"INSERT INTO events ({rows.EVENT}) VALUES ($1, $2, $3, $4, $5, $6, $7, $8)"  # noqa: S608 - literal pieces


# The bearer's family is read before it is held, which it may be: it never changes.
_HOLD = "SELECT hold($1::text[] || ('token:' || family_of($3::text)), $2::text[])"


def actor(urn: str) -> str:
    return f"actor:{urn}"


def family(token: str) -> str:
    """By the id of the oldest."""
    return f"token:{token}"


def retried(retry: IdempotencyRecord) -> str:
    return f"retry:{retry.digest}{retry.actor}"


def proof(precondition: WritePrecondition) -> tuple[str, str | None, int | None]:
    """Actor, bearer and version as the schema's functions take them."""
    return (
        precondition.actor,
        precondition.bearer_id,
        None if precondition.is_unconditional else precondition.policy_version,
    )


async def prove(
    c: Connection, precondition: WritePrecondition, *, relies: Iterable[str] = (), changes: Iterable[str] = ()
) -> int:
    """Hold what the write rests on, and alone what it changes; raise `Stale` unless everything the decision rested on
    still holds. Returns the time.
    """
    relied = [*relies] if precondition.is_unconditional else [*relies, POLICIES, actor(precondition.actor)]
    if precondition.bearer_id is not None:
        relied.append(TOKENS)
    await c.execute(_HOLD, relied, list(changes), precondition.bearer_id)
    row = await c.fetchrow("SELECT proven($1, $2, $3), now_ms()", *proof(precondition))
    assert row is not None
    holds, now = row
    if not holds:
        raise Stale
    time: int = now
    return time


async def leave_events(c: Connection, precondition: WritePrecondition, events: Iterable[Event], now: int) -> None:
    await c.executemany(KEEP_EVENT, [_values(precondition, event, now) for event in events])


def _values(precondition: WritePrecondition, event: Event, now: int) -> tuple[Any, ...]:
    return (
        now,
        precondition.actor,
        precondition.bearer_id,
        event.action.value,
        event.target,
        precondition.peer,
        precondition.request_id,
        rows.json_text(event.detail),
    )
