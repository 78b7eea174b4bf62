"""Browser sessions: a browser uses a session instead of a token.

A session is a random id; the store keeps only its digest. Every request reads it together with the token it was opened
with, so a session never has more rights than its token has now. It has its own fixed expiry. In local mode a session
may be opened for an actor without a token.
"""

from collections.abc import Callable
from typing import NamedTuple

from watchword.domain.actors import Bearer, WritePrecondition
from watchword.domain.errors import Fault, Reason
from watchword.domain.events import Action, Event
from watchword.domain.secret import Secret
from watchword.domain.tokens import identifier

MOST_OF_ONE = 20  # sessions of one token or chosen actor; a new one ends the oldest
SIGN_INS_AN_HOUR = 120  # Of one token or chosen actor. Each writes an event.


class Session(NamedTuple):
    id: str  # the digest of the browser's secret
    actor: str
    token_id: str | None  # None: the actor was chosen in local mode
    created_at: int
    ends_at: int

    @property
    def holder(self) -> str:
        return self.actor if self.token_id is None else self.token_id

    @property
    def whose(self) -> str:
        return "This actor" if self.token_id is None else "This token"

    def event(self, action: Action) -> Event:
        return Event(action, self.holder, {"actorUrn": self.actor, "endsAt": self.ends_at})

    def precondition(self, peer: str, request_id: str) -> WritePrecondition:
        """For opening and ending the session: possession is enough."""
        return WritePrecondition(self.actor, self.token_id, 0, peer, request_id, by_possession=True)


class FoundSession(NamedTuple):
    """A live session and its token, from one read."""

    session: Session
    bearer: Bearer | None  # None: opened without a token, or the token was deleted

    @property
    def ends_at(self) -> int:
        """The earlier of its own expiry and its token's."""
        end = None if self.bearer is None else self.bearer.expires_at
        return self.session.ends_at if end is None else min(end, self.session.ends_at)


def sessions_ended(actor: str, count: int) -> Event:
    return Event(Action.SESSION_ENDED, actor, {"actorUrn": actor, "sessions": count})


def session_identifier(salt: Secret[bytes]) -> Callable[[Secret[str]], str]:
    """A function that computes session digests; they never equal a token id."""
    digest = identifier(salt)
    return lambda held: digest(b"session:" + held.reveal().encode())


def signed_in_too_often(millis: int, whose: str) -> Fault:
    """`millis`: the wait until the next sign-in is allowed."""
    seconds = max(-(-millis // 1000), 1)
    return Fault(
        Reason.TOO_MANY_SIGN_INS, f"{whose} has signed in too often. Try again in {seconds:,} s.", retryAfter=seconds
    )
