"""Lifetimes of tokens, and notices before they expire.

A token has one notice per threshold: that of the nearest threshold that has passed.
"""

from collections.abc import Iterable
from dataclasses import dataclass
from typing import NamedTuple

from watchword.basics.errors import invalid
from watchword.basics.times import DAY, HOUR, Duration, parse_iso

SHORTEST = 60_000


@dataclass(frozen=True, slots=True)
class Lifetimes:
    """The allowed lifetimes. An ISO duration may be anything from a minute to the longest of them."""

    allowed: frozenset[Duration]

    @classmethod
    def of(cls, names: Iterable[Duration], *, allow_no_expiry: bool) -> "Lifetimes":
        endless = {Duration.NO_EXPIRY}
        return cls(frozenset(names) | endless if allow_no_expiry else frozenset(names) - endless)

    @property
    def longest(self) -> int:
        return max(int(duration.value) for duration in self.allowed if duration.value is not None)

    def expiry(self, now: int, duration: Duration | None, iso: str | None) -> int | None:
        """The expiry of a token created now; None for never."""
        if (duration is None) == (iso is None):
            raise invalid("duration", "Give exactly one of duration and durationIso.")
        if duration is not None:
            if duration not in self.allowed:
                allowed = ", ".join(self.names)
                raise invalid("duration", f"duration {duration.name} is not allowed here; allowed: {allowed}.")
            return None if duration.value is None else now + duration.value
        assert iso is not None
        length = parse_iso(iso)
        if not SHORTEST <= length <= self.longest:
            longest = f"P{self.longest // DAY}D" if self.longest >= DAY else f"PT{self.longest // HOUR}H"
            raise invalid("durationIso", f"durationIso must be from PT1M to {longest}, the longest allowed lifetime.")
        return now + length

    @property
    def names(self) -> list[str]:
        return [duration.name for duration in Duration if duration in self.allowed]


class ExpiringToken(NamedTuple):
    """A live token that expires within the largest threshold."""

    id: str
    created_at: int
    expires_at: int
    noticed: int | None  # the smallest threshold that has had its notice, in days

    def due(self, thresholds: Iterable[int], now: int) -> int | None:
        """The threshold, in days, whose notice is due now. After a pause that is the nearest one that has passed, not
        each of them. A threshold that is not below the token's lifetime does not fit.
        """
        left = self.expires_at - now
        nearest = min((days for days in thresholds if left <= days * DAY), default=None)
        if left <= 0 or nearest is None or nearest * DAY >= self.expires_at - self.created_at:
            return None
        return nearest if self.noticed is None or nearest < self.noticed else None


class ExpiringPage(NamedTuple):
    now: int  # by the store's clock
    tokens: tuple[ExpiringToken, ...]
    after: tuple[int, str] | None  # where the next page begins; None: this is the last
