"""The audit log: who may read which events."""

from collections.abc import Awaitable
from dataclasses import dataclass

from watchword.audit.jobs import EventFeed
from watchword.authority.callers import Caller, Grant
from watchword.authority.privileges import Privilege
from watchword.authority.rejections_service import RejectionLog
from watchword.authority.service import Authority
from watchword.journal.events import Cursor, EventCounts, EventSearch, KeptEvent, event_counts
from watchword.journal.store import EventStore


@dataclass(frozen=True, slots=True)
class AuditLog:
    _store: EventStore
    _authority: Authority
    _rejections: RejectionLog
    _feed: EventFeed

    def authorize(self, caller: Caller) -> Awaitable[Grant]:
        return self._authority.authorize(caller, Privilege.VIEW_AUDIT_LOG)

    async def list(
        self, grant: Grant, search: EventSearch, seconds: float
    ) -> tuple[tuple[KeptEvent, ...], Cursor | None]:
        """A page, newest first, and the cursor of the next page if there is one."""
        grant.expect(Privilege.VIEW_AUDIT_LOG)
        await self._rejections.flush()
        events, more = await self._store.events(search, seconds)
        return events, Cursor(events[-1].at, events[-1].seq) if more else None

    async def list_after(self, grant: Grant, seq: int, most: int) -> tuple[KeptEvent, ...]:
        """The next events after this number, oldest first."""
        grant.expect(Privilege.VIEW_AUDIT_LOG)
        await self._rejections.flush()
        return await self._store.events_after(seq, most)

    async def last(self, grant: Grant) -> int:
        """The number of the newest event."""
        grant.expect(Privilege.VIEW_AUDIT_LOG)
        return await self._store.last_event()

    async def wait(self, grant: Grant, seq: int, seconds: float) -> None:
        """Wait until there may be an event after this number, or the time is over."""
        grant.expect(Privilege.VIEW_AUDIT_LOG)
        await self._feed.wait(seq, seconds)

    async def count_by_time(self, grant: Grant, search: EventSearch, step: int, seconds: float) -> EventCounts:
        """The newest events that match, at most `count` of the search, by time and kind."""
        grant.expect(Privilege.VIEW_AUDIT_LOG)
        await self._rejections.flush()
        return event_counts(search, await self._store.count_events_by_time(search, step, seconds))

    async def count(self, grant: Grant, search: EventSearch, most: int, seconds: float) -> int:
        """The events on all pages of the search, counted up to `most`."""
        grant.expect(Privilege.VIEW_AUDIT_LOG)
        return await self._store.count_events(search, most, seconds)
