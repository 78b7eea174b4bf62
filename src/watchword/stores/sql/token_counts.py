"""Counts of tokens, for metrics. None of them delays a request at any number of tokens."""

from itertools import accumulate

from watchword.domain.lifetimes import DAY
from watchword.domain.token_counts import EXPIRING_DAYS, TokenCounts, UnusedBatch
from watchword.stores.sql.transaction import SqlPart, Transaction, snapshot

COUNT_SECONDS = 60.0

# Read from the index tokens_all alone. Tokens that expire later, usually most of them, are not read: the stored total
# includes them.
_NOT_REVOKED = "SELECT count(*) FROM tokens WHERE revoked_at IS NULL"
_WITHIN = f"({_NOT_REVOKED} AND expires_at > ${{}}::bigint AND expires_at <= ${{}}::bigint)"
_COUNTS = f"""
SELECT {{total}}, ({_NOT_REVOKED} AND expires_at IS NULL), ({_NOT_REVOKED} AND expires_at <= $1::bigint),
    {", ".join(_WITHIN.format(number, number + 1) for number in range(1, len(EXPIRING_DAYS) + 1))}"""
_UNUSED = """
SELECT count(*), count(CASE WHEN revoked_at IS NULL AND (expires_at IS NULL OR expires_at > $3::bigint)
    AND coalesce(last_used_at, created_at) <= $4::bigint THEN 1 END), coalesce(max(id), '')
FROM (SELECT * FROM tokens WHERE id > $1::text ORDER BY id LIMIT $2::bigint) AS batch"""


class SqlTokenCounts(SqlPart):
    async def token_counts(self) -> TokenCounts:
        async def count(tx: Transaction) -> TokenCounts:
            now = await tx.now()
            sql = _COUNTS.format(total=tx.dialect.stored_total("'all'", "''"))
            row = await tx.fetchrow(sql, now, *(now + days * DAY for days in EXPIRING_DAYS))
            assert row is not None
            total, unlimited, expired, *within = row
            return TokenCounts(total - expired, unlimited, tuple(accumulate(within)))

        return await self._db.scan(count, COUNT_SECONDS)

    @snapshot
    async def unused_tokens(self, tx: Transaction, after: str, most: int, millis: int) -> UnusedBatch:
        now = await tx.now()
        row = await tx.fetchrow(_UNUSED, after, most, now, now - millis)
        assert row is not None
        return UnusedBatch._make(row)
