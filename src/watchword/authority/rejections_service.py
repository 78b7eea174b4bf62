"""The log of rejected requests: denials and failed authentications become events."""

import asyncio
from collections import Counter, OrderedDict, defaultdict
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace

from watchword.authority.callers import Caller
from watchword.basics.errors import Fault, Reason
from watchword.basics.names import UNKNOWN_ACTOR
from watchword.basics.networks import origin_of
from watchword.basics.times import DAY, HOUR, Clock
from watchword.journal.events import Action, KeptEvent
from watchword.journal.store import EventStore

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
    """Rejections of one kind and origin within one hour."""

    last: KeptEvent
    seen: int = 0
    not_recorded: int = 0

    def event(self) -> KeptEvent:
        """The last event, with the number left out since the one recorded before."""
        left_out, self.not_recorded = self.not_recorded - 1, 0
        return replace(self.last, detail={**self.last.detail, "leftOut": left_out}) if left_out else self.last


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
        self._hour = 0
        self._origins: defaultdict[str, dict[str, _Origin]] = defaultdict(dict)
        self._recorded: Counter[str] = Counter()
        self._collected: list[KeptEvent] = []
        self._firsts: list[KeptEvent] = []
        self._had_first: OrderedDict[tuple[str, str], int] = OrderedDict()
        self._flushing = asyncio.Lock()

    def record_denial(self, caller: Caller, operation: str, fault: Fault) -> None:
        now, action, by = self._start_hour(), Action.ACCESS_DENIED.value, caller
        missing = DENIALS[fault.reason]
        name = fault.details.get(missing)
        detail = {missing: name}
        if name and not caller.limits.allow_named(name):
            detail["cause"] = BEYOND_SCOPES
        event = KeptEvent(now, by.actor, by.bearer_id, action, operation, by.peer, by.request_id, detail)
        self._add("denials", caller.actor, event)

    def record_failed_authentication(self, peer: str, request_id: str, address: str, fault: Fault) -> None:
        if fault.reason not in REJECTED_CREDENTIALS:
            return
        now, action = self._start_hour(), Action.AUTHENTICATION_FAILED.value
        actor, token_id, cause = fault.subject or (UNKNOWN_ACTOR, None, None)
        detail = {"reason": fault.reason.word} | ({"cause": cause} if cause else {})
        event = KeptEvent(now, actor, token_id, action, address, peer, request_id, detail)
        if token_id is None or not self._add_first(event):
            self._add("ended" if fault.subject else "unknown", origin_of(peer), event)

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
            self._start_hour()
            events, self._collected = self._collected, []
            firsts, self._firsts = self._firsts, []
            if not events and not firsts:
                return
            try:
                await self._store.add_events(events, firsts, DAY)
            except Exception as error:
                self._collected = (events + self._collected)[:MAX_COLLECTED]
                self._firsts = firsts + self._firsts
                for event in self._firsts[MAX_COLLECTED:]:  # the next one counts as first again
                    self._had_first.pop(_token_and_reason(event), None)
                del self._firsts[MAX_COLLECTED:]
                if not (isinstance(error, Fault) and error.is_outage):
                    raise

    async def close(self) -> None:
        self._close_hour()
        await self.flush()

    async def run(self) -> None:
        while True:
            await asyncio.sleep(FLUSH_SECONDS)
            await self.flush()

    def _add_first(self, event: KeptEvent) -> bool:
        """Whether it is the first of its token and reason in a day, and was collected."""
        key = _token_and_reason(event)
        if self._had_first.get(key, 0) > event.at - DAY or len(self._firsts) >= MAX_COLLECTED:
            return False
        self._had_first[key] = event.at
        self._had_first.move_to_end(key)
        if len(self._had_first) > MAX_TOKENS:
            self._had_first.popitem(last=False)
        self._firsts.append(event)
        return True

    def _add(self, kind: str, key: str, event: KeptEvent) -> None:
        origins = self._origins[kind]
        if key not in origins and len(origins) >= MAX_ORIGINS:
            key = OTHER_ORIGINS
            event = replace(event, actor=UNKNOWN_ACTOR, bearer_id=None, peer=OTHER_ORIGINS)
        origin = origins.setdefault(key, _Origin(event))
        origin.last = event
        origin.seen += 1
        origin.not_recorded += 1
        if _is_recorded(origin.seen) and self._recorded[kind] < RECORDED_IN_ALL:
            self._recorded[kind] += 1
            self._collect(origin)

    def _collect(self, origin: _Origin) -> None:
        event = origin.event()
        if len(self._collected) < MAX_COLLECTED:
            self._collected.append(event)

    def _start_hour(self) -> int:
        """The time. Closes the window of an earlier hour."""
        now = self._clock()
        if now // HOUR != self._hour:
            self._close_hour()
            self._hour = now // HOUR
        return now

    def _close_hour(self) -> None:
        """Collect the events that report what was left out since."""
        for origins in self._origins.values():
            for origin in origins.values():
                if origin.not_recorded:
                    self._collect(origin)
        self._origins.clear()
        self._recorded.clear()


def _token_and_reason(event: KeptEvent) -> tuple[str, str]:
    return str(event.bearer_id), str(event.detail)


def _is_recorded(seen: int) -> bool:
    return seen <= RECORDED_EACH or (seen % RECORDED_EACH == 0 and (seen // RECORDED_EACH).bit_count() == 1)
