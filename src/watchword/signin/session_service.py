"""Sessions of the console, and the sign-in of people at an identity provider.

A session that was opened with a token has the rights of the token; any other has the rights of its actor. No session is
cached: each request reads it, so a revocation, suspension or sign-out takes effect at the next request in every
process.
"""

from collections import OrderedDict
from collections.abc import Awaitable, Callable
from contextlib import suppress
from functools import partial
from typing import NamedTuple

from watchword.authority.callers import Caller, Grant
from watchword.authority.privileges import Privilege
from watchword.authority.service import Authority
from watchword.basics.errors import Fault, Reason, invalid
from watchword.basics.names import is_account
from watchword.basics.networks import origin_of
from watchword.basics.secret import Secret
from watchword.basics.times import HOUR, MINUTE, Clock
from watchword.journal.preconditions import system_precondition
from watchword.signin import session_rules as rules
from watchword.signin.session_rules import Session, SessionLimits
from watchword.signin.session_store import SessionStore

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

    def check(self, key: str, whose: str) -> int:
        """Whether the key has one left. Returns when it has its whole burst."""
        now = self._clock()
        full_at = max(self._full_at.get(key, now), now)
        wait = full_at - now - self._capacity
        if wait > 0:
            raise rules.signed_in_too_often(wait, whose)
        return full_at

    def take(self, key: str, whose: str) -> None:
        self._set(key, self.check(key, whose) + self._interval)

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
    """The caller of a session, and the session."""

    caller: Caller
    found: rules.FoundSession

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
        limits: SessionLimits,
        new_id: Callable[[], Secret[str]],
        issuer: str | None = None,
    ) -> None:
        self._store = store
        self._authority = authority
        self._digest = rules.session_identifier(salt)
        self._clock = clock
        self._limits = limits
        self._new_id = new_id
        self.issuer = issuer
        """Of the identity provider, if there is one."""
        self._addresses = SignInRate(clock, ADDRESS_BURST, ADDRESS_INTERVAL)
        self._holders = SignInRate(clock, rules.SIGN_INS_AN_HOUR, HOUR // rules.SIGN_INS_AN_HOUR)

    async def sign_in(self, caller: Caller) -> tuple[Secret[str], Session]:
        """The secret id for the browser, and the session. A sign-in that its token or actor may not have does not count
        for its address, which others share.
        """
        session_id, session = self._new(caller.actor, caller.bearer_id, caller.peer)
        if caller.ends_at is not None:
            session = session._replace(ends_at=min(session.ends_at, caller.ends_at))
        precondition = session.precondition(caller.peer, caller.request_id)
        add = partial(self._store.add_session, precondition, session, rules.MOST_OF_ONE, rules.SIGN_INS_AN_HOUR)
        await self._add(session, add)
        return session_id, session

    async def sign_in_person(self, person: rules.Person, peer: str, request_id: str) -> tuple[Secret[str], Session]:
        """Sign in a person whom the identity provider has named."""
        session_id, session = self._new(person.actor, None, peer)
        issuer, subject = person.identity
        session = session._replace(issuer=issuer, subject=subject, sid=person.sid)
        precondition = session.precondition(peer, request_id)
        add = partial(self._store.sign_in, precondition, person, session, rules.MOST_OF_ONE, rules.SIGN_INS_AN_HOUR)
        await self._add(session, add)
        return session_id, session

    def _new(self, actor: str, token_id: str | None, peer: str) -> tuple[Secret[str], Session]:
        session_id, now = self._new_id(), self._clock()
        digest = self._digest(session_id)
        return session_id, Session(digest, actor, token_id, now, now + self._limits.hours * HOUR, now, peer)

    async def _add(self, session: Session, add: Callable[[], Awaitable[None]]) -> None:
        address = origin_of(session.peer)
        self._holders.check(session.holder, session.whose)  # one that is limited uses up no other limit
        self._addresses.take(address, "This address")
        self._holders.take(session.holder, session.whose)
        try:
            await add()
        except Fault as fault:
            if fault.reason is Reason.TOO_MANY_SIGN_INS:  # the store also counts those of other processes
                self._holders.block(session.holder, fault.details["retryAfter"] * 1_000)
            else:  # others who claim to be this actor must not use up its sign-ins
                self._holders.give_back(session.holder)
            if fault.reason is not Reason.SIGN_IN_REFUSED:  # its token was limited, or the store is unavailable
                self._addresses.give_back(address)
            raise

    async def authenticate(self, session_id: Secret[str], peer: str, request_id: str, *, local: bool) -> SessionCaller:
        """Rejected as its token would be. A session of local mode is accepted only in a local request."""
        found = await self.find(self._digest(session_id))
        if found.session.method is rules.SignInMethod.LOCAL and not local:
            raise rules.session_over()
        if found.session.token_id is None:
            actor = found.session.actor
            caller = Caller(actor, await self._authority.claim(actor, "actor"), None, peer, request_id)
        else:
            bearer = await self._authority.accept(found.bearer, peer, request_id)
            caller = Caller.with_bearer(bearer, peer, request_id)
        await self._touch(found.session)
        return SessionCaller(caller._replace(session_id=found.session.id), found)

    async def find(self, session_id: str) -> rules.FoundSession:
        """The session with this digest, unless it has ended."""
        found = await self._store.find_session(session_id)
        if found is None or found.session.seen_at <= self._clock() - self._limits.idle:
            raise rules.session_over()
        return found

    async def sign_out(self, session_id: Secret[str], peer: str, request_id: str) -> Session | None:
        """Returns the session that was ended. Works even if its token has ended."""
        found = await self._store.find_session(self._digest(session_id))
        if found is None:
            return None
        try:
            await self._store.end_session(found.session.precondition(peer, request_id), found.session.id)
        except Fault as fault:
            if fault.reason is not Reason.SESSION_NOT_FOUND:  # ended concurrently
                raise
        return found.session

    async def authorize(self, caller: Caller, actor: str | None) -> Grant:
        """For the sessions of this actor; None: of all. A limited or derived token has no access to those of its own
        actor, which have all rights of the actor.
        """
        return await self._authority.authorize(caller, *_required(caller, actor))

    async def list(self, grant: Grant, actor: str | None, start: int, count: int) -> rules.SessionPage:
        grant.expect(*_required(grant.caller, actor))
        return await self._store.sessions(actor, self._clock() - self._limits.idle, start, count)

    async def end(self, grant: Grant, session_id: str) -> None:
        """End an own session, or any session with Manage Policies."""
        actor = grant.caller.actor
        grant.expect(*_required(grant.caller, actor))

        async def write(grant: Grant) -> None:
            own = None if grant.may(Privilege.MANAGE_POLICIES) else actor
            await self._store.end_session(grant.precondition, session_id, own)

        await self._authority.write(grant, write)

    async def end_by_notice(self, notice: rules.LogoutNotice, peer: str, request_id: str) -> None:
        """The identity provider says that a person signed out there."""
        await self._store.end_sessions_by_notice(system_precondition(peer, request_id), notice)

    async def authorize_link(self, caller: Caller) -> Grant:
        return await self._authority.authorize(caller, Privilege.MANAGE_POLICIES)

    async def membership(self, grant: Grant, actor: str) -> rules.Membership:
        grant.expect(Privilege.MANAGE_POLICIES)
        return await self._store.membership(actor)

    async def link(self, grant: Grant, actor: str, identity: rules.Identity | None) -> None:
        grant.expect(Privilege.MANAGE_POLICIES)
        if is_account(actor):
            raise invalid("actorUrn", "actorUrn must not be a service account: it cannot sign in.")
        await self._authority.change(grant, self._store.link_actor, actor, identity)

    async def _touch(self, session: Session) -> None:
        """Once a minute: each is a write."""
        now = self._clock()
        if session.seen_at <= now - MINUTE:
            with suppress(Fault):  # a store that cannot be written to may still answer
                await self._store.touch_session(session.id, now)


def _required(caller: Caller, actor: str | None) -> tuple[Privilege, ...]:
    return () if actor == caller.actor and not caller.is_bounded else (Privilege.MANAGE_POLICIES,)
