"""New tokens: what must be true in the transaction that keeps one, whichever way it is made."""

import apsw

from watchword.domain.accounts import no_account
from watchword.domain.actors import WritePrecondition
from watchword.domain.errors import Stale
from watchword.domain.idempotency import KEPT, IdempotencyRecord
from watchword.domain.ports import Issue, Repeated
from watchword.domain.tokens import TokenRecord, TokenType
from watchword.stores import rows
from watchword.stores.sqlite.warrants import leave_event

_GET = f"SELECT {rows.TOKEN} FROM tokens WHERE id = ?"  # noqa: S608
_ADD = """
INSERT INTO tokens (id, type, name, description, actor_urn, owner_urn, created_at, expires_at, minted_with,
    limits, parent, root, replaces, grace, full_end)
VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)
"""
_KEY_IN_USE = "SELECT kid FROM keys ORDER BY seq DESC LIMIT 1"
_SUSPENDED = "SELECT 1 FROM actors WHERE urn = ? AND status = 'SUSPENDED'"
_ACCOUNT = "SELECT 1 FROM service_accounts WHERE urn = ? AND deleted_at IS NULL"
# A successor that awaits its first use has no children: it may be taken back alone.
_PARENT = "SELECT expires_at FROM tokens WHERE id = ? AND revoked_at IS NULL AND grace IS NULL"
_GET_RETRY = f"SELECT {rows.RETRY} FROM retries WHERE actor = ? AND digest = ? AND created_at > ?"  # noqa: S608
_KEEP_RETRY = f"INSERT OR REPLACE INTO retries ({rows.RETRY}) VALUES (?, ?, ?, ?, ?, ?)"  # noqa: S608


def get(c: apsw.Connection, token_id: str) -> TokenRecord | None:
    row = c.execute(_GET, (token_id,)).fetchone()
    return None if row is None else rows.token_of(row)


def get_idempotency_record(c: apsw.Connection, actor: str, digest: str, now: int) -> IdempotencyRecord | None:
    row = c.execute(_GET_RETRY, (actor, digest, now - KEPT)).fetchone()
    return None if row is None else IdempotencyRecord(*row)


def check_issue(c: apsw.Connection, record: TokenRecord, issue: Issue, now: int) -> None:
    """Raise unless this token may be kept now; note the request it came with."""
    if issue.retry is not None and get_idempotency_record(c, issue.retry.actor, issue.retry.digest, now) is not None:
        raise Repeated
    if c.execute(_KEY_IN_USE).get != issue.kid:
        raise Stale
    if record.type is TokenType.SERVICE_ACCOUNT and not c.execute(_ACCOUNT, (record.actor_urn,)).get:
        raise no_account()
    if c.execute(_SUSPENDED, (record.actor_urn,)).get:
        raise rows.actor_suspended()
    if record.parent is not None:
        found = c.execute(_PARENT, (record.parent,)).fetchone()
        if found is None or not _ends_with(record, found[0]):
            raise Stale
    if issue.retry is not None:
        retry = issue.retry
        c.execute(
            _KEEP_RETRY, (retry.actor, retry.digest, retry.kid, retry.token_id, retry.created_at, retry.expires_at)
        )


def keep(c: apsw.Connection, precondition: WritePrecondition, record: TokenRecord, now: int) -> None:
    c.execute(_ADD, rows.token_values(record))
    leave_event(c, precondition, rows.created(record), now)


def _ends_with(record: TokenRecord, parent_end: int | None) -> bool:
    """Whether it ends no later than its parent."""
    end = record.expires_at if record.grace is None else record.full_end
    return parent_end is None or (end is not None and end <= parent_end)
