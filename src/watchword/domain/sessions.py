"""Browser sessions: a browser uses a session instead of a token.

A session is a random id; the store keeps only its digest. A session that was opened with a token is read together with
it, so it never has more rights than its token has now. A session of a person who signed in at the identity provider has
the rights of the actor. In local mode a session may be opened for any actor. A session ends after a fixed time, and
earlier if it is not used.
"""

from collections.abc import Callable
from enum import Enum
from typing import NamedTuple

from watchword.domain.actors import Bearer, WritePrecondition
from watchword.domain.errors import Fault, Reason
from watchword.domain.events import Action, Detail, Event
from watchword.domain.lifetimes import MINUTE
from watchword.domain.secret import Secret
from watchword.domain.tokens import identifier

MOST_OF_ONE = 20  # sessions of one token or chosen actor; a new one ends the oldest
SIGN_INS_AN_HOUR = 120  # Of one token or chosen actor. Each writes an event.


class SessionLimits(NamedTuple):
    hours: int
    idle_minutes: int

    @property
    def idle(self) -> int:
        return self.idle_minutes * MINUTE


class SignInMethod(Enum):
    OIDC = "oidc"
    TOKEN = "token"  # noqa: S105 - a word
    LOCAL = "local"


class Session(NamedTuple):
    id: str  # the digest of the browser's secret
    actor: str
    token_id: str | None
    created_at: int
    ends_at: int
    seen_at: int = 0  # its last request, to the minute
    peer: str = ""  # the address that signed in
    issuer: str | None = None  # of the identity provider, if the person signed in there
    subject: str | None = None
    sid: str | None = None

    @property
    def method(self) -> SignInMethod:
        if self.token_id is not None:
            return SignInMethod.TOKEN
        return SignInMethod.LOCAL if self.issuer is None else SignInMethod.OIDC

    @property
    def holder(self) -> str:
        return self.actor if self.token_id is None else self.token_id

    @property
    def whose(self) -> str:
        return "This actor" if self.token_id is None else "This token"

    def event(self, action: Action) -> Event:
        detail: dict[str, Detail] = {"actorUrn": self.actor, "method": self.method.value, "endsAt": self.ends_at}
        return Event(action, self.holder, detail)

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


class SessionPage(NamedTuple):
    total: int
    sessions: tuple[Session, ...]


def no_session() -> Fault:
    return Fault(Reason.SESSION_NOT_FOUND, "There is no session with this id.")


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
