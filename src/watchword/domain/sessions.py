"""Sessions: how a person's browser stands in for a token, without holding it.

A session is a random id that the browser sends back; the store keeps only its digest. It is read together with the
token it was opened with, so that it is never worth more than that one is at the moment, and it has an end of its own
that nothing moves. Where a server believes whoever is on its machine, one may be opened for an actor, without a token.
"""

from collections.abc import Callable
from typing import NamedTuple

from watchword.domain.actors import Bearer, WritePrecondition
from watchword.domain.errors import Fault, Reason
from watchword.domain.events import Action, Detail, Event
from watchword.domain.secret import Secret
from watchword.domain.tokens import identifier

MOST_OF_ONE = 20
"""Sessions of one token, or of one actor that was chosen; the oldest ends for another."""
SIGN_INS_AN_HOUR = 120
"""Of one token, or of one actor that was chosen: each leaves an event."""
HOUR = 3_600_000


class Session(NamedTuple):
    id: str
    """The digest of what the browser holds."""
    actor: str
    token_id: str | None
    """None: its actor was chosen, in local mode."""
    created_at: int
    ends_at: int

    @property
    def holder(self) -> str:
        return self.actor if self.token_id is None else self.token_id

    @property
    def whose(self) -> str:
        """The beginning of a sentence about it."""
        return "This actor" if self.token_id is None else "This token"

    def event(self, action: Action) -> Event:
        detail: dict[str, Detail] = {"actorUrn": self.actor, "endsAt": self.ends_at}
        return Event(action, self.holder, detail)

    def precondition(self, peer: str, request_id: str) -> WritePrecondition:
        """For opening and ending it, which takes no more than to hold it."""
        return WritePrecondition(self.actor, self.token_id, 0, peer, request_id, by_possession=True)


class FoundSession(NamedTuple):
    """A session that is not over, with its token, from one read."""

    session: Session
    bearer: Bearer | None
    """None: it was opened without one, or its token is no longer there."""

    @property
    def ends_at(self) -> int:
        """Its own end, or that of its token."""
        end = None if self.bearer is None else self.bearer.expires_at
        return self.session.ends_at if end is None else min(end, self.session.ends_at)


def sessions_ended(actor: str, count: int) -> Event:
    """The event of all sessions of an actor that somebody else ended."""
    return Event(Action.SESSION_ENDED, actor, {"actorUrn": actor, "sessions": count})


def session_identifier(salt: Secret[bytes]) -> Callable[[Secret[str]], str]:
    """What tells the digest of each session's id; never one of a token."""
    digest = identifier(salt)
    return lambda held: digest(b"session:" + held.reveal().encode())


def signed_in_too_often(millis: int, whose: str) -> Fault:
    """`millis`: until another sign-in is allowed."""
    seconds = max(-(-millis // 1000), 1)
    return Fault(
        Reason.TOO_MANY_SIGN_INS, f"{whose} has signed in too often. Try again in {seconds:,} s.", retryAfter=seconds
    )


def over() -> Fault:
    """One sentence for whatever is no session: that it ended, or never was one, is not told apart."""
    return Fault(Reason.SESSION_OVER, "The session is over. Sign in again.")
