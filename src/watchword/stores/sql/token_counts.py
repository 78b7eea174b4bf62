"""Counts of tokens, for metrics. None of them delays a request at any number of tokens."""

from watchword.domain.lifetimes import DAY
from watchword.domain.token_counts import EXPIRING_DAYS, TokenCounts, UnusedBatch
from watchword.stores.sql.transaction import SqlPart, Transaction, snapshot

COUNT_SECONDS = 60.0

# Both databases read one index from end to end: tokens_verdict in SQLite, tokens_all in PostgreSQL.
_WITHIN = "count(*) FILTER (WHERE expires_at > $1::bigint AND expires_at <= ${}::bigint)"
COUNTS = f"""
SELECT count(*) FILTER (WHERE expires_at IS NULL OR expires_at > $1::bigint),
    count(*) FILTER (WHERE expires_at IS NULL), {", ".join(map(_WITHIN.format, range(2, len(EXPIRING_DAYS) + 2)))}
FROM tokens WHERE revoked_at IS NULL"""
_UNUSED = """
SELECT count(*), count(*) FILTER (WHERE revoked_at IS NULL AND (expires_at IS NULL OR expires_at > $3::bigint)
    AND coalesce(last_used_at, created_at) <= $4::bigint), coalesce(max(id), '')
FROM (SELECT * FROM tokens WHERE id > $1::text ORDER BY id LIMIT $2::bigint) AS batch"""


class SqlTokenCounts(SqlPart):
    async def token_counts(self) -> TokenCounts:
        async def count(tx: Transaction) -> TokenCounts:
            now = await tx.now()
            await tx.execute(tx.dialect.read_one_index)
            row = await tx.fetchrow(COUNTS, now, *(now + days * DAY for days in EXPIRING_DAYS))
            assert row is not None
            live, unlimited, *expiring = row
            return TokenCounts(live, unlimited, tuple(expiring))

        return await self._db.scan(count, COUNT_SECONDS)

    @snapshot
    async def unused_tokens(self, tx: Transaction, after: str, most: int, millis: int) -> UnusedBatch:
        now = await tx.now()
        row = await tx.fetchrow(_UNUSED, after, most, now, now - millis)
        assert row is not None
        return UnusedBatch._make(row)
