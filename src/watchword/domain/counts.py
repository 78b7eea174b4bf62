"""Counts for metrics and the overview: of tokens, and by day of uses, denials and failed authentications.

Days are UTC, as numbers of days since 1970.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import date, timedelta
from enum import Enum
from typing import NamedTuple

from watchword.domain.errors import invalid
from watchword.domain.events import Action
from watchword.domain.lifetimes import DAY

KEPT_DAYS = 30
"""Days whose counts are kept, today included."""
DEFAULT_DAYS = 14
_FIRST = date(1970, 1, 1)


class DayCounter(Enum):
    """What is counted by day over the whole store."""

    USES = "uses"
    DENIALS = Action.ACCESS_DENIED.value
    FAILED_AUTHENTICATIONS = Action.AUTHENTICATION_FAILED.value


@dataclass(frozen=True, slots=True)
class DayCount:
    day: str
    """YYYY-MM-DD"""
    count: int


def day_of(millis: int) -> int:
    return millis // DAY


def first_kept(now: int) -> int:
    """The first day whose counts are kept."""
    return day_of(now) - KEPT_DAYS + 1


def by_day(counts: Mapping[int, int], first: int, days: int) -> tuple[DayCount, ...]:
    """These days, oldest first; a day without a count has 0."""
    start = _FIRST + timedelta(first)
    return tuple(DayCount(str(start + timedelta(n)), counts.get(first + n, 0)) for n in range(days))


def check_days(days: int | None) -> int:
    days = DEFAULT_DAYS if days is None else days
    if not 1 <= days <= KEPT_DAYS:
        raise invalid("days", f"days must be from 1 to {KEPT_DAYS}.")
    return days


EXPIRING_DAYS = (1, 7, 30)
UNUSED_DAYS = 90
CALENDAR_DAYS = 84
"""Days of the expiry calendar, today included."""
MAX_OWNERS = 10
COUNT_SECONDS = 60.0
"""What counting all tokens may take."""
FEW_TOKENS = 20_000
"""Up to this many tokens, all counts are made at once. Of an actor with more, these are counted."""


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
    unused: int | None = 0
    """Neither created nor used for UNUSED_DAYS. None: there are more than FEW_TOKENS, which are counted in batches."""
    uses: Mapping[int, int] = field(default_factory=dict)
    """By day, of the tokens of one actor that are not revoked. Those of all tokens are counted apart."""
    seconds: float = field(default=0.0, compare=False)
    """Processor time that the store used for it."""


class UnusedBatch(NamedTuple):
    read: int
    unused: int
    last: str
    """The id to go on after."""
