"""Refusals: denials and failed authentications become events, but nobody can fill the disk with them.

Within an hour the first of one origin are kept one by one; then only each time their number has doubled, and once more
at the hour's end, with how many were left out. An origin is the actor of a denial, and the peer of a failed
authentication (an IPv6 network counts as one). All origins together have a bound too; what is beyond it is counted as
one. Denials, tokens that were real once, and credentials that nobody knows are bounded apart from each other.

The first refusal of a token that was real once is always kept, whatever else is refused meanwhile: once a day for each
token and reason. Which tokens had theirs is remembered in memory, as far as there is room; the store, which has the
events, keeps no second one that day. So what a process forgot costs a look-up, and no event is missing.

They are gathered in memory and written apart from the request: a crash loses at most the last second of them.
"""

import asyncio
import ipaddress
from collections import OrderedDict
from collections.abc import Iterator
from dataclasses import dataclass, field, replace

from watchword.domain.actors import Caller
from watchword.domain.errors import Fault, Reason
from watchword.domain.events import Action, KeptEvent
from watchword.domain.lifetimes import DAY
from watchword.domain.ports import Clock, EventStore
from watchword.domain.urns import UNKNOWN_ACTOR

WINDOW = 3_600_000
ONE_BY_ONE = 20
KEPT_IN_ALL = 500
ORIGINS = 500
GATHERED = 10_000
TOKENS = 10_000
"""Whose first refusal is remembered. Each is a few hundred bytes."""
IPV6_NETWORK = 64
# What a holder of nothing, or of something that is no longer good, is told. Who brought no credential did not fail.
FAILURES = frozenset({Reason.INVALID_TOKEN, Reason.TOKEN_EXPIRED, Reason.TOKEN_REVOKED, Reason.SESSION_OVER})
EVERYBODY_ELSE = "many"


@dataclass(slots=True)
class _Origin:
    last: KeptEvent
    seen: int = 0
    left_out: int = 0

    def told(self) -> KeptEvent:
        """The last one, with how many were left out since the one told before."""
        event, left_out = self.last, self.left_out
        self.left_out = 0
        return replace(event, detail={**event.detail, "leftOut": left_out}) if left_out else event


@dataclass(slots=True)
class _Ledger:
    """The refusals of one kind within one hour."""

    kept: int = 0
    origins: dict[str, _Origin] = field(default_factory=dict)

    def note(self, key: str, event: KeptEvent) -> KeptEvent | None:
        """The event to keep, if it is one to be kept."""
        if key not in self.origins and len(self.origins) >= ORIGINS:
            key = EVERYBODY_ELSE
            event = replace(event, actor=UNKNOWN_ACTOR, bearer_id=None, peer=EVERYBODY_ELSE)
        origin = self.origins.setdefault(key, _Origin(event))
        origin.last = event
        origin.seen += 1
        if not _is_told(origin.seen) or self.kept >= KEPT_IN_ALL:
            origin.left_out += 1
            return None
        self.kept += 1
        return origin.told()

    def end(self) -> Iterator[KeptEvent]:
        """What is still to be told of this hour."""
        for origin in self.origins.values():
            if origin.left_out:
                origin.left_out -= 1  # the one it is told with
                yield origin.told()


class _Firsts:
    """The first refusals of the day, of each token and reason: those to be written, and those that were noted."""

    def __init__(self) -> None:
        self._noted: OrderedDict[tuple[str, str], int] = OrderedDict()
        self._gathered: list[KeptEvent] = []

    def note(self, event: KeptEvent) -> bool:
        """Whether it is a first one, and is gathered."""
        key = _of(event)
        if self._noted.get(key, 0) > event.at - DAY or len(self._gathered) >= GATHERED:
            return False
        self._noted[key] = event.at
        self._noted.move_to_end(key)
        if len(self._noted) > TOKENS:
            self._noted.popitem(last=False)
        self._gathered.append(event)
        return True

    def take(self) -> list[KeptEvent]:
        taken, self._gathered = self._gathered, []
        return taken

    def give_back(self, unwritten: list[KeptEvent]) -> None:
        """What finds no room is not noted: the next one is a first again."""
        together = unwritten + self._gathered
        self._gathered = together[:GATHERED]
        for event in together[GATHERED:]:
            self._noted.pop(_of(event), None)


