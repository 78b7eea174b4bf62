"""Browser sessions, and signing in at an identity provider.

A browser uses a session instead of a token. A session is a random id; the store keeps only its digest. A session that
was opened with a token is read together with it, so it never has more rights than its token has now. A session of a
person who signed in at the identity provider has the rights of the actor. In local mode a session may be opened for any
actor. A session ends after a fixed time, and earlier if it is not used.

A person is an actor here and a pair (issuer, subject) at the identity provider. The actor's name comes from claims that
a person may be able to change, the subject does not. So the first sign-in stores the pair with the actor, and from then
on only this pair signs in as this actor.
"""

import re
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass
from enum import Enum
from typing import Any, NamedTuple, TypeGuard
from urllib.parse import quote, urlsplit

from watchword.access.actor_rules import Profile, ProfileField
from watchword.authority.callers import Bearer
from watchword.basics.errors import Fault, Reason, too_often
from watchword.basics.names import check_actor, check_email, check_group, check_name, is_account
from watchword.basics.secret import Secret
from watchword.basics.times import MINUTE
from watchword.journal.events import Action, Detail, Event
from watchword.journal.preconditions import WritePrecondition
from watchword.tokens.rules import identifier

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
        """Return the precondition to open or end the session: possession is enough."""
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


def session_over() -> Fault:
    """The same for an ended session and for one that never existed."""
    return Fault(Reason.SESSION_OVER, "The session has ended. Sign in again.")


def session_identifier(salt: Secret[bytes]) -> Callable[[Secret[str]], str]:
    """A function that computes session digests; they never equal a token id."""
    digest = identifier(salt)
    return lambda held: digest(b"session:" + held.reveal().encode())


def signed_in_too_often(millis: int, whose: str) -> Fault:
    return too_often(Reason.TOO_MANY_SIGN_INS, millis, f"{whose} has signed in too often.")


MAX_GROUPS = 500
MAX_SUBJECT = 255
CLAIM = re.compile(r"\{([^{}]+)\}")
GROUP = "{group}"
# All visible ASCII characters but the percent sign.
_URN_CHARACTERS = "!\"#$&'()*+,-./:;<=>?@[\\]^_`{|}~"

Claims = Mapping[str, Any]


class Identity(NamedTuple):
    """Who a person is at the identity provider."""

    issuer: str
    subject: str


class LinkedIdentity(NamedTuple):
    identity: Identity
    linked_at: int
    signed_in_at: int | None  # None: linked, but not signed in since


class Membership(NamedTuple):
    """The groups of an actor, and the person it is linked to."""

    groups: tuple[str, ...]
    external_groups: tuple[str, ...]
    linked: LinkedIdentity | None


class Person(NamedTuple):
    """What one sign-in says about a person."""

    actor: str
    identity: Identity
    sid: str | None  # the session at the identity provider
    profile: Profile
    groups: frozenset[str]


class LogoutNotice(NamedTuple):
    """The identity provider ended a session of a person, or all of them (without `sid`)."""

    issuer: str
    subject: str | None
    sid: str | None
    at: int  # milliseconds


