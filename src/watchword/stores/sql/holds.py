"""Holds on series, as every transaction that removes rows reads them."""

from watchword.domain.indices import Aspect
from watchword.domain.retention import Hold, series_key
from watchword.stores import rows
from watchword.stores.sql.transaction import Transaction

HOLD = "series, reason, set_by, set_at, by_rule"
# `*` sorts before every name: the hold on the series itself comes first, and of two that set by hand.
_IN_EFFECT = f"SELECT {HOLD} FROM retention_holds WHERE series IN ($1::text, '*') ORDER BY series DESC, by_rule LIMIT 1"


async def find_hold(tx: Transaction, series: Aspect | str) -> Hold | None:
    """The hold on the series, or else that on every series. Callers share or have the lock RETENTION."""
    row = await tx.fetchrow(_IN_EFFECT, series_key(series))
    return None if row is None else hold_of(row)


def hold_of(row: rows.Row) -> Hold:
    series, reason, set_by, set_at, by_rule = row
    return Hold(series, reason, set_by, set_at, bool(by_rule))
