"""Background loops: one that ends by a defect is logged, started again after a pause, and reported by `/health/ready`.

A loop runs until it is cancelled and handles the outages of the store itself. Anything else that ends it is a defect.
"""

import asyncio
import time
from collections.abc import Awaitable, Callable

FIRST_PAUSE, LONGEST_PAUSE = 1.0, 60.0
REPORTED_SECONDS = 900.0
"""How long a defect is reported: the slowest loop tries again within this time."""

Tell = Callable[[str, str], None]
"""Told the name of a loop and what ended it, for the log."""


class Loops:
    def __init__(self, tell: Tell) -> None:
        self._tell = tell
        self._failed_at: dict[str, float] = {}

    @property
    def failing(self) -> list[str]:
        """The names of those that failed a short while ago."""
        since = time.monotonic() - REPORTED_SECONDS
        return sorted(name for name, at in self._failed_at.items() if at > since)

    async def keep(self, name: str, loop: Callable[[], Awaitable[None]]) -> None:
        """Run the loop until cancelled."""
        pause = FIRST_PAUSE
        while True:
            began = time.monotonic()
            try:
                await loop()
            except Exception as defect:  # noqa: BLE001 - said, and the loop goes on
                why = f"{type(defect).__name__}: {getattr(defect, 'why', None) or defect}"
            else:
                why = "it ended by itself"
            self._tell(name, why)
            self._failed_at[name] = time.monotonic()
            if time.monotonic() - began > LONGEST_PAUSE:
                pause = FIRST_PAUSE
            await asyncio.sleep(pause)
            pause = min(2 * pause, LONGEST_PAUSE)
