"""Sessions: a browser signs in with a token and from then on acts exactly as that token does, for as long as it does.

Nothing of a session is kept in memory: each request reads it with its token, so whatever ends the token, suspends its
actor or signs it out counts from the next request on, in every process.
"""

from collections import OrderedDict
from collections.abc import Callable
from typing import NamedTuple

from watchword.domain.actors import Caller
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
"""Sign-ins from one address."""
EACH = 1_000
"""Milliseconds after which it has one more."""
ORIGINS = 10_000
"""Of which is remembered how often they signed in."""


class SignInRate:
    """How often one address signs in, in this process: one sign-in a second, and up to `AT_ONCE` that were saved up."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._spent: OrderedDict[str, int] = OrderedDict()
        """By origin, when all of it is saved up again."""

    def take(self, peer: str) -> None:
        origin, now = network(peer), self._clock()
        spent = max(self._spent.get(origin, now), now)
        wait = spent - now - (AT_ONCE - 1) * EACH
        if wait > 0:
            raise signed_in_too_often(wait, "This address")
        self._spent[origin] = spent + EACH
        self._spent.move_to_end(origin)
        if len(self._spent) > ORIGINS:
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
        self._rate = SignInRate(clock)

    async def sign_in(self, caller: Caller) -> tuple[Secret[str], Session]:
        """A session of this caller, and the id its browser holds."""
        self._rate.take(caller.peer)
        held, now = self._new(), self._clock()
        end = now + self._life if caller.ends_at is None else min(now + self._life, caller.ends_at)
        session = Session(self._digest(held), caller.actor, caller.bearer_id, now, end)
        warrant = session.warrant(caller.peer, caller.request_id)
        await self._store.add_session(warrant, session, MOST_OF_ONE, SIGN_INS_AN_HOUR)
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
            await self._store.end_session(session.warrant(peer, request_id), session)
