"""Rotation: a successor replaces a token, and at least one of the two always works.

Until the successor's first use, the old token keeps its expiry and the successor expires with the overlap, so an
undelivered successor expires by itself. The first use is committed before it is answered: the successor gets its full
lifetime, and the old token expires after the grace period.
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
    """How long the successor may stay unused, and the grace period of the old token. None: the default."""

    overlap: int | None
    grace: int

    def overlap_of(self, old: TokenRecord, now: int) -> int:
        """The end of the overlap, never after the expiry of the old token."""
        if old.expires_at is None:
            return now + (DEFAULT_OVERLAP if self.overlap is None else self.overlap)
        left = old.expires_at - now
        if self.overlap is None:
            return now + min(DEFAULT_OVERLAP, left)
        if self.overlap > left:
            raise invalid("overlap", f"overlap must end before the token expires, at {iso(old.expires_at)}.")
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
    """Raise unless the token may be rotated. Its predecessor `before` must have expired, so that at most two tokens
    are valid.
    """
    if old.revoked_at is not None:
        raise Fault(Reason.ALREADY_REVOKED, "The token was revoked.", revokedAt=old.revoked_at)
    if old.expires_at is not None and old.expires_at <= now:
        raise Fault(Reason.NOT_LIVE, f"The token expired at {iso(old.expires_at)}. Create a new one.")
    if old.grace is not None:
        raise Fault(Reason.NOT_LIVE, "The token is a successor that was never used. Use it before you rotate it.")
    if before is not None and before.is_live(now):
        end = None if before.expires_at is None else iso(before.expires_at)
        raise Fault(
            Reason.ROTATION_UNDER_WAY,
            f"The previous token stays valid until {end} (grace period). Rotate after that.",
            until=before.expires_at,
        )
    if old.replaced_at is not None:
        raise Fault(
            Reason.ALREADY_REPLACED, "The token was rotated and its successor is in use.", replacedBy=old.replaced_by
        )