class Refusals:
    def __init__(self, store: EventStore, clock: Clock) -> None:
        self._store = store
        self._clock = clock
        self._window = 0
        self._gathered: list[KeptEvent] = []
        self._firsts = _Firsts()
        self._flushing = asyncio.Lock()
        self._denials, self._once_real, self._unknown = _Ledger(), _Ledger(), _Ledger()

    def denied(self, caller: Caller, asked: str, fault: Fault) -> None:
        """A caller was refused for want of a privilege."""
        event = KeptEvent(
            at=self._clock(),
            actor=caller.actor,
            bearer_id=caller.bearer_id,
            action=Action.ACCESS_DENIED.value,
            target=asked,
            peer=caller.peer,
            request_id=caller.request_id,
            detail={"privilege": fault.details.get("privilege")},
        )
        self._turn(event.at)
        self._keep(self._denials.note(caller.actor, event))

    def failed(self, peer: str, request_id: str, address: str, fault: Fault) -> None:
        """Somebody brought a credential that is not accepted."""
        if fault.reason not in FAILURES:
            return
        event = KeptEvent(
            at=self._clock(),
            actor=fault.subject.actor if fault.subject else UNKNOWN_ACTOR,
            bearer_id=fault.subject.token_id if fault.subject else None,
            action=Action.AUTHENTICATION_FAILED.value,
            target=address,
            peer=peer,
            request_id=request_id,
            detail={"reason": fault.reason.word} | _because(fault),
        )
        self._turn(event.at)
        if event.bearer_id is not None and self._firsts.note(event):
            return
        ledger = self._once_real if fault.subject else self._unknown
        self._keep(ledger.note(network(peer), event))

    async def flush(self) -> None:
        """Write what was gathered; what another call is just writing is written when this returns. What cannot be
        written now is tried again, as far as there is room for it.
        """
        async with self._flushing:
            self._turn(self._clock())
            events, self._gathered = self._gathered, []
            firsts = self._firsts.take()
            if not events and not firsts:
                return
            try:
                await self._store.keep_events(events, firsts, DAY)
            except Exception as error:
                self._gathered = (events + self._gathered)[:GATHERED]
                self._firsts.give_back(firsts)
                if not (isinstance(error, Fault) and error.is_outage):
                    raise

    async def close(self) -> None:
        """The service stops: nothing stays untold."""
        self._end_window()
        await self.flush()

    def _keep(self, event: KeptEvent | None) -> None:
        if event is not None and len(self._gathered) < GATHERED:
            self._gathered.append(event)

    def _turn(self, now: int) -> None:
        if now // WINDOW != self._window:
            self._end_window()
            self._window = now // WINDOW

    def _end_window(self) -> None:
        for ledger in (self._denials, self._once_real, self._unknown):
            for event in ledger.end():
                self._keep(event)
        self._denials, self._once_real, self._unknown = _Ledger(), _Ledger(), _Ledger()


def _of(event: KeptEvent) -> tuple[str, str]:
    return str(event.bearer_id), str(event.detail)


def _because(fault: Fault) -> dict[str, str]:
    """What its holder was not told."""
    return {"because": fault.subject.because} if fault.subject and fault.subject.because else {}


def _is_told(seen: int) -> bool:
    return seen <= ONE_BY_ONE or (seen % ONE_BY_ONE == 0 and (seen // ONE_BY_ONE).bit_count() == 1)


def network(peer: str) -> str:
    """What counts as one origin. The machine itself has millions of loopback addresses."""
    try:
        address = ipaddress.ip_address(peer)
    except ValueError:
        return peer
    if address.is_loopback:
        return "loopback"
    if address.version == 4 or address.ipv4_mapped is not None:
        return peer
    return str(ipaddress.ip_network((int(address), IPV6_NETWORK), strict=False))
