"""Counts of tokens, for metrics and the overview; uses of tokens by day, sums by day over the whole store, and the
networks that tokens were used from.

No count delays a request, at any number of tokens.
"""

import time
from collections import Counter, defaultdict
from collections.abc import Collection, Mapping
from dataclasses import replace
from typing import NamedTuple

from watchword.domain.counts import (
    CALENDAR_DAYS,
    COUNT_SECONDS,
    EXPIRING_DAYS,
    FEW_TOKENS,
    MAX_OWNERS,
    UNUSED_DAYS,
    DayCounter,
    TokenCounts,
    UnusedBatch,
    day_of,
    first_kept,
)
from watchword.domain.events import KeptEvent
from watchword.domain.lifetimes import DAY
from watchword.domain.ports import Use
from watchword.stores.sql.transaction import SqlPart, Transaction, delete_oldest, snapshot, transaction

# `TokenRecord.effective_status` in numbers: live are the tokens that have not ended less those of suspended
# actors, which are few. So all tokens are counted on one index from end to end, without a look at their actors.
_NOT_ENDED = "revoked_at IS NULL AND (expires_at IS NULL OR expires_at > $1::bigint)"
_COLUMNS = "expires_at, owner_urn, last_used_at, created_at"
_OF_SUSPENDED = " AND actor_urn IN (SELECT urn FROM actors WHERE status = 'SUSPENDED')"
# In the order of the index tokens_actor, so that revoked tokens are not read.
_OF_ACTOR = " AND actor_urn = ${}::text ORDER BY expires_at DESC NULLS LAST"
_WITHIN = "count(*) FILTER (WHERE expires_at <= ${}::bigint)"
_NUMBERS = f"""
SELECT count(*), count(*) FILTER (WHERE expires_at IS NULL), {{unused}},
    {", ".join(map(_WITHIN.format, range(2, len(EXPIRING_DAYS) + 2)))} FROM {{tokens}}"""
# Of all tokens where there are many: each database reads one index from end to end.
COUNTS = _NUMBERS.format(unused="0", tokens=f"(SELECT {_COLUMNS} FROM tokens WHERE {_NOT_ENDED}) AS tokens")
_UNUSED_NUMBER = f"count(*) FILTER (WHERE coalesce(last_used_at, created_at) <= $1::bigint - {UNUSED_DAYS * DAY})"
_EXPIRIES = f"SELECT expires_at / {DAY}, count(*) FROM {{tokens}} WHERE expires_at < $2::bigint GROUP BY 1"
_OWNERS = "SELECT owner_urn, count(*) FROM {tokens} GROUP BY owner_urn ORDER BY 2 DESC, 1 LIMIT $2::bigint"
_USES = f"""
SELECT day, sum(uses) FROM token_uses WHERE day >= $2::bigint AND token_id IN (
    SELECT id FROM tokens WHERE actor_urn = $1::text AND revoked_at IS NULL
    ORDER BY expires_at DESC NULLS LAST LIMIT {FEW_TOKENS})
GROUP BY day"""
_UNUSED = f"""
SELECT count(*), count(*) FILTER (WHERE {_NOT_ENDED.replace("$1", "$3")}
    AND coalesce(last_used_at, created_at) <= $4::bigint
    AND NOT EXISTS (SELECT 1 FROM actors WHERE urn = actor_urn AND status = 'SUSPENDED')), coalesce(max(id), '')
FROM (SELECT * FROM tokens WHERE id > $1::text ORDER BY id LIMIT $2::bigint) AS batch"""


class _Numbers(NamedTuple):
    """Counts of tokens that have not ended: all, never expiring, unused, and expiring; by day of expiry; by owner."""

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
    """Count the tokens with this condition; `few`: at most FEW_TOKENS, with the unused ones."""

    def source(number: int) -> str:
        limit = f" LIMIT {FEW_TOKENS}" if few else ""
        return f"(SELECT {_COLUMNS} FROM tokens WHERE {_NOT_ENDED}{which.format(number)}{limit}) AS tokens"

    ends = tuple(now + days * DAY for days in EXPIRING_DAYS)
    unused = _UNUSED_NUMBER if few else "0"
    row = await tx.fetchrow(_NUMBERS.format(tokens=source(len(ends) + 2), unused=unused), now, *ends, *bound)
    assert row is not None
    until = (day_of(now) + CALENDAR_DAYS) * DAY
    days = await tx.fetch(_EXPIRIES.format(tokens=source(3)), now, until, *bound)
    most = await tx.fetch(_OWNERS.format(tokens=source(3)), now, owners, *bound)
    return _Numbers(tuple(row), Counter({row[0]: row[1] for row in days}), Counter({row[0]: row[1] for row in most}))


