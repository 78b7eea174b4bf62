"""The audit log: read with View Audit Log, kept for as long as a setting says, pruned in small batches."""

import asyncio
from collections.abc import Callable

from watchword.domain.actors import Caller
from watchword.domain.errors import Fault
from watchword.domain.events import Cursor, EventSearch, KeptEvent
from watchword.domain.lifetimes import DAY
from watchword.domain.policies import Privilege
from watchword.domain.ports import Clock, EventStore
from watchword.service.authority import Authority
from watchword.service.refusals import Refusals

FLUSH_SECONDS = 1.0
PRUNE_SECONDS = 600.0
BATCH = 500
BATCH_PAUSE = 0.05


class Audit:
    def __init__(
        self, store: EventStore, authority: Authority, refusals: Refusals, clock: Clock, keep_days: int
    ) -> None:
        self._store = store
        self._authority = authority
        self._refusals = refusals
        self._clock = clock
        self._keep = keep_days * DAY

    async def list(
        self, caller: Caller, wanted: Callable[[], EventSearch], seconds: float
    ) -> tuple[EventSearch, tuple[KeptEvent, ...], Cursor | None]:
        """A page, newest first, and where the next one begins; None where there is none."""
        (await self._authority.grant(caller)).require(Privilege.VIEW_AUDIT_LOG)
        search = wanted()
        await self._refusals.flush()
        events, more = await self._store.events(search, seconds)
        return search, events, Cursor(events[-1].at, events[-1].seq) if more else None

    async def prune(self) -> int:
        """Remove what is older than is kept, in batches with pauses, so that no other write waits long."""
        pruned = 0
        while True:
            batch = await self._store.prune_events(self._clock() - self._keep, BATCH)
            pruned += batch
            if batch < BATCH:
                return pruned
            await asyncio.sleep(BATCH_PAUSE)

    async def run_flushes(self) -> None:
        """Write refusals, again and again, until cancelled."""
        while True:
            await asyncio.sleep(FLUSH_SECONDS)
            await self._refusals.flush()

    async def run_prunes(self) -> None:
        """Prune old events, again and again, until cancelled."""
        while True:
            try:
                await self.prune()
            except Fault as fault:
                if not fault.is_outage:
                    raise
            await asyncio.sleep(PRUNE_SECONDS)
