"""Actors, callers, and what they may do.

The service authorizes a caller before a write and checks again inside the write's transaction: the write precondition
holds everything the decision depends on. If any of it has changed, nothing is written.

Types that every verification creates are named tuples: a third of the cost of a frozen dataclass.
"""

from collections.abc import Collection
from enum import Enum
from typing import NamedTuple

from watchword.authority.limits import UNLIMITED, Limits
from watchword.authority.policy_set import PolicySet
from watchword.authority.privileges import Privilege, denied, out_of_scope
from watchword.basics.bounded_cache import cached_within
from watchword.basics.errors import Fault
from watchword.basics.scopes import NO_SCOPES, common, covering, is_scope
from watchword.journal.preconditions import WritePrecondition


class ActorStatus(Enum):
    ACTIVE = "ACTIVE"
    SUSPENDED = "SUSPENDED"


class ActorSnapshot(NamedTuple):
    """The committed state of an actor at one read."""

    suspended: bool
    groups: tuple[str, ...]
    policy_version: int


class Bearer(NamedTuple):
    """A token and the state of its actor, from one read: everything that verification needs."""

    token_id: str
    actor: str
    expires_at: int | None
    revoked_at: int | None
    suspended: bool
    groups: tuple[str, ...]
    policy_version: int
    at: int  # the time of the read, by the store's clock; decides expiry
    limits: Limits = UNLIMITED
    pending: bool = False  # whether it is a successor that was never used
    derived: bool = False

    @property
    def bearer_id(self) -> str:
        return self.token_id

    @property
    def has_ended(self) -> bool:
        """Whether it is revoked or expired. A suspended actor's token may work again."""
        return self.revoked_at is not None or (self.expires_at is not None and self.expires_at <= self.at)

    @property
    def is_live(self) -> bool:
        return not (self.has_ended or self.suspended)

    @property
    def snapshot(self) -> ActorSnapshot:
        return ActorSnapshot(self.suspended, self.groups, self.policy_version)


class Caller(NamedTuple):
    """The authenticated caller. `bearer_id` is its token; None for a trusted actor header."""

    actor: str
    snapshot: ActorSnapshot
    bearer_id: str | None
    peer: str
    request_id: str
    limits: Limits = UNLIMITED
    ends_at: int | None = None  # expiry of its token; None: never, or no token
    is_derived: bool = False
    session_id: str | None = None  # the digest of its session, if any

    @classmethod
    def with_bearer(cls, bearer: Bearer, peer: str, request_id: str) -> "Caller":
        actor, token_id, end = bearer.actor, bearer.token_id, bearer.expires_at
        return cls(actor, bearer.snapshot, token_id, peer, request_id, bearer.limits, end, bearer.derived)

    @property
    def credential(self) -> str:
        """The kind and id of its credential; not secret."""
        if self.session_id is not None:
            return f"session:{self.session_id}"
        return "header" if self.bearer_id is None else f"token:{self.bearer_id}"

    @property
    def is_bounded(self) -> bool:
        """Whether its token is limited or derived."""
        return self.is_derived or not self.limits.are_none


class EffectiveRights(NamedTuple):
    """What a request may do: what policies grant the actor now, within the scopes of its token."""

    privileges: frozenset[Privilege]
    scopes: frozenset[str]  # of other services
    text: str  # the scopes, and the privileges that the token names, separated by spaces

    def has_scope(self, word: str) -> bool:
        """Whether the request has the scope, or the privilege of that name."""
        if word in self.scopes:
            return True
        if word in Privilege.__members__:
            return Privilege[word] in self.privileges
        return is_scope(word) and covering(self.scopes, word) is not None


def effective_rights(policies: PolicySet, actor: str, groups: tuple[str, ...], limits: Limits) -> EffectiveRights:
    privileges, scopes = policies.granted(actor, groups), policies.scopes(actor, groups)
    named: tuple[str, ...] = ()
    if limits.scopes is not None:
        privileges, scopes = privileges & limits.privileges, common(limits.words, scopes)
        named = tuple(
            [word for word in limits.scopes if word in Privilege.__members__ and Privilege[word] in privileges]
        )
    return EffectiveRights(privileges, scopes, _scopes_text((named, scopes)))


@cached_within()
def _scopes_text(words: tuple[tuple[str, ...], frozenset[str]]) -> str:
    """Actors with the same privileges and scopes share one text."""
    privileges, scopes = words
    return " ".join(sorted([*privileges, *scopes]))


def denied_with(limits: Limits, privilege: Privilege) -> Fault:
    """Says so if the scopes of the caller's token exclude the privilege."""
    return denied(privilege) if limits.allow(privilege) else out_of_scope(privilege, limits.scopes or ())


class Grant(NamedTuple):
    """The privileges of a caller at the policy version of its snapshot."""

    caller: Caller
    privileges: frozenset[Privilege]
    required: tuple[Privilege, ...] = ()  # one of these; a write that authorizes again requires it again
    also: tuple[Privilege, ...] = ()  # and each of these
    scopes: frozenset[str] = NO_SCOPES
    policies: PolicySet = PolicySet(0, ())
    daily_changes: int = 0

    def expect(self, *any_of: Privilege, also: Collection[Privilege] = ()) -> None:
        """Guards against a bug: a grant that was authorized for something else, or for less."""
        if self.required != any_of or not set(self.also).issuperset(also):
            raise AssertionError(f"authorized for {self.required} and {self.also}, not for {any_of} and {also}")

    def requiring(self, *any_of: Privilege, also: tuple[Privilege, ...] = ()) -> "Grant":
        """The same for an action that requires one of `any_of`, and each of `also` beside what this one does."""
        grant = self._replace(required=any_of, also=self.also + also)
        grant.check()
        return grant

    def check(self) -> None:
        """Raises unless the caller has what is required. The denial names the first of `required`, or the one of `also`
        that is missing.
        """
        if self.required and self.privileges.isdisjoint(self.required):
            raise denied_with(self.caller.limits, self.required[0])
        for privilege in self.also:
            self.require(privilege)

    def may(self, privilege: Privilege) -> bool:
        return privilege in self.privileges

    def require(self, privilege: Privilege) -> None:
        if privilege not in self.privileges:
            raise denied_with(self.caller.limits, privilege)

    @property
    def precondition(self) -> WritePrecondition:
        by = self.caller
        version, changes = by.snapshot.policy_version, self.daily_changes
        return WritePrecondition(by.actor, by.bearer_id, version, by.peer, by.request_id, daily_changes=changes)
