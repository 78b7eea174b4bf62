"""Waits for new events, and sends them on."""

import asyncio
import time
from collections.abc import Callable
from contextlib import suppress

from watchword.basics.errors import Fault
from watchword.journal.events import CursorLost, EventSink
from watchword.journal.store import EventStore

POLL_SECONDS = 0.5
CURSOR = "stream"
LEASE_MILLIS = 5_000
RENEW_SECONDS = 2.0
BATCH = 500


class EventFeed:
    """Any number of readers wait for new events; one poll of the store serves them all, while there are any."""

    def __init__(self, store: EventStore) -> None:
        self._store = store
        self._waiting: dict[asyncio.Future[None], int] = {}
        self._polling: asyncio.Task[None] | None = None

    async def wait(self, after: int, seconds: float) -> None:
        """Wait until there is an event after this number, or the time is over."""
        woken = asyncio.get_running_loop().create_future()
        self._waiting[woken] = after
        if self._polling is None or self._polling.done():
            self._polling = asyncio.ensure_future(self._poll())
        try:
            with suppress(TimeoutError):
                await asyncio.wait_for(woken, seconds)
        finally:
            del self._waiting[woken]

    def close(self) -> None:
        if self._polling is not None:
            self._polling.cancel()

    async def _poll(self) -> None:
        while self._waiting:
            await asyncio.sleep(POLL_SECONDS)
            with suppress(Fault):
                last = await self._store.last_event()
                for after in {after for after in self._waiting.values() if after < last}:
                    # There may be none yet: a transaction that still runs may have the next number.
                    if await self._store.events_after(after, 1):
                        self._wake(after)

    def _wake(self, after: int) -> None:
        for woken, waits_after in self._waiting.items():
            if waits_after == after and not woken.done():
                woken.set_result(None)


class EventStream:
    """Sends each event at least once, in order. The lease decides which process of which instance sends. A cursor in
    the store says how far it has come.
    """

    def __init__(
        self, store: EventStore, feed: EventFeed, sink: EventSink, holder: str, count: Callable[[int], None]
    ) -> None:
        """`count` is called with the number of events sent."""
        self._store = store
        self._feed = feed
        self._sink = sink
        self._holder = holder
        self._count = count

    async def run(self) -> None:
        """Raises OSError if the target takes nothing: the cursor stays, and another instance may try."""
        try:
            while True:
                try:
                    await self._send_for_a_while()
                except CursorLost:
                    pass
                except Fault as fault:
                    if not fault.is_outage:
                        raise
                    await asyncio.sleep(RENEW_SECONDS)
        finally:
            self._sink.close()
            with suppress(Fault):
                await self._store.release_cursor(CURSOR, self._holder)

    async def _send_for_a_while(self) -> None:
        seq = await self._store.lease_cursor(CURSOR, self._holder, LEASE_MILLIS)
        if seq is None:
            await asyncio.sleep(RENEW_SECONDS)
            return
        until = time.monotonic() + RENEW_SECONDS
        while (left := until - time.monotonic()) > 0:
            step = asyncio.ensure_future(self._send(seq))
            try:
                sent = await asyncio.shield(step)
            finally:
                # A cancelled step ends first, so that what was written is not written again.
                if not step.done():
                    await asyncio.wait([step])
            if sent == seq:
                await self._feed.wait(seq, left)
            seq = sent

    async def _send(self, seq: int) -> int:
        """Send the next events; returns the number of the last one sent."""
        events = await self._store.events_after(seq, BATCH)
        if not events:
            return seq
        writing = asyncio.ensure_future(asyncio.to_thread(self._sink.write, events))
        while not (await asyncio.wait([writing], timeout=RENEW_SECONDS))[0]:
            with suppress(Fault):  # a slow target must not cost the lease: the same events would be sent for ever
                await self._store.lease_cursor(CURSOR, self._holder, LEASE_MILLIS)
        await writing
        await self._store.move_cursor(CURSOR, self._holder, events[-1].seq)
        self._count(len(events))
        return events[-1].seq
