"""Uses: when each token was last seen, gathered in memory and written apart from any request.

A crash loses at most the last interval of it, and nothing else.
"""

import asyncio
from contextlib import suppress

from watchword.domain.errors import Fault
from watchword.domain.ports import TokenStore

INTERVAL = 30.0
MAX_GATHERED = 100_000
BATCH = 500


class Uses:
    def __init__(self, store: TokenStore, interval: float = INTERVAL) -> None:
        self._store = store
        self._interval = interval
        self._seen: dict[str, int] = {}

    def note(self, token_id: str, now: int) -> None:
        if len(self._seen) < MAX_GATHERED or token_id in self._seen:
            self._seen[token_id] = now

    async def run(self) -> None:
        """Write what was gathered, again and again, until cancelled."""
        while True:
            await asyncio.sleep(self._interval)
            await self.flush()

    async def flush(self) -> None:
        """In small batches, so that no other write waits long behind them. What cannot be written is dropped."""
        seen, self._seen = list(self._seen.items()), {}
        for start in range(0, len(seen), BATCH):
            with suppress(Fault):
                await self._store.record_uses(dict(seen[start : start + BATCH]))
