"""Warrants and events: every write proves what it was allowed by, and says so, in its own transaction."""

import apsw
import orjson

from watchword.domain.actors import WritePrecondition
from watchword.domain.errors import Stale
from watchword.domain.events import Event

_PROOF = """
SELECT (SELECT policy_version FROM state) = :version
   AND NOT EXISTS (SELECT 1 FROM actors WHERE urn = :actor AND status = 'SUSPENDED')
   AND (:bearer IS NULL OR EXISTS (
        SELECT 1 FROM tokens
        WHERE id = :bearer AND actor_urn = :actor AND revoked_at IS NULL
          AND (expires_at IS NULL OR expires_at > :now)))
"""

KEEP_EVENT = """
INSERT INTO events (at, actor, bearer_id, action, target, peer, request_id, detail)
VALUES (?, ?, ?, ?, ?, ?, ?, ?)
"""


def prove(c: apsw.Connection, precondition: WritePrecondition, now: int) -> None:
    """Raise `Stale` unless everything the decision rested on still holds."""
    if precondition.is_unconditional:
        return
    bound = {
        "version": precondition.policy_version,
        "actor": precondition.actor,
        "bearer": precondition.bearer_id,
        "now": now,
    }
    if not c.execute(_PROOF, bound).get:
        raise Stale


def leave_event(c: apsw.Connection, precondition: WritePrecondition, event: Event, now: int) -> None:
    c.execute(
        KEEP_EVENT,
        (
            now,
            precondition.actor,
            precondition.bearer_id,
            event.action.value,
            event.target,
            precondition.peer,
            precondition.request_id,
            orjson.dumps(event.detail).decode(),
        ),
    )
