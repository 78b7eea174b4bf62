"""What a token says of itself, which is proven only where it is sent: enough to know when to renew it."""

import json
import time
from base64 import urlsafe_b64decode
from dataclasses import dataclass

from watchword.domain.secret import Secret


@dataclass(frozen=True, slots=True)
class Life:
    """From when to when, in seconds since 1970."""

    begins: int
    ends: int | None

    def left(self) -> float | None:
        """Seconds; None: it never ends."""
        return None if self.ends is None else self.ends - time.time()

    def spent(self) -> float:
        """Which part of it is over: 0.0 for one that never ends, 1.0 or more for one that has."""
        if self.ends is None:
            return 0.0
        return (time.time() - self.begins) / max(1, self.ends - self.begins)


def life_of(token: Secret[str]) -> Life | None:
    """None for what is no token of Watchword's form."""
    try:
        _, claims, _ = token.reveal().split(".")
        told = json.loads(urlsafe_b64decode(claims + "=" * (-len(claims) % 4)))
        begins, ends = told["iat"], told.get("exp")
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError):
        return None
    return Life(begins, ends) if isinstance(begins, int) and isinstance(ends, int | None) else None
