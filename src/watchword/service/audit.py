"""The audit log: reading events, and recording rejected requests."""

import asyncio
from collections import OrderedDict, defaultdict
from collections.abc import Awaitable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field, replace

from watchword.domain.actors import Caller, Grant
from watchword.domain.errors import Fault, Reason
from watchword.domain.events import Action, Cursor, EventCounts, EventSearch, KeptEvent, event_counts
from watchword.domain.lifetimes import DAY, HOUR
from watchword.domain.names import UNKNOWN_ACTOR
from watchword.domain.networks import origin_of
from watchword.domain.policies import Privilege
from watchword.domain.ports import Clock, EventStore
from watchword.service.authority import Authority
from watchword.service.event_stream import EventFeed

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
"""The `because` of a denial by the scopes of the caller's token, whatever its actor holds."""
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
            detail["because"] = BEYOND_SCOPES
        event = KeptEvent(now, by.actor, by.bearer_id, action, operation, by.peer, by.request_id, detail)
        self._collect(self._windows["denials"].add(caller.actor, event))

    def record_failed_authentication(self, peer: str, request_id: str, address: str, fault: Fault) -> None:
        if fault.reason not in REJECTED_CREDENTIALS:
            return
        now, action = self._start_window(), Action.AUTHENTICATION_FAILED.value
        actor, token_id, because = fault.subject or (UNKNOWN_ACTOR, None, None)
        detail = {"reason": fault.reason.word} | ({"because": because} if because else {})
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
        """Until there may be an event after this number, or the time is over."""
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
