"""Counts of tokens, for metrics and the overview."""

from collections.abc import Mapping
from dataclasses import dataclass, field

EXPIRING_DAYS = (1, 7, 30)
UNUSED_DAYS = 90
CALENDAR_DAYS = 84
"""Days of the expiry calendar, today included."""
MAX_OWNERS = 10
COUNT_SECONDS = 60.0
"""What counting all tokens may take."""
FEW_TOKENS = 20_000
"""Up to this many tokens are counted for each request. Of an actor with more, these are counted."""


@dataclass(frozen=True, slots=True)
class TokenCounts:
    """Live tokens: neither revoked nor expired, and their actor is not suspended (`TokenRecord.effective_status`)."""

    live: int = 0
    never_expiring: int = 0
    """Without an expiry."""
    expiring: tuple[int, ...] = (0,) * len(EXPIRING_DAYS)
    """Those that expire within 1, within 7 and within 30 days."""
    suspended: int = 0
    """Neither revoked nor expired, but their actor is suspended. They are not live."""
    expiries: Mapping[int, int] = field(default_factory=dict)
    """By the day they expire on, within CALENDAR_DAYS."""
    owners: tuple[tuple[str, int], ...] = ()
    """Who created most of them: urn and number, at most MAX_OWNERS."""
    unused: int = 0
    """Neither created nor used for UNUSED_DAYS."""
    uses: Mapping[int, int] = field(default_factory=dict)
    """By day, of the tokens of one actor that are not revoked. Those of all tokens are counted apart."""
    few: bool = field(default=True, compare=False)
    """Whether at most FEW_TOKENS were counted."""
    seconds: float = field(default=0.0, compare=False)
    """Processor time that the store used for it."""


@dataclass(frozen=True, slots=True)
class Use:
    """The uses of one token since the last write."""

    last: int
    count: int
    network: str  # of the last use
    others: tuple[str, ...] = ()
