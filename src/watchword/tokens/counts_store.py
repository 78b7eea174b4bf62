"""Counts of tokens, for metrics and the overview; uses of tokens by day, sums by day over the whole store, and the
networks that tokens were used from.

No count delays a request, at any number of tokens.
"""

import time
from collections import Counter, defaultdict
from collections.abc import Collection, Mapping
from dataclasses import replace

from watchword.basics.times import DAY
from watchword.database.transaction import SqlPart, Transaction, delete_oldest, transaction
from watchword.journal.day_counts import DayCounter, day_of, first_kept
from watchword.journal.store import add_day_counts
from watchword.tokens.counts import (
    CALENDAR_DAYS,
    COUNT_SECONDS,
    EXPIRING_DAYS,
    FEW_TOKENS,
    MAX_OWNERS,
    UNUSED_DAYS,
    TokenCounts,
    Use,
)

# `TokenRecord.effective_status` in SQL: live tokens have not ended, and their actor is not suspended.
_NOT_ENDED = "revoked_at IS NULL AND (expires_at IS NULL OR expires_at > $1::bigint)"
_SUSPENDED = "(SELECT urn FROM actors WHERE status = 'SUSPENDED')"
# In the order of the index tokens_actor, so that revoked tokens are not read.
_OF_ACTOR = f" AND actor_urn = ${{}}::text ORDER BY expires_at DESC NULLS LAST LIMIT {FEW_TOKENS}"
_LIVE = f"(SELECT * FROM tokens WHERE {_NOT_ENDED} AND actor_urn NOT IN {_SUSPENDED}{{which}}) AS live"
_NUMBERS = f"""
SELECT count(*), count(*) FILTER (WHERE expires_at IS NULL),
    count(*) FILTER (WHERE coalesce(last_used_at, created_at) <= $1::bigint - {UNUSED_DAYS * DAY}),
    {", ".join(f"count(*) FILTER (WHERE expires_at <= ${number}::bigint)" for number, _ in enumerate(EXPIRING_DAYS, 2))}
FROM {_LIVE}"""
# The sign keeps both databases from an index: they would look up token by token.
COUNTS = _NUMBERS.format(which="").replace(" revoked_at", " +revoked_at")
_EXPIRIES = f"SELECT expires_at / {DAY}, count(*) FROM {_LIVE} WHERE expires_at < $2::bigint GROUP BY 1"
_OWNERS = f"SELECT owner_urn, count(*) FROM {_LIVE} GROUP BY owner_urn ORDER BY 2 DESC, 1 LIMIT {MAX_OWNERS}"
_SUSPENDED_NUMBER = f"SELECT count(*) FROM tokens WHERE {_NOT_ENDED} AND actor_urn IN {_SUSPENDED}"
_USES = f"""
SELECT day, sum(uses) FROM token_uses WHERE day >= $2::bigint AND token_id IN (
    SELECT id FROM tokens WHERE actor_urn = $1::text AND revoked_at IS NULL
    ORDER BY expires_at DESC NULLS LAST LIMIT {FEW_TOKENS})
GROUP BY day"""


class TokenCountStore(SqlPart):
    async def token_counts(self, actor: str | None = None, seconds: float = COUNT_SECONDS) -> TokenCounts:
        """Of all tokens, or those of an actor, from one snapshot. Takes about a second for a million tokens."""

        async def count(tx: Transaction) -> TokenCounts:
            began = time.thread_time()
            now = await tx.now()
            if actor is not None:
                own = await _count(tx, now, _OF_ACTOR, actor)
                uses = {day: int(number) for day, number in await tx.fetch(_USES, actor, first_kept(now))}
                return replace(own, uses=uses, seconds=time.thread_time() - began)
            total = await tx.fetchval(f"SELECT {tx.dialect.stored_total('$1::text', '$2::text')}", "all", "")
            await tx.execute(tx.dialect.one_process)
            counts = await _count(tx, now)
            return replace(counts, suspended=await tx.fetchval(_SUSPENDED_NUMBER, now), few=total <= FEW_TOKENS)

        return await self._db.scan(count, seconds)

    async def day_counts(self, counter: DayCounter, since: int) -> dict[int, int]:
        """What the whole store counted, by day, from this day on."""
        sql = "SELECT day, number FROM day_counts WHERE kind = $1 AND day >= $2"
        return {row[0]: row[1] for row in await self._db.fetch(sql, counter.value, since)}


