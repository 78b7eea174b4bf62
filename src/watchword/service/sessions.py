"""Sessions of the console: a browser signs in with a token, and its session has the rights of the token.

No session is cached: each request reads the session and its token, so a revocation, suspension or sign-out takes effect
at the next request in every process.
"""

from collections import OrderedDict
from collections.abc import Callable
from typing import NamedTuple

from watchword.domain.actors import Caller
from watchword.domain.errors import Fault, Reason
from watchword.domain.lifetimes import HOUR
from watchword.domain.networks import origin_of
from watchword.domain.ports import Clock, SessionStore
from watchword.domain.secret import Secret
from watchword.domain.sessions import MOST_OF_ONE, SIGN_INS_AN_HOUR, Session, session_identifier, signed_in_too_often
from watchword.service.authority import Authority

ADDRESS_BURST = 300
"""Sign-ins from one address: more than one token or actor may have, so that none can use up those of an address."""
ADDRESS_INTERVAL = 1_000  # milliseconds until an address gets one more
MAX_REMEMBERED = 10_000  # addresses, and tokens and actors, whose sign-ins are remembered


class SignInRate:
    """Limits the sign-ins of each key in this process: `burst` at once, and one more every `interval` milliseconds."""

    def __init__(self, clock: Clock, burst: int, interval: int) -> None:
        self._clock = clock
        self._interval = interval
        self._capacity = (burst - 1) * interval
        self._full_at: OrderedDict[str, int] = OrderedDict()  # when the key has its whole burst again

    def take(self, key: str, whose: str) -> None:
        now = self._clock()
        full_at = max(self._full_at.get(key, now), now)
        wait = full_at - now - self._capacity
        if wait > 0:
            raise signed_in_too_often(wait, whose)
        self._set(key, full_at + self._interval)

    def give_back(self, key: str) -> None:
        if key in self._full_at:
            self._full_at[key] -= self._interval

    def block(self, key: str, millis: int) -> None:
        self._set(key, self._clock() + millis + self._capacity)

    def _set(self, key: str, full_at: int) -> None:
        self._full_at[key] = full_at
        self._full_at.move_to_end(key)
        if len(self._full_at) > MAX_REMEMBERED:
            self._full_at.popitem(last=False)


class SessionCaller(NamedTuple):
    """The caller of a session, and when the session ends."""

    caller: Caller
    ends_at: int

    @property
    def actor(self) -> str:
        return self.caller.actor

    @property
    def bearer_id(self) -> str | None:
        return self.caller.bearer_id


class Sessions:
    def __init__(
        self,
        store: SessionStore,
        authority: Authority,
        salt: Secret[bytes],
        clock: Clock,
        hours: int,
        new_id: Callable[[], Secret[str]],
    ) -> None:
        self._store = store
        self._authority = authority
        self._digest = session_identifier(salt)
        self._clock = clock
        self._lifetime = hours * HOUR
        self._new_id = new_id
        self._addresses = SignInRate(clock, ADDRESS_BURST, ADDRESS_INTERVAL)
        self._holders = SignInRate(clock, SIGN_INS_AN_HOUR, HOUR // SIGN_INS_AN_HOUR)

    async def sign_in(self, caller: Caller) -> tuple[Secret[str], Session]:
        """The secret id for the browser, and the session. A sign-in that its token or actor may not have does not count
        for its address, which others share.
        """
        session_id, now = self._new_id(), self._clock()
        end = now + self._lifetime if caller.ends_at is None else min(now + self._lifetime, caller.ends_at)
        session = Session(self._digest(session_id), caller.actor, caller.bearer_id, now, end)
        precondition = session.precondition(caller.peer, caller.request_id)
        address = origin_of(caller.peer)
        self._holders.take(session.holder, session.whose)
        self._addresses.take(address, "This address")
        try:
            await self._store.add_session(precondition, session, MOST_OF_ONE, SIGN_INS_AN_HOUR)
        except Fault as fault:
            if fault.reason is Reason.TOO_MANY_SIGN_INS:  # the store also counts those of other processes
                self._addresses.give_back(address)
                self._holders.block(session.holder, fault.details["retryAfter"] * 1_000)
            raise
        return session_id, session

    async def authenticate(self, session_id: Secret[str], peer: str, request_id: str, *, local: bool) -> SessionCaller:
        """Rejected as its token would be. A session without a token is accepted only in a local request."""
        found = await self._store.find_session(self._digest(session_id))
        if found is None or (found.session.token_id is None and not local):
            # The same error for an ended session and for one that never existed.
            raise Fault(Reason.SESSION_OVER, "The session has ended. Sign in again.")
        if found.session.token_id is None:
            actor = found.session.actor
            caller = Caller(actor, await self._authority.claim(actor, "actor"), None, peer, request_id)
        else:
            bearer = await self._authority.accept(found.bearer, peer, request_id)
            caller = Caller.with_bearer(bearer, peer, request_id)
        return SessionCaller(caller._replace(session_id=found.session.id), found.ends_at)

    async def sign_out(self, session_id: Secret[str], peer: str, request_id: str) -> None:
        """Works even if its token has ended."""
        found = await self._store.find_session(self._digest(session_id))
        if found is not None:
            session = found.session
            await self._store.end_session(session.precondition(peer, request_id), session)
