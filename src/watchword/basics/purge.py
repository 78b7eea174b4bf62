"""Purging old rows in the background."""

import asyncio
import random
from collections.abc import Awaitable, Callable, Collection, Mapping

from watchword.basics.background import RESTS, BackgroundTasks, in_batches
from watchword.basics.errors import Fault

PURGE_SECONDS = 600.0
PURGE_AGAIN_SECONDS = 30.0
PurgeRows = Callable[[int], Awaitable[int]]
"""Deletes at most so many rows; returns how many."""


class Purge:
    """Deletes old rows of each kind by its own function."""

    def __init__(self, purges: Mapping[str, PurgeRows], *, busy: Collection[str] = ()) -> None:
        """`busy`: kinds of which there may be more new rows than long rests allow to delete."""
        self._rests = {kind: 1 if kind in busy else RESTS for kind in purges}
        self._purges = purges
        self._failures: dict[str, int] = {}
        """How often each part failed in a row."""

    async def run(self, tasks: BackgroundTasks) -> None:
        """Purge until cancelled. Jitter keeps processes out of step."""
        while True:
            # A failure may last for a moment only: the next pass, which comes soon, tells.
            seconds = PURGE_SECONDS if await self.purge(tasks) else PURGE_AGAIN_SECONDS
            await asyncio.sleep(seconds * (0.5 + random.random()))  # noqa: S311 - no secret

    async def purge(self, tasks: BackgroundTasks) -> bool:
        """Purge each kind of data; one that fails does not stop the others. Returns whether none failed for the first
        time. An outage is reported if it lasts until the next pass.
        """
        fresh = False
        for kind, purge in self._purges.items():
            name = f"purge of {kind}"
            try:
                await in_batches(purge, self._rests[kind])
            except Exception as error:  # noqa: BLE001 - reported, and tried again
                self._failures[kind] = number = self._failures.get(kind, 0) + 1
                fresh = fresh or number == 1
                if number > 1 or not (isinstance(error, Fault) and error.is_outage):
                    tasks.failed(name, error)
            else:
                if self._failures.pop(kind, 0):
                    tasks.succeeded(name)
        return not fresh