async def _count(tx: Transaction, now: int, which: str = "", *bound: str) -> TokenCounts:
    ends = tuple(now + days * DAY for days in EXPIRING_DAYS)
    numbers = _NUMBERS.format(which=which.format(len(ends) + 2)) if which else COUNTS
    row = await tx.fetchrow(numbers, now, *ends, *bound)
    assert row is not None
    live, never_expiring, unused, *expiring = row
    until = (day_of(now) + CALENDAR_DAYS) * DAY
    days = await tx.fetch(_EXPIRIES.format(which=which.format(3)), now, until, *bound)
    owners = await tx.fetch(_OWNERS.format(which=which.format(2)), now, *bound)
    return TokenCounts(
        live=live,
        never_expiring=never_expiring,
        expiring=tuple(expiring),
        unused=unused,
        expiries={row[0]: row[1] for row in days},
        owners=tuple((row[0], row[1]) for row in owners),
    )


# A row of the list is a count, 20 characters wide, and the id that it belongs to: one statement for a batch of tokens.
_ADD_USES = """
INSERT INTO token_uses (token_id, day, uses)
SELECT substr(value, 21), $1::bigint, CAST(substr(value, 1, 20) AS bigint) FROM {each}
WHERE EXISTS (SELECT 1 FROM tokens WHERE id = substr(value, 21))
ON CONFLICT (token_id, day) DO UPDATE SET uses = token_uses.uses + excluded.uses"""


class UsageStore(SqlPart):
    async def uses_of(self, ids: Collection[str], since: int) -> dict[str, dict[int, int]]:
        """The uses of these tokens by day, from this day on. Days without uses are absent."""
        sql = f"SELECT token_id, day, uses FROM token_uses WHERE token_id {self._db.dialect.any_of('$1')} AND day >= $2"
        found: defaultdict[str, dict[int, int]] = defaultdict(dict)
        for token_id, day, uses in await self.fetch_of(ids, sql, since):
            found[token_id][day] = uses
        return found

    async def networks_of(self, ids: Collection[str]) -> dict[str, tuple[str, ...]]:
        """The networks that these tokens were used from, at most MAX_NETWORKS each, the first one first."""
        any_of = self._db.dialect.any_of("$1")
        sql = f"SELECT token_id, network FROM token_networks WHERE token_id {any_of} ORDER BY first_at, network"
        found: defaultdict[str, tuple[str, ...]] = defaultdict(tuple)
        for token_id, network in await self.fetch_of(ids, sql):
            found[token_id] += (network,)
        return found

    @transaction
    async def purge_uses(self, tx: Transaction, before: int, most: int) -> int:
        """Delete counts of days before this one: at most `most` of tokens; returns how many."""
        purged = await delete_oldest(tx, "token_uses", "token_id, day", "day", before, most)
        await tx.execute("DELETE FROM day_counts WHERE day < $1", before)
        return purged


async def add_uses(tx: Transaction, uses: Mapping[str, Use]) -> None:
    """Uses count for the day of the last of them: a batch holds those of the last half minute. One statement for each
    day, and the sums last, because all transactions that record uses change them.
    """
    days: defaultdict[int, list[str]] = defaultdict(list)
    sums: Counter[tuple[str, int]] = Counter()
    for token_id, use in uses.items():
        if use.count:
            days[day_of(use.last)].append(f"{use.count:>20}{token_id}")
            sums[DayCounter.USES.value, day_of(use.last)] += use.count
    for day, counts in days.items():
        await tx.execute(_ADD_USES.format(each=tx.dialect.each_of("$2", "text")), day, counts)
    await add_day_counts(tx, sums)