def _counts(numbers: _Numbers, *, suspended: int, unused: int | None) -> TokenCounts:
    live, never_expiring, _, *expiring = numbers.simple
    owners = sorted(numbers.owners.items(), key=lambda owner: (-owner[1], owner[0]))[:MAX_OWNERS]
    return TokenCounts(live, never_expiring, tuple(expiring), suspended, dict(numbers.expiries), tuple(owners), unused)


# A row of the list is a count, 20 characters wide, and the id that it belongs to: one statement for a batch of tokens.
_ADD_USES = """
INSERT INTO token_uses (token_id, day, uses)
SELECT substr(value, 21), $1::bigint, CAST(substr(value, 1, 20) AS bigint) FROM {each}
WHERE EXISTS (SELECT 1 FROM tokens WHERE id = substr(value, 21))
ON CONFLICT (token_id, day) DO UPDATE SET uses = token_uses.uses + excluded.uses"""
_ADD_COUNT = """
INSERT INTO day_counts (kind, day, number) VALUES ($1, $2, $3)
ON CONFLICT (kind, day) DO UPDATE SET number = day_counts.number + excluded.number"""
_REJECTIONS = {DayCounter.DENIALS.value, DayCounter.FAILED_AUTHENTICATIONS.value}


class SqlUses(SqlPart):
    async def uses_of(self, ids: Collection[str], since: int) -> dict[str, dict[int, int]]:
        sql = f"SELECT token_id, day, uses FROM token_uses WHERE token_id {self._db.dialect.any_of('$1')} AND day >= $2"
        found: defaultdict[str, dict[int, int]] = defaultdict(dict)
        for token_id, day, uses in await self.fetch_of(ids, sql, since):
            found[token_id][day] = uses
        return found

    async def networks_of(self, ids: Collection[str]) -> dict[str, tuple[str, ...]]:
        any_of = self._db.dialect.any_of("$1")
        sql = f"SELECT token_id, network FROM token_networks WHERE token_id {any_of} ORDER BY first_at, network"
        found: defaultdict[str, tuple[str, ...]] = defaultdict(tuple)
        for token_id, network in await self.fetch_of(ids, sql):
            found[token_id] += (network,)
        return found

    async def day_counts(self, counter: DayCounter, since: int) -> dict[int, int]:
        sql = "SELECT day, number FROM day_counts WHERE kind = $1 AND day >= $2"
        return {row[0]: row[1] for row in await self._db.fetch(sql, counter.value, since)}

    @transaction
    async def purge_uses(self, tx: Transaction, before: int, most: int) -> int:
        purged = await delete_oldest(tx, "token_uses", "token_id, day", "day", before, most)
        await tx.execute("DELETE FROM day_counts WHERE day < $1", before)
        return purged


async def add_uses(tx: Transaction, uses: Mapping[str, Use]) -> None:
    """Uses count for the day of the last of them: a batch holds those of the last half minute. One statement for each
    day, and the sums last, because all transactions that record uses change them.
    """
    days: defaultdict[int, list[str]] = defaultdict(list)
    sums: Counter[int] = Counter()
    for token_id, use in uses.items():
        if use.count:
            days[day_of(use.last)].append(f"{use.count:>20}{token_id}")
            sums[day_of(use.last)] += use.count
    for day, counts in days.items():
        await tx.execute(_ADD_USES.format(each=tx.dialect.each_of("$2", "text")), day, counts)
    for day, number in sorted(sums.items()):
        await tx.execute(_ADD_COUNT, DayCounter.USES.value, day, number)


async def add_rejections(tx: Transaction, events: Collection[KeptEvent]) -> None:
    """Count denials and failed authentications, with those that the event only reports as left out."""
    sums: Counter[tuple[str, int]] = Counter()
    for event in events:
        if event.action in _REJECTIONS:
            left_out = event.detail.get("leftOut", 0)
            sums[event.action, day_of(event.at)] += 1 + (left_out if isinstance(left_out, int) else 0)
    for (kind, day), number in sorted(sums.items()):
        await tx.execute(_ADD_COUNT, kind, day, number)
