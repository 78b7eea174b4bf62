"""Counts of tokens, for metrics and the overview. None of them delays a request at any number of tokens."""

import time
from collections import Counter
from dataclasses import replace
from typing import NamedTuple

from watchword.domain.counts import (
    CALENDAR_DAYS,
    COUNT_SECONDS,
    EXPIRING_DAYS,
    FEW_TOKENS,
    MAX_OWNERS,
    UNUSED_DAYS,
    TokenCounts,
    UnusedBatch,
    day_of,
    first_kept,
)
from watchword.domain.lifetimes import DAY
from watchword.stores.sql.transaction import SqlPart, Transaction, snapshot

# `TokenRecord.effective_status` in numbers: live are the unended tokens less those of suspended actors, which are few.
# So all tokens are counted on one index from end to end, without a look at their actors.
_UNENDED = "revoked_at IS NULL AND (expires_at IS NULL OR expires_at > $1::bigint)"
_COLUMNS = "expires_at, owner_urn, last_used_at, created_at"
_OF_SUSPENDED = " AND actor_urn IN (SELECT urn FROM actors WHERE status = 'SUSPENDED')"
# In the order of the index tokens_actor, so that revoked tokens are not read.
_OF_ACTOR = " AND actor_urn = ${}::text ORDER BY expires_at DESC NULLS LAST"
_WITHIN = "count(*) FILTER (WHERE expires_at <= ${}::bigint)"
_NUMBERS = f"""
SELECT count(*), count(*) FILTER (WHERE expires_at IS NULL), {{unused}},
    {", ".join(map(_WITHIN.format, range(2, len(EXPIRING_DAYS) + 2)))} FROM {{tokens}}"""
# Of all tokens where there are many: each database reads one index from end to end.
COUNTS = _NUMBERS.format(unused="0", tokens=f"(SELECT {_COLUMNS} FROM tokens WHERE {_UNENDED}) AS tokens")
_UNUSED_NUMBER = f"count(*) FILTER (WHERE coalesce(last_used_at, created_at) <= $1::bigint - {UNUSED_DAYS * DAY})"
_EXPIRIES = f"SELECT expires_at / {DAY}, count(*) FROM {{tokens}} WHERE expires_at < $2::bigint GROUP BY 1"
_OWNERS = "SELECT owner_urn, count(*) FROM {tokens} GROUP BY owner_urn ORDER BY 2 DESC, 1 LIMIT $2::bigint"
_USES = f"""
SELECT day, sum(uses) FROM token_uses WHERE day >= $2::bigint AND token_id IN (
    SELECT id FROM tokens WHERE actor_urn = $1::text AND revoked_at IS NULL
    ORDER BY expires_at DESC NULLS LAST LIMIT {FEW_TOKENS})
GROUP BY day"""
_UNUSED = f"""
SELECT count(*), count(*) FILTER (WHERE {_UNENDED.replace("$1", "$3")}
    AND coalesce(last_used_at, created_at) <= $4::bigint
    AND NOT EXISTS (SELECT 1 FROM actors WHERE urn = actor_urn AND status = 'SUSPENDED')), coalesce(max(id), '')
FROM (SELECT * FROM tokens WHERE id > $1::text ORDER BY id LIMIT $2::bigint) AS batch"""


class _Numbers(NamedTuple):
    """Of the unended tokens: how many, without an expiry, unused, and expiring; by day of expiry; by owner."""

    simple: tuple[int, ...]
    expiries: Counter[int]
    owners: Counter[str]


class SqlTokenCounts(SqlPart):
    async def token_counts(self, actor: str | None = None, seconds: float = COUNT_SECONDS) -> TokenCounts:
        async def count(tx: Transaction) -> TokenCounts:
            began = time.thread_time()
            now = await tx.now()
            if actor is not None:
                found = await _count(tx, now, _OF_ACTOR, (actor,), few=True)
                uses = {day: int(number) for day, number in await tx.fetch(_USES, actor, first_kept(now))}
                counts = _counts(found, suspended=0, unused=found.simple[2])
                return replace(counts, uses=uses, seconds=time.thread_time() - began)
            total = await tx.fetchval(f"SELECT {tx.dialect.stored_total('$1::text', '$2::text')}", "all", "")
            few = total <= FEW_TOKENS
            suspended = await _count(tx, now, _OF_SUSPENDED, (), few=few)
            if not few:
                await tx.execute(tx.dialect.read_one_index)
            found = await _count(tx, now, "", (), few=few, owners=MAX_OWNERS + len(suspended.owners))
            live = _Numbers(
                tuple(a - b for a, b in zip(found.simple, suspended.simple, strict=True)),
                found.expiries - suspended.expiries,
                found.owners - suspended.owners,
            )
            return _counts(live, suspended=suspended.simple[0], unused=live.simple[2] if few else None)

        return await self._db.scan(count, seconds)

    @snapshot
    async def unused_tokens(self, tx: Transaction, after: str, most: int, millis: int) -> UnusedBatch:
        now = await tx.now()
        row = await tx.fetchrow(_UNUSED, after, most, now, now - millis)
        assert row is not None
        return UnusedBatch._make(row)


async def _count(
    tx: Transaction, now: int, which: str, bound: tuple[str, ...], *, few: bool, owners: int = FEW_TOKENS
) -> _Numbers:
    """Of the tokens with this condition; `few`: of FEW_TOKENS at the most, with the unused ones."""

    def source(number: int) -> str:
        limit = f" LIMIT {FEW_TOKENS}" if few else ""
        return f"(SELECT {_COLUMNS} FROM tokens WHERE {_UNENDED}{which.format(number)}{limit}) AS tokens"

    ends = tuple(now + days * DAY for days in EXPIRING_DAYS)
    unused = _UNUSED_NUMBER if few else "0"
    row = await tx.fetchrow(_NUMBERS.format(tokens=source(len(ends) + 2), unused=unused), now, *ends, *bound)
    assert row is not None
    until = (day_of(now) + CALENDAR_DAYS) * DAY
    days = await tx.fetch(_EXPIRIES.format(tokens=source(3)), now, until, *bound)
    most = await tx.fetch(_OWNERS.format(tokens=source(3)), now, owners, *bound)
    return _Numbers(tuple(row), Counter({row[0]: row[1] for row in days}), Counter({row[0]: row[1] for row in most}))


def _counts(found: _Numbers, *, suspended: int, unused: int | None) -> TokenCounts:
    live, unlimited, _, *expiring = found.simple
    owners = sorted(found.owners.items(), key=lambda owner: (-owner[1], owner[0]))[:MAX_OWNERS]
    return TokenCounts(live, unlimited, tuple(expiring), suspended, dict(found.expiries), tuple(owners), unused)
