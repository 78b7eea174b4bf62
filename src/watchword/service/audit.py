"""The audit log: reading events, waiting for new ones, sending them on, and recording rejected requests."""

import asyncio
import time
from collections import OrderedDict, defaultdict
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field, replace

from watchword.domain.actors import Caller, Grant
from watchword.domain.errors import Fault, Reason
from watchword.domain.events import (
    Action,
    Cursor,
    CursorLost,
    EventCounts,
    EventSearch,
    EventSink,
    KeptEvent,
    event_counts,
)
from watchword.domain.lifetimes import DAY, HOUR
from watchword.domain.names import UNKNOWN_ACTOR
from watchword.domain.networks import origin_of
from watchword.domain.policies import Privilege
from watchword.domain.ports import Clock, EventStore
from watchword.service.authority import Authority

FLUSH_SECONDS = 1.0
RECORDED_EACH = 20
RECORDED_IN_ALL = 500
MAX_ORIGINS = 500
MAX_COLLECTED = 10_000
MAX_TOKENS = 10_000  # tokens whose first rejection is remembered, at a few hundred bytes each
REJECTED_CREDENTIALS = frozenset(
    {
        *(Reason.INVALID_TOKEN, Reason.TOKEN_EXPIRED, Reason.TOKEN_REVOKED, Reason.SESSION_OVER),
        *(Reason.INVALID_SIGN_IN, Reason.SIGN_IN_REFUSED),
        *(Reason.DEVICE_NOT_FOUND, Reason.INVALID_GRANT),
    }
)
"""A request without a credential is not among them."""
DENIALS = {Reason.MISSING_PRIVILEGE: "privilege", Reason.MISSING_SCOPE: "scope"}
"""The reasons of recorded denials, and the detail that names what was missing."""
BEYOND_SCOPES = "token_scopes"
"""The `cause` of a denial by the scopes of the caller's token, whatever its actor holds."""
OTHER_ORIGINS = "many"


@dataclass(slots=True)
class _Origin:
    last: KeptEvent
    seen: int = 0
    left_out: int = 0

    def event(self) -> KeptEvent:
        """The last event, with the number left out since the one recorded before."""
        event, left_out = self.last, self.left_out
        self.left_out = 0
        return replace(event, detail={**event.detail, "leftOut": left_out}) if left_out else event


@dataclass(slots=True)
class _RejectionWindow:
    """Rejections of one kind within one hour."""

    recorded: int = 0
    origins: dict[str, _Origin] = field(default_factory=dict)

    def add(self, key: str, event: KeptEvent) -> KeptEvent | None:
        """The event to record; None: it is only counted."""
        if key not in self.origins and len(self.origins) >= MAX_ORIGINS:
            key = OTHER_ORIGINS
            event = replace(event, actor=UNKNOWN_ACTOR, bearer_id=None, peer=OTHER_ORIGINS)
        origin = self.origins.setdefault(key, _Origin(event))
        origin.last = event
        origin.seen += 1
        if not _is_recorded(origin.seen) or self.recorded >= RECORDED_IN_ALL:
            origin.left_out += 1
            return None
        self.recorded += 1
        return origin.event()

    def close(self) -> Iterator[KeptEvent]:
        """The events that report what was left out since."""
        for origin in self.origins.values():
            if origin.left_out:
                origin.left_out -= 1  # the event itself
                yield origin.event()


class _FirstRejections:
    """The first rejection of each token and reason in a day."""

    def __init__(self) -> None:
        self._seen: OrderedDict[tuple[str, str], int] = OrderedDict()
        self.collected: list[KeptEvent] = []

    def add(self, event: KeptEvent) -> bool:
        """Whether it is the first, and was collected."""
        key = _token_and_reason(event)
        if self._seen.get(key, 0) > event.at - DAY or len(self.collected) >= MAX_COLLECTED:
            return False
        self._seen[key] = event.at
        self._seen.move_to_end(key)
        if len(self._seen) > MAX_TOKENS:
            self._seen.popitem(last=False)
        self.collected.append(event)
        return True

    def put_back(self, unwritten: list[KeptEvent]) -> None:
        """Forgets events without room, so that the next one counts as first again."""
        together = unwritten + self.collected
        self.collected = together[:MAX_COLLECTED]
        for event in together[MAX_COLLECTED:]:
            self._seen.pop(_token_and_reason(event), None)


