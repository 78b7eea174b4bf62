"""Counts by day: of uses, denials and failed authentications. Days are UTC, as numbers of days since 1970."""

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import date, timedelta
from enum import Enum

from watchword.basics.errors import invalid
from watchword.basics.times import DAY
from watchword.journal.events import Action

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
