"""When a retention rule is due, by cron in a time zone, and the part of the day in which its runs may work."""

import re
from collections.abc import Iterator
from datetime import datetime, timedelta
from datetime import time as time_of_day
from itertools import islice, pairwise, takewhile
from typing import NamedTuple
from zoneinfo import ZoneInfo

from cronsim import CronSim, CronSimError

from watchword.basics.errors import invalid
from watchword.basics.times import DAY, HOUR, MINUTE

MAX_SCHEDULE = 200
_WINDOW = re.compile(r"([01]\d|2[0-3]):([0-5]\d)-([01]\d|2[0-3]):([0-5]\d)", re.ASCII)
_LOOK_BACK = (HOUR, *(days * DAY for days in (2, 40, 400, 3_000)))
"""How far back the last moment of a schedule is looked for: that of every hour is found near, that of every 29th of
February far away.
"""


class Window(NamedTuple):
    """A part of the day in which runs may work: from `opens`, up to `closes`, which may be on the next day."""

    opens: time_of_day
    closes: time_of_day

    def __str__(self) -> str:
        return f"{self.opens:%H:%M}-{self.closes:%H:%M}"

    def is_open(self, now: int, zone: ZoneInfo) -> bool:
        at = _local(now, zone).time()
        if self.opens < self.closes:
            return self.opens <= at < self.closes
        return at >= self.opens or at < self.closes

    def next_opening(self, now: int, zone: ZoneInfo) -> int:
        """The first moment from now on at which it is open."""
        if self.is_open(now, zone):
            return now
        today = _local(now, zone).date()
        for days in range(3):
            opens = datetime.combine(today + timedelta(days=days), self.opens, zone)
            # Where clocks change, a time of day comes twice, or is skipped: then the window opens in between.
            first, last = sorted(_millis(opens.replace(fold=fold)) for fold in (0, 1))
            for at in range(first, last + 1, MINUTE):
                if at > now and self.is_open(at, zone):
                    return at
        raise AssertionError(self)


class ScheduleTimes(NamedTuple):
    """The moments of a schedule around a time."""

    last: int | None  # the last one up to then
    following: int
    period: int

    def is_of(self, now: int) -> bool:
        """Whether they are the moments around this time too."""
        return (self.last or self.following) <= now < self.following


class Schedule(NamedTuple):
    cron: str
    zone: ZoneInfo

    def moments(self, after: int) -> Iterator[int]:
        """Debian cron's rules at the change to and from summer time: what falls into a skipped hour happens right after
        it, what falls into a repeated hour happens once.
        """
        found = map(_millis, CronSim(self.cron, _local(after, self.zone)))
        # In the second of two equal hours the library begins with moments of the first.
        return (moment for moment in found if moment > after)

    def last(self, now: int) -> int | None:
        """The last moment up to this one. However many were missed, one is due."""
        for span in _LOOK_BACK:
            if found := list(takewhile(lambda moment: moment <= now, self.moments(now - span))):
                return found[-1]
        return None

    def next(self, now: int) -> int:
        return next(self.moments(now))

    def times(self, now: int) -> ScheduleTimes:
        """The period is the longer one of the current and the one before, or the next where there are none yet."""
        last, following = self.last(now), self.next(now)
        if last is None:
            return ScheduleTimes(None, following, self.next(following) - following)
        before = self.last(last - 1)
        return ScheduleTimes(last, following, max(following - last, 0 if before is None else last - before))


def parse_window(value: object, where: str = "window") -> Window:
    match = _WINDOW.fullmatch(value) if isinstance(value, str) else None
    if match is None or match[1] + match[2] == match[3] + match[4]:
        raise invalid(where, f"{where} must be two different times of day, such as 22:00-06:00.")
    opens, closes = (time_of_day(int(match[n]), int(match[n + 1])) for n in (1, 3))
    return Window(opens, closes)


def parse_zone(value: object, where: str) -> str:
    try:
        zone = ZoneInfo(value if isinstance(value, str) else "").key
    except (OSError, ValueError, KeyError):
        zone = ""
    if not zone or zone in ("localtime", "posixrules", "Factory") or zone.startswith(("right/", "posix/")):
        # Those differ from machine to machine.
        raise invalid(where, f"{where} must be a time zone such as UTC or Europe/Berlin.")
    return zone


def parse_cron(value: object, where: str) -> str:
    problem = ""
    if isinstance(value, str) and len(value) <= MAX_SCHEDULE and len(value.split()) == 5:
        try:
            # Two of any three in a row are in one hour where the schedule has several minutes. UTC has no summer time.
            moments = list(islice(Schedule(value, ZoneInfo("UTC")).moments(0), 3))
        except CronSimError as error:
            problem = f": {error}"
        else:
            if not moments:  # such as the 30th of February
                raise invalid(where, f"{where} has no moment in the years to come.")
            if any(later - earlier < HOUR for earlier, later in pairwise(moments)):
                raise invalid(where, f"{where} must leave at least an hour between runs.")
            return " ".join(value.split())
    raise invalid(where, f"{where} must be five fields of cron, such as 0 1 * * *{problem}.")


def _local(millis: int, zone: ZoneInfo) -> datetime:
    return datetime.fromtimestamp(millis / 1_000, zone)


def _millis(moment: datetime) -> int:
    return int(moment.timestamp() * 1_000)
