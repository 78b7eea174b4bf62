"""Tokens that expire soon, and the notices they have had."""

from collections.abc import Sequence

from watchword.domain.actors import system_precondition
from watchword.domain.events import Action, Detail, Event
from watchword.domain.lifetimes import ExpiringPage, ExpiringToken
from watchword.stores.sql.transaction import SqlPart, Transaction, snapshot, transaction, write_events

EXPIRY = "expiry"
"""The name of a lock."""
_TOKEN = "id, created_at, expires_at, (SELECT min(days) FROM expiry_notices WHERE token_id = tokens.id)"  # noqa: S105
# The notice of a token stands for those derived from it and for its unused successor, which end with it.
_TOLD = """parent IS NULL AND replaced_at IS NULL AND grace IS NULL
    AND NOT EXISTS (SELECT 1 FROM actors WHERE urn = tokens.actor_urn AND status = 'SUSPENDED')"""
# In the order of the index on the expiry of tokens that are not revoked, read backwards.
_SAME_END = f"""
SELECT {_TOKEN}, {_TOLD} FROM tokens
WHERE revoked_at IS NULL AND expires_at = $1 AND id < $2 ORDER BY expires_at NULLS FIRST, id DESC LIMIT $3"""
_LATER_END = f"""
SELECT {_TOKEN}, {_TOLD} FROM tokens
WHERE revoked_at IS NULL AND expires_at > $1 AND expires_at <= $2 ORDER BY expires_at NULLS FIRST, id DESC LIMIT $3"""
_DUE = f"""
SELECT {_TOKEN}, name, actor_urn, owner_urn, (SELECT created_by FROM service_accounts WHERE urn = tokens.actor_urn)
FROM tokens WHERE id {{any_of}} AND revoked_at IS NULL AND {_TOLD}"""


class SqlExpiry(SqlPart):
    @snapshot
    async def expiring_page(
        self, tx: Transaction, after: tuple[int, str] | None, within: int, most: int
    ) -> ExpiringPage:
        now = await tx.now()
        end, last = after or (now, "")
        found = list(await tx.fetch(_SAME_END, end, last, most))
        found += await tx.fetch(_LATER_END, end, now + within, most - len(found))
        page = tuple(ExpiringToken(*row[:4]) for row in found if row[4])
        return ExpiringPage(now, page, (found[-1][2], found[-1][0]) if len(found) == most else None)

    @transaction
    async def note_expiring(self, tx: Transaction, ids: Sequence[str], thresholds: Sequence[int]) -> int:
        await tx.lock(exclusive=[EXPIRY])
        now = await tx.now()
        notices: list[tuple[str, int]] = []
        events: list[Event] = []
        for row in await tx.fetch(_DUE.format(any_of=tx.dialect.any_of("$1")), list(ids)):
            token, (name, actor, owner, account_owner) = ExpiringToken(*row[:4]), row[4:]
            days = token.due(thresholds, now)
            if days is None:
                continue
            detail: dict[str, Detail] = {"name": name, "actorUrn": actor, "ownerUrn": owner}
            if account_owner is not None:
                detail["accountOwnerUrn"] = account_owner
            notices.append((token.id, days))
            events.append(
                Event(Action.TOKEN_EXPIRING, token.id, {**detail, "days": days, "expiresAt": token.expires_at})
            )
        await tx.executemany("INSERT INTO expiry_notices (token_id, days) VALUES ($1, $2)", notices)
        await write_events(tx, system_precondition("expiry"), events, now)
        return len(events)
