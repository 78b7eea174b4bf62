"""Actors, callers, service accounts, and the preconditions of their writes.

The service authorizes a caller before a write and checks again inside the write's transaction: the write precondition
holds everything the decision depends on. If any of it has changed, nothing is written.

Types that every verification creates are named tuples: a third of the cost of a frozen dataclass.
"""

from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass
from enum import Enum
from typing import Any, NamedTuple

from watchword.domain.bounded_cache import cached_within
from watchword.domain.errors import Fault, Reason
from watchword.domain.filters import DEFAULT_COUNT, check_page_size
from watchword.domain.names import MAX_URN, SYSTEM_ACTOR, USER_PREFIX, check_email, check_name, check_text
from watchword.domain.policies import Policy, PolicySet, PolicyState, Privilege, denied, out_of_scope
from watchword.domain.scopes import NO_SCOPES, common, covering, is_scope
from watchword.domain.token_limits import UNLIMITED, Limits

MAX_GROUPS_SHOWN = 100
MAX_LIVE_COUNTED = 1_000  # tokens of each actor in a list


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


@dataclass(frozen=True, slots=True)
class ActorState:
    """The stored status of an actor; most actors have none."""

    urn: str
    status: ActorStatus
    changed_at: int | None = None
    changed_by: str | None = None
    email: str | None = None

    @property
    def is_suspended(self) -> bool:
        return self.status is ActorStatus.SUSPENDED


@dataclass(frozen=True, slots=True)
class KnownActor:
    state: ActorState
    live_tokens: int  # 0 if it is suspended; at most MAX_LIVE_COUNTED
    groups: tuple[str, ...] = ()  # at most MAX_GROUPS_SHOWN


@dataclass(frozen=True, slots=True)
class ActorHoldings:
    """What suspending an actor stops."""

    live_tokens: int  # 0 while it is suspended
    sessions: int
    known: bool
    """Whether the store knows the actor by a name, token, group, session, account or policy. A status alone does not
    count: a mistyped urn can have one.
    """
    suspended_tokens: int = 0  # those that would be live if it were not suspended


@dataclass(frozen=True, slots=True)
class ActorSearch:
    """One page of the known actors, by urn, as an index range; with a query, all of the range are read."""

    count: int = DEFAULT_COUNT
    after: str = ""
    prefix: str = ""
    only_suspended: bool = False
    query: str = ""
    """Part of the urn, name or e-mail address, in any case."""

    @property
    def least(self) -> str:
        """The lower bound. Excludes `after` itself: every character of a urn is above \\x01."""
        return max(self.prefix, self.after and self.after + "\x01")

    @property
    def bound(self) -> str:
        """The exclusive upper bound."""
        return self.prefix + "\x7f"


class ProfileField(Enum):
    """What is known of a person, under its name in the API."""

    DISPLAY_NAME = "displayName"
    EMAIL = "email"


Profile = Mapping[ProfileField, str | None]
"""None: the person has none. A field that is absent stays as it is."""


def check_profile(profile: Profile) -> Profile:
    name, email = profile.get(ProfileField.DISPLAY_NAME), profile.get(ProfileField.EMAIL)
    if name is not None:
        check_name(name, "displayName")
    if email is not None:
        check_email(email)
    return profile


class ActorPage(NamedTuple):
    actors: tuple[KnownActor, ...]
    more: bool


def parse_actor_search(fields: Mapping[str, Any]) -> ActorSearch:
    """Validate the page that a caller requests. A prefix without `urn:` is a user name."""
    count = check_page_size(fields.get("count"))
    after = check_text(fields.get("cursor") or "", "cursor", MAX_URN)
    prefix = check_text(fields.get("prefix") or "", "prefix", MAX_URN)
    if prefix and not prefix.startswith("urn:"):
        prefix = USER_PREFIX + prefix
    query = check_text(fields.get("query") or "", "query", MAX_URN)
    return ActorSearch(count, after, prefix, bool(fields.get("onlySuspended")), query)


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


@dataclass(frozen=True, slots=True)
class WritePrecondition:
    """What must still hold when a write commits, and who made it, for its event."""

    actor: str
    bearer_id: str | None
    policy_version: int
    peer: str
    request_id: str
    by_possession: bool = False  # whether possession of the token is enough
    daily_changes: int = 0  # how many the actor may make; 0: any number

    @property
    def is_unconditional(self) -> bool:
        return self.by_possession or self.actor == SYSTEM_ACTOR


def system_precondition(origin: str, request_id: str = "") -> WritePrecondition:
    """For the service itself and for commands on the store: no condition."""
    return WritePrecondition(actor=SYSTEM_ACTOR, bearer_id=None, policy_version=0, peer=origin, request_id=request_id)


def possession_precondition(actor: str, token_id: str, peer: str, request_id: str) -> WritePrecondition:
    """For the holder of a token who revokes it."""
    return WritePrecondition(actor, token_id, 0, peer, request_id, by_possession=True)


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


@dataclass(frozen=True, slots=True)
class ServiceAccount:
    """An actor for programs, created and deleted by the API. Its id is chosen, or a uuid. A deleted account stays
    suspended for good, and its urn is never used again.
    """

    urn: str
    name: str
    description: str | None
    created_at: int
    created_by: str
    suspended: bool = False
    set_name: str | None = None  # the set that declares it; None: made by the API


@dataclass(frozen=True, slots=True)
class AccountPage:
    total: int
    rows: tuple[ServiceAccount, ...]


class AccountGain(NamedTuple):
    """Privileges and scopes that a holder of MANAGE_SERVICE_ACCOUNTS gains by creating a token for an account."""

    manager: str  # a user, a group, or ALL_USERS
    account: str
    rights: tuple[str, ...]


ALL_USERS = "all users"
# Holders of these already have access to everything.
_BOUNDLESS = {Privilege.MANAGE_ACCESS_TOKENS, Privilege.MANAGE_POLICIES}


def gains(policies: tuple[Policy, ...], groups: Mapping[str, list[str]], accounts: list[str]) -> Iterator[AccountGain]:
    """Yield every user or group that gains privileges or scopes through these accounts. `groups` maps the accounts and
    the users that policies name to their groups.
    """
    known = PolicySet(0, policies)

    def rights(actor: str, memberships: Iterable[str]) -> tuple[frozenset[Privilege], frozenset[str]]:
        return known.granted(actor, memberships), known.scopes(actor, memberships)

    manage = Privilege.MANAGE_SERVICE_ACCOUNTS
    managing = [policy for policy in policies if policy.state is PolicyState.ACTIVE and manage in policy.privileges]
    held = {user: rights(user, groups.get(user, ())) for user in sorted({u for p in managing for u in p.users})}
    held |= {group: rights("", (group,)) for group in sorted({g for p in managing for g in p.groups})}
    if any(policy.all_users for policy in managing):
        held[ALL_USERS] = rights("", ())
    for manager, (own, scopes) in held.items():
        for account in accounts if not own & _BOUNDLESS else ():
            granted, covered = rights(account, groups.get(account, ()))
            more = [privilege.name for privilege in Privilege if privilege in granted - own]
            more += [scope for scope in sorted(covered) if covering(scopes, scope) is None]
            if more and manager != account:
                yield AccountGain(manager, account, tuple(more))


def account_exists(*, deleted: bool) -> Fault:
    why = "It belonged to a service account that was deleted" if deleted else "A service account has it"
    return Fault(Reason.ALREADY_EXISTS, f"id is already in use. {why}. Choose another.", field="id")


def no_account() -> Fault:
    return Fault(Reason.ACCOUNT_NOT_FOUND, "There is no service account with this urn.")