@dataclass(frozen=True, slots=True)
class ClaimRules:
    actor: str
    """The template of the actor's urn: {claim} stands for a claim."""
    root_actor: str
    is_root_named: bool
    """Whether a setting names the root actor. Sign-in as the default root actor is not possible."""
    groups_claim: str | None = None
    group: str = "urn:li:corpGroup:{group}"
    allowed: tuple[tuple[str, str], ...] = ()
    """Claims that must hold. Of several values for one claim, one must."""

    @property
    def needed(self) -> frozenset[str]:
        """The claims that decide."""
        named = {*CLAIM.findall(self.actor), *(claim for claim, _ in self.allowed), self.groups_claim}
        return frozenset(claim for claim in (*named, "email_verified" if "email" in named else None) if claim)

    def person(self, issuer: str, claims: Claims) -> Person:
        """Raises SIGN_IN_REFUSED if the claims do not identify an allowed user."""
        self._require_allowed(claims)
        return Person(
            actor=self._actor(claims),
            identity=Identity(issuer, claims["sub"]),
            sid=sid if is_name(sid := claims.get("sid")) else None,
            profile=_profile(claims),
            groups=self._groups(None if self.groups_claim is None else claims.get(self.groups_claim)),
        )

    def _require_allowed(self, claims: Claims) -> None:
        for claim in dict.fromkeys(claim for claim, _ in self.allowed):
            given = claims.get(claim)
            values = {_word(value) for value in (given if isinstance(given, list) else [given])}
            if not values & {value for name, value in self.allowed if name == claim}:
                raise refused(f"The claim {claim} does not have a value that WATCHWORD_OIDC_ALLOWED allows.")
            if claim == "email":
                _require_verified(claims)

    def _actor(self, claims: Claims) -> str:
        def value(match: re.Match[str]) -> str:
            found = claims.get(match[1])
            if not isinstance(found, str) or not found:
                raise refused(f"The claim {match[1]}, from which the name of the actor is made, is missing or no text.")
            if match[1] == "email":
                _require_verified(claims)
            return found

        urn = CLAIM.sub(value, self.actor)
        try:
            check_actor(urn, "The actor of the sign-in")
        except Fault as fault:
            raise refused(fault.message) from None
        if is_account(urn):
            raise refused("The claims name a service account, which cannot sign in.")
        if urn == self.root_actor and not self.is_root_named:
            raise refused(f"The claims name the root actor, {urn}, which WATCHWORD_ROOT_ACTOR does not name.")
        return urn

    def _groups(self, given: Any) -> frozenset[str]:
        """A missing claim means no groups: identity providers leave out empty lists."""
        names = [] if given is None else [given] if isinstance(given, str) else given
        if not isinstance(names, list) or not all(isinstance(name, str) for name in names):
            raise refused(f"The claim {self.groups_claim} must be a list of texts.")
        if len(names) > MAX_GROUPS:
            raise refused(f"The claim {self.groups_claim} has more than {MAX_GROUPS} groups. Send fewer of them.")
        try:
            groups = {self.group.replace(GROUP, quote(name, safe=_URN_CHARACTERS)) for name in names if name}
            return frozenset(check_group(group, "A group of the sign-in") for group in groups)
        except Fault as fault:
            raise refused(fault.message) from None
        except UnicodeEncodeError:
            raise refused(f"The claim {self.groups_claim} has a name that is no text.") from None


def _require_verified(claims: Claims) -> None:
    if not _is_verified(claims):
        raise refused("The identity provider does not say that the e-mail address is verified (email_verified).")


def _is_verified(claims: Claims) -> bool:
    """Some providers, such as Amazon Cognito's userinfo, send the boolean as text."""
    verified = claims.get("email_verified")
    return verified is True or verified == "true"


def is_name(value: Any) -> TypeGuard[str]:
    """Whether the value can be a subject or a session of a provider."""
    return isinstance(value, str) and 0 < len(value) <= MAX_SUBJECT and value.isprintable()


def is_secure(url: str) -> bool:
    """Whether a provider may have this address: https, or http on this machine, for a try."""
    try:
        parts = urlsplit(url)
    except ValueError:
        return False
    is_local = parts.scheme == "http" and parts.hostname in {"localhost", "127.0.0.1", "::1"}
    return bool(parts.hostname) and (parts.scheme == "https" or is_local)


def refused(message: str) -> Fault:
    return Fault(Reason.SIGN_IN_REFUSED, message)


def _word(value: Any) -> str:
    return str(value).lower() if isinstance(value, bool) else str(value) if isinstance(value, str | int) else ""


def _profile(claims: Claims) -> Profile:
    """Names are for people to read: one that cannot be shown is left out. So is an address that is not verified."""
    profile = {}
    if "email_verified" in claims and not _is_verified(claims):
        claims = {**claims, "email": None}
    for field, claim, check in (
        (ProfileField.DISPLAY_NAME, "name", check_name),
        (ProfileField.EMAIL, "email", check_email),
    ):
        if isinstance(value := claims.get(claim), str):
            with suppress(Fault):
                profile[field] = check(value)
    return profile
