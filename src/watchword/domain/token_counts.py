"""How many tokens there are, for metrics."""

from dataclasses import dataclass
from typing import NamedTuple

EXPIRING_DAYS = (1, 7, 30)
UNUSED_DAYS = 90


@dataclass(frozen=True, slots=True)
class TokenCounts:
    """Live tokens: neither revoked nor expired. Those of suspended actors are among them, as in lists of tokens by
    status.
    """

    live: int
    unlimited: int
    """Without an expiry."""
    expiring: tuple[int, ...]
    """Those that expire within 1, within 7 and within 30 days."""


class UnusedBatch(NamedTuple):
    read: int
    unused: int
    last: str
    """The id to go on after."""
