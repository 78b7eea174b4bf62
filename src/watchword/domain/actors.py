"""Actors: who calls, how they stand, and by what right a write is done.

What a caller may do is decided before a write and proven again inside the transaction that writes: the warrant
names everything the decision rested on. If any of it has changed, the write does not happen.

What every verification makes is a named tuple: as closed to change as a frozen dataclass, and a third of its cost.
"""

from dataclasses import dataclass
from enum import Enum
from typing import NamedTuple

from watchword.domain.errors import Fault, invalid
from watchword.domain.policies import Privilege, denied, out_of_scope
from watchword.domain.texts import check_text
from watchword.domain.token_limits import UNLIMITED, Limits
from watchword.domain.urns import MAX_LENGTH, SYSTEM_ACTOR

DEFAULT_COUNT, MAX_COUNT = 20, 1_000
MAX_GROUPS_SHOWN = 100
USER_PREFIX = "urn:li:corpuser:"


class ActorStatus(Enum):
    ACTIVE = "ACTIVE"
    SUSPENDED = "SUSPENDED"


class ActorSnapshot(NamedTuple):
    """How an actor stands at the moment of one read: the store's committed state."""

    suspended: bool
    groups: tuple[str, ...]
    policy_version: int


class Bearer(NamedTuple):
    """What the verdict on a token rests on, from one read: found by its digest, with the standing of its actor."""

    token_id: str
    actor: str
    expires_at: int | None
    revoked_at: int | None
    suspended: bool
    groups: tuple[str, ...]
    policy_version: int
    at: int
    """When it was read, by the store's clock: what its end is judged by."""
    limits: Limits = UNLIMITED
    pending: bool = False
    """Whether it replaces another and was never used."""
    derived: bool = False
    """Whether it dies with another."""

    @property
    def has_ended(self) -> bool:
        """Whether it is over for good; a suspended actor's may come back."""
        return self.revoked_at is not None or (self.expires_at is not None and self.expires_at <= self.at)

    @property
    def snapshot(self) -> ActorSnapshot:
        return ActorSnapshot(self.suspended, self.groups, self.policy_version)


@dataclass(frozen=True, slots=True)
class ActorState:
    """What is kept about an actor that has a state of its own; most have none."""

    urn: str
    status: ActorStatus
    changed_at: int | None = None
    changed_by: str | None = None


@dataclass(frozen=True, slots=True)
class KnownActor:
    """An actor that the store knows of, although none is ever registered."""

    state: ActorState
    tokens: int
    """That are not revoked."""
    groups: tuple[str, ...] = ()
    """At most MAX_GROUPS_SHOWN."""


@dataclass(frozen=True, slots=True)
class ActorHoldings:
    """What stops working when an actor is suspended."""

    live_tokens: int
    sessions: int
    known: bool
    """Whether the store has anything of it besides a status, which a mistyped urn can have too: a token of it or made
    by it, a group, a session, an account, or a policy that names it.
    """


@dataclass(frozen=True, slots=True)
class ActorSearch:
    """One page of the known actors, by urn. The bounds are all an index needs to give just this page."""

    count: int = DEFAULT_COUNT
    after: str = ""
    prefix: str = ""
    only_suspended: bool = False

    @property
    def least(self) -> str:
        """No urn on the page is less; `after` is out itself, for every character of an urn is above what follows it."""
        return max(self.prefix, self.after and self.after + "\x01")

    @property
    def bound(self) -> str:
        """Every urn is less."""
        return self.prefix + "\x7f"


class ActorPage(NamedTuple):
    actors: tuple[KnownActor, ...]
    more: bool


def parse_actor_search(
    count: int | None, cursor: str | None, prefix: str | None, *, only_suspended: bool | None
) -> ActorSearch:
    """A page as a caller asks for it. A prefix without `urn:` is of the names of users."""
    count = DEFAULT_COUNT if count is None else count
    if not 1 <= count <= MAX_COUNT:
        raise invalid("count", f"count must be from 1 to {MAX_COUNT:,}.")
    after = check_text(cursor or "", "cursor", MAX_LENGTH)
    wanted = check_text(prefix or "", "prefix", MAX_LENGTH)
    if wanted and not wanted.startswith("urn:"):
        wanted = USER_PREFIX + wanted
    return ActorSearch(count, after, wanted, bool(only_suspended))


class Caller(NamedTuple):
    """Who is calling, from where. `bearer_id` is the token it came with; None for a believed actor header."""

    actor: str
    snapshot: ActorSnapshot
    bearer_id: str | None
    peer: str
    request_id: str
    limits: Limits = UNLIMITED
    ends_at: int | None = None
    """When its bearer ends; None: never, or there is none."""
    is_derived: bool = False
    """Whether its bearer dies with another token."""
    session_id: str | None = None
    """The digest of the session it came with; None: it came with none."""

    @classmethod
    def with_bearer(cls, bearer: Bearer, peer: str, request_id: str) -> "Caller":
        return cls(
            bearer.actor,
            bearer.snapshot,
            bearer.token_id,
            peer,
            request_id,
            bearer.limits,
            bearer.expires_at,
            bearer.derived,
        )

    @property
    def credential(self) -> str:
        """What it came with: a session, a token, or a believed header. No secret."""
        if self.session_id is not None:
            return f"session:{self.session_id}"
        return "header" if self.bearer_id is None else f"token:{self.bearer_id}"

    @property
    def is_bounded(self) -> bool:
        """Whether its bearer may do less than its actor, or dies with another."""
        return self.is_derived or not self.limits.are_none


@dataclass(frozen=True, slots=True)
class WritePrecondition:
    """What a write was allowed by, and who answers for it in the event it leaves."""

    actor: str
    bearer_id: str | None
    policy_version: int
    peer: str
    request_id: str
    by_possession: bool = False
    """Whether holding the token is all it takes."""

    @property
    def is_unconditional(self) -> bool:
        return self.by_possession or self.actor == SYSTEM_ACTOR


def system_precondition(origin: str, request_id: str = "") -> WritePrecondition:
    """For the service itself and for commands that work on the store: nothing is left to prove."""
    return WritePrecondition(actor=SYSTEM_ACTOR, bearer_id=None, policy_version=0, peer=origin, request_id=request_id)


def possession_precondition(bearer: Bearer, peer: str, request_id: str) -> WritePrecondition:
    """For whoever holds a token and wants it ended."""
    return WritePrecondition(bearer.actor, bearer.token_id, 0, peer, request_id, by_possession=True)


class Grant(NamedTuple):
    """What a caller may do under the version of the policies that its standing names."""

    caller: Caller
    privileges: frozenset[Privilege]

    def may(self, privilege: Privilege) -> bool:
        return privilege in self.privileges

    def require(self, privilege: Privilege) -> None:
        if privilege not in self.privileges:
            raise self._denied(privilege)

    def _denied(self, privilege: Privilege) -> Fault:
        """A token whose scopes take the privilege away says so: its actor may have it."""
        scopes = self.caller.limits.scopes
        return (
            denied(privilege) if privilege in self.caller.limits.privileges else out_of_scope(privilege, scopes or ())
        )

    def require_any(self, first: Privilege, *others: Privilege) -> None:
        """The first is the one that is named to who has none of them."""
        if first not in self.privileges and not self.privileges.intersection(others):
            raise self._denied(first)

    @property
    def precondition(self) -> WritePrecondition:
        caller = self.caller
        return WritePrecondition(
            actor=caller.actor,
            bearer_id=caller.bearer_id,
            policy_version=caller.snapshot.policy_version,
            peer=caller.peer,
            request_id=caller.request_id,
        )
