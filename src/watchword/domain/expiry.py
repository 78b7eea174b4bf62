"""Notices before tokens expire: once per token and threshold, the nearest threshold that has passed."""

from collections.abc import Iterable
from typing import NamedTuple

from watchword.domain.lifetimes import DAY


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
