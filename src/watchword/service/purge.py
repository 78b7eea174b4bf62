"""The purge: tokens that have long been dead leave the store, a few at a time.

A verification is never to notice: batches are small, and after each one the purge rests for many times as long as it
took. Any number of processes may purge at once.
"""

import asyncio
import random
from collections.abc import Awaitable, Callable

from watchword.domain.errors import Fault
from watchword.domain.lifetimes import DAY
from watchword.domain.ports import Clock, Store

PURGE_SECONDS = 600.0
BATCH = 500
RESTS = 50
SHORTEST_REST, LONGEST_REST = 0.05, 5.0


class Purge:
    def __init__(self, store: Store, clock: Clock, keep_days: int, jitter: Callable[[], float] = random.random) -> None:
        self._store = store
        self._clock = clock
        self._keep = keep_days * DAY
        self._jitter = jitter

    async def run(self) -> None:
        """Purge again and again, until cancelled. Several processes do not keep step."""
        while True:
            try:
                await self.purge()
            except Fault as fault:
                if not fault.is_outage:
                    raise
            await asyncio.sleep(PURGE_SECONDS * (0.5 + self._jitter()))

    async def purge(self) -> int:
        """Remove what has been dead for longer than is kept; returns how many."""
        await self._batches(self._store.purge_idempotency_records)
        await self._batches(self._store.purge_sessions)
        return await self._batches(lambda most: self._store.purge_tokens(self._clock() - self._keep, most))

    async def _batches(self, remove: Callable[[int], Awaitable[int]]) -> int:
        time = asyncio.get_running_loop().time
        removed = 0
        while True:
            began = time()
            batch = await remove(BATCH)
            removed += batch
            if batch < BATCH:
                return removed
            await asyncio.sleep(min(max(SHORTEST_REST, RESTS * (time() - began)), LONGEST_REST))
