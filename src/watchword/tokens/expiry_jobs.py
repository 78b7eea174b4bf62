"""Notices before tokens expire."""

import asyncio
import random
import time
from collections.abc import Sequence
from contextlib import suppress

from watchword.basics.background import outages_suppressed
from watchword.basics.errors import Fault
from watchword.basics.times import DAY
from watchword.tokens.store import ExpiryStore

LEASE = "expiry"
PASS_SECONDS = 300.0
LEASE_MILLIS = 300_000
"""Between two passes the lease stays, so that other processes do not look too."""
PAGE = 1_000
BATCH = 200
RESTS = 30
"""After each step it rests this many times the duration of the step, so that verifications are not delayed."""
LONGEST_REST = 2.0
FIRST_SECONDS = 3.0
"""So that a start reads little, however many tokens expire soon."""


class ExpiryNotices:
    """Writes the notices as events, in whichever process has the lease."""

    def __init__(self, store: ExpiryStore, thresholds: Sequence[int], holder: str, rests: int = RESTS) -> None:
        self._store = store
        self._thresholds = thresholds
        self._holder = holder
        self._rests = rests

    async def run(self) -> None:
        """Look through the tokens that expire soon, again and again, until cancelled."""
        await asyncio.sleep(FIRST_SECONDS)
        try:
            while True:
                with outages_suppressed():
                    await self.run_once()
                await asyncio.sleep(PASS_SECONDS * (0.5 + random.random() / 3))  # noqa: S311 - no secret
        finally:
            with suppress(Fault):
                await self._store.release_cursor(LEASE, self._holder)

    async def run_once(self) -> int:
        """One pass; returns how many notices were written. It ends where another process has the lease."""
        written = 0
        after = None
        while self._thresholds and await self._store.lease_cursor(LEASE, self._holder, LEASE_MILLIS) is not None:
            began = time.monotonic()
            page = await self._store.expiring_page(after, max(self._thresholds) * DAY, PAGE)
            due = [token.id for token in page.tokens if token.due(self._thresholds, page.now) is not None]
            await self.rest(began)
            for start in range(0, len(due), BATCH):
                began = time.monotonic()
                written += await self._store.note_expiring(due[start : start + BATCH], self._thresholds)
                await self.rest(began)
            after = page.after
            if after is None:
                break
        return written

    async def rest(self, began: float) -> None:
        await asyncio.sleep(min(self._rests * (time.monotonic() - began), LONGEST_REST))
