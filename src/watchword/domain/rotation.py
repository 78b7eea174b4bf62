"""Rotation: a token is replaced by a successor, and its holder is never without one that works.

Until the successor is first used the old token goes on as it was, and the successor ends with the overlap: one that
nobody received dies by itself. Its first use is committed before it is answered; from then on the successor lives its
own life, and the old token ends after the grace, which is for the rest of a fleet.
"""

from dataclasses import dataclass

from watchword.domain.errors import Fault, Reason, invalid
from watchword.domain.lifetimes import DAY, SHORTEST, iso, parse_iso
from watchword.domain.tokens import TokenRecord

DEFAULT_OVERLAP = DAY
DEFAULT_GRACE = 5 * 60_000
LONGEST_OVERLAP = 90 * DAY
LONGEST_GRACE = 30 * DAY


@dataclass(frozen=True, slots=True)
class RotationWindow:
    """How long the successor waits for its first use, and the old token lives on after it; None: as long as usual."""

    overlap: int | None
    grace: int

    def overlap_of(self, old: TokenRecord, now: int) -> int:
        """When the overlap ends. Never after the old token, which would leave its holder without any."""
        if old.expires_at is None:
            return now + (DEFAULT_OVERLAP if self.overlap is None else self.overlap)
        left = old.expires_at - now
        if self.overlap is None:
            return now + min(DEFAULT_OVERLAP, left)
        if self.overlap > left:
            raise invalid(
                "overlap", f"overlap must not be longer than the token still lives: until {iso(old.expires_at)}."
            )
        return now + self.overlap


def check_rotation_window(overlap: str | None, grace: str | None) -> RotationWindow:
    wait = None if overlap is None else parse_iso(overlap, "overlap")
    if wait is not None and not SHORTEST <= wait <= LONGEST_OVERLAP:
        raise invalid("overlap", f"overlap must be from PT1M to P{LONGEST_OVERLAP // DAY}D.")
    rest = DEFAULT_GRACE if grace is None else parse_iso(grace, "grace")
    if rest > LONGEST_GRACE:
        raise invalid("grace", f"grace must be from PT0S to P{LONGEST_GRACE // DAY}D.")
    return RotationWindow(wait, rest)


def check_rotates(old: TokenRecord, before: TokenRecord | None, now: int) -> None:
    """Raise unless the token may be replaced. The one `before`, which it replaced itself, must have ended: there are
    never more than two.
    """
    if old.revoked_at is not None:
        raise Fault(Reason.ALREADY_REVOKED, "The token was revoked.", revokedAt=old.revoked_at)
    if old.expires_at is not None and old.expires_at <= now:
        raise Fault(Reason.NOT_LIVE, f"The token expired at {iso(old.expires_at)}; create a new one.")
    if old.grace is not None:
        raise Fault(Reason.NOT_LIVE, "The token is itself a successor that was never used; use it first.")
    if before is not None and before.is_live(now):
        end = None if before.expires_at is None else iso(before.expires_at)
        raise Fault(
            Reason.ROTATION_UNDER_WAY,
            f"The token that it replaced lives until {end}; rotate it after that.",
            until=before.expires_at,
        )
    if old.replaced_at is not None:
        raise Fault(
            Reason.ALREADY_REPLACED,
            "The token was replaced, and its successor is in use.",
            replacedBy=old.replaced_by,
        )
