"""Uses of tokens by day, sums by day over the whole store, and the networks that tokens were used from."""

from collections import Counter, defaultdict
from collections.abc import Collection, Mapping

from watchword.domain.counts import DayCounter, day_of
from watchword.domain.events import KeptEvent
from watchword.domain.ports import Use
from watchword.stores.sql.transaction import SqlPart, Transaction, delete_oldest, transaction

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
        for token_id, day, uses in await self._db.fetch(sql, list(ids), since):
            found[token_id][day] = uses
        return found

    async def networks_of(self, ids: Collection[str]) -> dict[str, tuple[str, ...]]:
        any_of = self._db.dialect.any_of("$1")
        sql = f"SELECT token_id, network FROM token_networks WHERE token_id {any_of} ORDER BY first_at, network"
        found: defaultdict[str, tuple[str, ...]] = defaultdict(tuple)
        for token_id, network in await self._db.fetch(sql, list(ids)):
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
