"""Sessions: a browser signs in with a token and from then on acts exactly as that token does, for as long as it does.

Nothing of a session is kept in memory: each request reads it with its token, so whatever ends the token, suspends its
actor or signs it out counts from the next request on, in every process.
"""

from collections import OrderedDict
from collections.abc import Callable
from typing import NamedTuple

from watchword.domain.actors import Caller
from watchword.domain.errors import Fault, Reason
from watchword.domain.ports import Clock, SessionStore
from watchword.domain.secret import Secret
from watchword.domain.sessions import (
    HOUR,
    MOST_OF_ONE,
    SIGN_INS_AN_HOUR,
    Session,
    over,
    session_identifier,
    signed_in_too_often,
)
from watchword.service.authority import Authority
from watchword.service.refusals import network

NewSecret = Callable[[], Secret[str]]


AT_ONCE = 300
"""Sign-ins from one address: more than one token or chosen actor has, so that none uses up the share of all there."""
EACH = 1_000
"""Milliseconds after which it has one more."""
REMEMBERED = 10_000
"""Of how many addresses, and of how many tokens and actors, is known how often they signed in."""


class SignInRate:
    """How often each address, or each token or actor, signs in, in this process: `at_once`, and one more after every
    `each` milliseconds.
    """

    def __init__(self, clock: Clock, at_once: int, each: int) -> None:
        self._clock = clock
        self._each = each
        self._saved = (at_once - 1) * each
        self._spent: OrderedDict[str, int] = OrderedDict()
        """When all of it is saved up again."""

    def take(self, key: str, whose: str) -> None:
        now = self._clock()
        spent = max(self._spent.get(key, now), now)
        wait = spent - now - self._saved
        if wait > 0:
            raise signed_in_too_often(wait, whose)
        self._set(key, spent + self._each)

    def give_back(self, key: str) -> None:
        if key in self._spent:
            self._spent[key] -= self._each

    def refuse(self, key: str, millis: int) -> None:
        """For so long."""
        self._set(key, self._clock() + millis + self._saved)

    def _set(self, key: str, spent: int) -> None:
        self._spent[key] = spent
        self._spent.move_to_end(key)
        if len(self._spent) > REMEMBERED:
            self._spent.popitem(last=False)


class Visit(NamedTuple):
    """Who calls with a session, and when that ends."""

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
        self, store: SessionStore, authority: Authority, salt: Secret[bytes], clock: Clock, hours: int, new: NewSecret
    ) -> None:
        self._store = store
        self._authority = authority
        self._digest = session_identifier(salt)
        self._clock = clock
        self._life = hours * HOUR
        self._new = new
        self._addresses = SignInRate(clock, AT_ONCE, EACH)
        self._holders = SignInRate(clock, SIGN_INS_AN_HOUR, HOUR // SIGN_INS_AN_HOUR)

    async def sign_in(self, caller: Caller) -> tuple[Secret[str], Session]:
        """A session of this caller, and the id its browser holds. One that its token or actor may not have costs its
        address nothing: others sign in from there too.
        """
        held, now = self._new(), self._clock()
        end = now + self._life if caller.ends_at is None else min(now + self._life, caller.ends_at)
        session = Session(self._digest(held), caller.actor, caller.bearer_id, now, end)
        precondition = session.precondition(caller.peer, caller.request_id)
        address = network(caller.peer)
        self._holders.take(session.holder, session.whose)
        self._addresses.take(address, "This address")
        try:
            await self._store.add_session(precondition, session, MOST_OF_ONE, SIGN_INS_AN_HOUR)
        except Fault as fault:
            if fault.reason is Reason.TOO_MANY_SIGN_INS:  # the store counts what other processes let in too
                self._addresses.give_back(address)
                self._holders.refuse(session.holder, fault.details["retryAfter"] * 1_000)
            raise
        return held, session

    async def visit(self, held: Secret[str], peer: str, request_id: str, *, local: bool) -> Visit:
        """The session that this is the id of; refused as its token would be. One without a token counts only in a
        request that is local.
        """
        found = await self._store.find_session(self._digest(held))
        if found is None or (found.session.token_id is None and not local):
            raise over()
        if found.session.token_id is None:
            actor = found.session.actor
            caller = Caller(actor, await self._authority.claim(actor, "actor"), None, peer, request_id)
        else:
            bearer = await self._authority.accept(found.bearer, peer, request_id)
            caller = Caller.with_bearer(bearer, peer, request_id)
        return Visit(caller._replace(session_id=found.session.id), found.ends_at)

    async def sign_out(self, held: Secret[str], peer: str, request_id: str) -> None:
        """Whatever has become of its token. One that is over stays so."""
        found = await self._store.find_session(self._digest(held))
        if found is not None:
            session = found.session
            await self._store.end_session(session.precondition(peer, request_id), session)