class RejectionLog:
    """Records denials and failed authentications as events, limited so that no client can fill the disk.

    Within an hour the first rejections of an origin are recorded one by one, later ones each time their number has
    doubled, and once at the end of the hour, with the number left out. An origin is the actor of a denial, and the peer
    of a failed authentication (an IPv6 network counts as one peer). All origins together have a limit too; beyond it
    they count as one. Denials, ended tokens and unknown credentials have separate limits.

    The first rejection of an ended token is always recorded, once a day for each token and reason. Memory holds which
    tokens had theirs, as far as there is room; the store, which has the events, does not record a second one that day.

    Events are collected in memory and written in the background: a crash loses at most the last second.
    """

    def __init__(self, store: EventStore, clock: Clock) -> None:
        self._store = store
        self._clock = clock
        self._window = 0
        self._collected: list[KeptEvent] = []
        self._firsts = _FirstRejections()
        self._flushing = asyncio.Lock()
        self._windows: defaultdict[str, _RejectionWindow] = defaultdict(_RejectionWindow)

    def record_denial(self, caller: Caller, operation: str, fault: Fault) -> None:
        now, action, by = self._start_window(), Action.ACCESS_DENIED.value, caller
        missing = DENIALS[fault.reason]
        name = fault.details.get(missing)
        detail = {missing: name}
        if name and not caller.limits.allow_named(name):
            detail["cause"] = BEYOND_SCOPES
        event = KeptEvent(now, by.actor, by.bearer_id, action, operation, by.peer, by.request_id, detail)
        self._collect(self._windows["denials"].add(caller.actor, event))

    def record_failed_authentication(self, peer: str, request_id: str, address: str, fault: Fault) -> None:
        if fault.reason not in REJECTED_CREDENTIALS:
            return
        now, action = self._start_window(), Action.AUTHENTICATION_FAILED.value
        actor, token_id, cause = fault.subject or (UNKNOWN_ACTOR, None, None)
        detail = {"reason": fault.reason.word} | ({"cause": cause} if cause else {})
        event = KeptEvent(now, actor, token_id, action, address, peer, request_id, detail)
        if token_id is None or not self._firsts.add(event):
            kind = "ended" if fault.subject else "unknown"
            self._collect(self._windows[kind].add(origin_of(peer), event))

    @contextmanager
    def recording_denial(self, caller: Caller, operation: str) -> Iterator[None]:
        """Records a denial that is raised within."""
        try:
            yield
        except Fault as fault:
            if fault.reason in DENIALS:
                self.record_denial(caller, operation, fault)
            raise

    async def flush(self) -> None:
        """Write what was collected, including by a concurrent call. What cannot be written now is kept for later, as
        far as there is room.
        """
        async with self._flushing:
            self._start_window()
            events, self._collected = self._collected, []
            firsts, self._firsts.collected = self._firsts.collected, []
            if not events and not firsts:
                return
            try:
                await self._store.add_events(events, firsts, DAY)
            except Exception as error:
                self._collected = (events + self._collected)[:MAX_COLLECTED]
                self._firsts.put_back(firsts)
                if not (isinstance(error, Fault) and error.is_outage):
                    raise

    async def close(self) -> None:
        self._close_window()
        await self.flush()

    async def run(self) -> None:
        while True:
            await asyncio.sleep(FLUSH_SECONDS)
            await self.flush()

    def _collect(self, event: KeptEvent | None) -> None:
        if event is not None and len(self._collected) < MAX_COLLECTED:
            self._collected.append(event)

    def _start_window(self) -> int:
        """The time. Closes the window of an earlier hour."""
        now = self._clock()
        if now // HOUR != self._window:
            self._close_window()
            self._window = now // HOUR
        return now

    def _close_window(self) -> None:
        for window in self._windows.values():
            for event in window.close():
                self._collect(event)
        self._windows.clear()


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

    def __init__(self, store: EventStore, feed: EventFeed, sink: EventSink, holder: str) -> None:
        self._store = store
        self._feed = feed
        self._sink = sink
        self._holder = holder
        self.count: Callable[[int], None] = lambda _: None
        """Called with the number of events sent."""

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
        self.count(len(events))
        return events[-1].seq


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


def _token_and_reason(event: KeptEvent) -> tuple[str, str]:
    return str(event.bearer_id), str(event.detail)


def _is_recorded(seen: int) -> bool:
    return seen <= RECORDED_EACH or (seen % RECORDED_EACH == 0 and (seen // RECORDED_EACH).bit_count() == 1)
