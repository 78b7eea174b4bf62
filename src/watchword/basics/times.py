"""Times in milliseconds since 1970, and durations: their names, and ISO 8601."""

import re
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from enum import Enum
from time import time_ns

from watchword.basics.errors import Fault, invalid

MINUTE = 60_000
HOUR = 60 * MINUTE
DAY = 24 * HOUR
Clock = Callable[[], int]
"""Returns milliseconds since 1970."""
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


def system_clock() -> int:
    return time_ns() // 1_000_000


class Duration(Enum):
    """The named lifetimes, in milliseconds; None never expires."""

    ONE_HOUR = HOUR
    ONE_DAY = DAY
    ONE_WEEK = 7 * DAY
    ONE_MONTH = 30 * DAY
    THREE_MONTHS = 90 * DAY
    SIX_MONTHS = 180 * DAY
    ONE_YEAR = 365 * DAY
    NO_EXPIRY = None


# Days and smaller only: a month or a year has no fixed length.
_ISO = re.compile(
    r"P(?=.)(?:(?P<weeks>\d{1,9})W)?(?:(?P<days>\d{1,9})D)?"
    r"(?:T(?=.)(?:(?P<hours>\d{1,9})H)?(?:(?P<minutes>\d{1,9})M)?(?:(?P<seconds>\d{1,9})S)?)?",
    re.ASCII,
)
_UNITS = {"weeks": 7 * DAY, "days": DAY, "hours": HOUR, "minutes": MINUTE, "seconds": 1_000}


def iso(milliseconds: int) -> str:
    """Milliseconds since 1970 as an ISO 8601 time in UTC."""
    moment = _EPOCH + timedelta(milliseconds=milliseconds)
    return moment.isoformat(timespec="milliseconds").replace("+00:00", "Z")


def parse_iso(text: str, field: str = "durationIso") -> int:
    """Milliseconds of an ISO 8601 duration in weeks, days, hours, minutes and seconds."""
    match = _ISO.fullmatch(text)
    if match is None:
        raise invalid(
            field,
            f"{field} must be an ISO 8601 duration of weeks, days, hours, minutes or seconds, such as P3D or PT12H.",
        )
    return sum(int(number) * _UNITS[unit] for unit, number in match.groupdict().items() if number)


# The short forms: `90d`, `12h`, `1d12h`.
_SHORT = re.compile(r"((?:\d+W)?(?:\d+D)?)((?:\d+H)?(?:\d+M)?(?:\d+S)?)", re.ASCII)
SPAN_FORMS = "30d, 12h, P30D or ONE_DAY"


def parse_span(text: str) -> int | None:
    """The milliseconds of `90d`, `1d12h`, `P90D` or `ONE_DAY` in any case; None where it is none of these. For people;
    GraphQL takes only ISO 8601.
    """
    word = text.strip().upper()
    if word in Duration.__members__:
        milliseconds: int | None = Duration[word].value
        return milliseconds
    if short := _SHORT.fullmatch(word):
        word = f"P{short[1]}T{short[2]}".removesuffix("T")
    try:
        return parse_iso(word)
    except Fault:
        return None


def written_iso(milliseconds: int) -> str:
    """The ISO 8601 duration that `parse_iso` reads as this number of milliseconds: `P30D`, `PT12H`, `P1DT1S`."""
    days, rest = divmod(milliseconds // 1_000, DAY // 1_000)
    parts = {"H": rest // 3_600, "M": rest // 60 % 60, "S": rest % 60}
    time = "".join(f"{number}{unit}" for unit, number in parts.items() if number)
    return f"P{f'{days}D' if days or not time else ''}{'T' if time else ''}{time}"
