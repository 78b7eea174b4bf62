"""Policies, which grant privileges here and scopes of other services. Deny by default; only ACTIVE policies grant, and
no policy denies.

What a change of a policy gives and takes, and who holds a privilege or scope, is computed here too.

An actor's privileges and scopes are the union of what every ACTIVE policy grants to it by name, by group or as one of
all users, plus the privileges that those include.

A policy file declares the policies of one named set, its groups and accounts (see `declared_entities`), its retention
rules (see `retention`), webhooks and resources. Applying a set creates or updates its policies; a policy that was made
by the API joins the set. Policies that the set no longer declares are deleted only with pruning. Policies of other sets
and of the API stay unchanged; declaring a policy of another set is a conflict.
"""

from collections import Counter
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from enum import Enum
from hashlib import sha256
from itertools import chain
from typing import TYPE_CHECKING, Generic, NamedTuple, TypeVar

from watchword.domain.errors import Fault, Reason, check_length, invalid
from watchword.domain.names import (
    POLICY_PREFIX,
    check_actor,
    check_description,
    check_group,
    check_name,
    check_short_id,
    check_urn,
)
from watchword.domain.scopes import (
    ALL_SCOPES,
    NO_SCOPES,
    SCOPE_FORM,
    check_scope,
    covering,
    is_scope,
    united,
)

if TYPE_CHECKING:
    from watchword.domain.declared_entities import DeclaredEntities, EntityChange, EntityPlan
    from watchword.domain.resources import Resource, ResourceChange, ResourcePlan
    from watchword.domain.retention import RetentionRule, RuleChange, RulePlan
    from watchword.domain.webhooks import Webhook, WebhookChange, WebhookPlan

T = TypeVar("T")
C = TypeVar("C")

ROOT_POLICY = POLICY_PREFIX + "root"
MAX_ENTRIES = 1_000
MAX_SCOPES = 100
MAX_DECLARED = 1_000
MOST_NAMED = 3
DEFAULT_SET = "default"
DATAHUB_SET = "datahub"
"""The groups, service accounts and policies that an import brought from DataHub."""


class Privilege(Enum):
    """Each privilege with the name people see and what it allows."""

    # By identity, which is faster than Enum's hash of the name.
    __hash__ = object.__hash__

    def __init__(self, display_name: str, allows: str) -> None:
        self.display_name = display_name
        self.allows = allows

    GENERATE_PERSONAL_ACCESS_TOKENS = (
        "Generate Personal Access Tokens",
        "Create, list and revoke own tokens: the minimum for the token API.",
    )
    MANAGE_ACCESS_TOKENS = (
        "Manage All Access Tokens",
        "Create tokens for others, list and revoke anyone's; as strong as the strongest actor.",
    )
    MANAGE_SERVICE_ACCOUNTS = (
        "Manage Service Accounts",
        "Manage service accounts and their tokens; as strong as the strongest service account.",
    )
    INTROSPECT_TOKENS = ("Introspect Tokens", "Introspect tokens of others.")
    MANAGE_POLICIES = ("Manage Policies", "Manage policies, groups and the status of actors.")
    VIEW_POLICIES = (
        "View Policies",
        "Read policies, groups, resources, who holds what, and what applying a policy file would change.",
    )
    GET_ES_TASK_STATUS_PRIVILEGE = ("Get search-index task status", "Read the status of a task in the search index.")
    GET_TIMESERIES_INDEX_SIZES_PRIVILEGE = ("Get time series index sizes", "Read the sizes of the time series indices.")
    TRUNCATE_TIMESERIES_INDEX_PRIVILEGE = ("Truncate time series index", "Remove old rows of a time series.")
    RELEASE_RETENTION_HOLDS = (
        "Release Retention Holds",
        "Release a hold that someone else set on a time series; with Truncate time series index.",
    )
    MANAGE_SYSTEM_OPERATIONS = ("Manage System Operations", "All three operations in the search index.")
    VIEW_AUDIT_LOG = ("View Audit Log", "Read the audit log.")
    MANAGE_WEBHOOKS = ("Manage Webhooks", "Manage webhooks, together with View Audit Log.")


Right = Privilege | str
"""A privilege, or a scope of another service."""
Require = Callable[[Privilege], None]
"""Raises the denial unless the caller has the privilege."""
EVERYTHING = frozenset(Privilege)
ESCALATING = frozenset({Privilege.MANAGE_ACCESS_TOKENS, Privilege.MANAGE_SERVICE_ACCOUNTS, Privilege.MANAGE_POLICIES})
"""Who holds one of these can get more privileges with it."""
PRIVILEGE_NAMES = ", ".join(privilege.name for privilege in Privilege)
PRIVILEGE_FIELDS = {
    "generatePersonalAccessTokens": Privilege.GENERATE_PERSONAL_ACCESS_TOKENS,
    "manageTokens": Privilege.MANAGE_ACCESS_TOKENS,
    "manageServiceAccounts": Privilege.MANAGE_SERVICE_ACCOUNTS,
    "introspectTokens": Privilege.INTROSPECT_TOKENS,
    "manageIdentities": Privilege.MANAGE_POLICIES,  # DataHub's word for users and groups
    "managePolicies": Privilege.MANAGE_POLICIES,
    "viewPolicies": Privilege.VIEW_POLICIES,
    "getTaskStatus": Privilege.GET_ES_TASK_STATUS_PRIVILEGE,
    "getIndexSizes": Privilege.GET_TIMESERIES_INDEX_SIZES_PRIVILEGE,
    "truncateTimeseries": Privilege.TRUNCATE_TIMESERIES_INDEX_PRIVILEGE,
    "releaseRetentionHolds": Privilege.RELEASE_RETENTION_HOLDS,
    "manageSystemOperations": Privilege.MANAGE_SYSTEM_OPERATIONS,
    "viewAuditLog": Privilege.VIEW_AUDIT_LOG,
    "manageWebhooks": Privilege.MANAGE_WEBHOOKS,
}
"""Under the names that `me` and the session of the console show, which are DataHub's where it has one."""

_INCLUDES = {
    Privilege.MANAGE_ACCESS_TOKENS: frozenset({Privilege.GENERATE_PERSONAL_ACCESS_TOKENS}),
    Privilege.MANAGE_POLICIES: frozenset({Privilege.VIEW_POLICIES}),
    Privilege.MANAGE_SYSTEM_OPERATIONS: frozenset(
        {
            Privilege.GET_ES_TASK_STATUS_PRIVILEGE,
            Privilege.GET_TIMESERIES_INDEX_SIZES_PRIVILEGE,
            Privilege.TRUNCATE_TIMESERIES_INDEX_PRIVILEGE,
        }
    ),
}


class PolicyState(Enum):
    ACTIVE = "ACTIVE"
    INACTIVE = "INACTIVE"


class PolicySource(Enum):
    """What manages a policy: the service itself, a policy file, or the API."""

    SERVICE = "SERVICE"
    FILE = "FILE"
    API = "API"


@dataclass(frozen=True, slots=True)
class Policy:
    urn: str
    name: str
    description: str | None = None
    state: PolicyState = PolicyState.ACTIVE
    privileges: frozenset[Privilege] = frozenset()
    users: frozenset[str] = frozenset()
    groups: frozenset[str] = frozenset()
    all_users: bool = False
    scopes: frozenset[str] = NO_SCOPES
    source: PolicySource = PolicySource.API
    set_name: str | None = None  # the set that declares it; None unless its source is FILE

    @property
    def editable(self) -> bool:
        return self.source is not PolicySource.SERVICE

    @property
    def revision(self) -> str:
        """A digest of what can be edited: who read one revision does not overwrite another unseen."""
        plain = (self.name, self.description, self.state.value, self.all_users)
        named = sorted(privilege.name for privilege in self.privileges)
        content = (*plain, named, sorted(self.users), sorted(self.groups), sorted(self.scopes))
        return sha256(repr(content).encode("utf-8", "surrogatepass")).hexdigest()[:16]


def check_policy(policy: Policy) -> Policy:
    """Validate a policy; the fault names the field."""
    check_urn(policy.urn, "urn")
    if not policy.urn.startswith(POLICY_PREFIX):
        raise invalid("urn", f"urn must be the urn of a policy: {POLICY_PREFIX}<id>.")
    check_name(policy.name)
    check_description(policy.description)
    if not policy.privileges and not policy.scopes:
        raise invalid(
            "privileges", f"privileges must name at least one of: {PRIVILEGE_NAMES}; or scopes must name one."
        )
    if len(policy.scopes) > MAX_SCOPES:
        raise invalid("scopes", f"scopes may have at most {MAX_SCOPES} entries; grant a wildcard such as orders:*.")
    for scope in policy.scopes:
        check_scope(scope, "scopes")
    if len(policy.users) + len(policy.groups) > MAX_ENTRIES:
        raise invalid("actors", f"actors may name at most {MAX_ENTRIES:,} users and groups; use a group for more.")
    for user in policy.users:
        check_actor(user, "actors.users")
    for group in policy.groups:
        check_group(group, "actors.groups")
    return policy


def privilege_of(word: str, field_name: str) -> Privilege:
    try:
        return Privilege[word]
    except KeyError:
        raise invalid(field_name, f"{field_name} must be among: {PRIVILEGE_NAMES}.") from None


def right_of(word: str, field_name: str) -> Right:
    if word in Privilege.__members__:
        return Privilege[word]
    if is_scope(word):
        return word
    raise invalid(field_name, f"{field_name} must be {SCOPE_FORM}; or one of the privileges {PRIVILEGE_NAMES}.")


def right_name(right: Right) -> str:
    return right if isinstance(right, str) else right.name


def denied(right: Right) -> Fault:
    return _lacking(right, f"You lack the {_described(right)}. Ask someone who manages policies.")


def deny(privilege: Privilege) -> None:
    """A `Require` for callers without privileges."""
    raise denied(privilege)


def out_of_scope(right: Right, scopes: Sequence[str]) -> Fault:
    named = ", ".join(scopes) or "(none)"
    without = right if isinstance(right, str) else f"{right.display_name!r} ({right.name})"
    return _lacking(right, f"This token is limited to the scopes {named}, without {without}. Use another token.")


def _described(right: Right) -> str:
    return f"scope {right}" if isinstance(right, str) else f"privilege {right.display_name!r} ({right.name})"


def _lacking(right: Right, message: str) -> Fault:
    if isinstance(right, str):
        return Fault(Reason.MISSING_SCOPE, message, scope=right)
    return Fault(Reason.MISSING_PRIVILEGE, message, privilege=right.name)


@dataclass(frozen=True, slots=True)
class PolicySet:
    """All policies and resources at one version. Every change of a policy, group or resource increases the version."""

    version: int
    policies: tuple[Policy, ...]
    resources: "tuple[Resource, ...]" = ()
    resource_ids: dict[str, str] = field(init=False, repr=False)
    """By name."""
    _everyone: frozenset[Privilege] = field(init=False, repr=False)
    _by_name: dict[str, frozenset[Privilege]] = field(init=False, repr=False)
    _scopes_of_everyone: frozenset[str] = field(init=False, repr=False)
    _scopes_by_name: dict[str, frozenset[str]] = field(init=False, repr=False)  # with those of everyone

    def __post_init__(self) -> None:
        everyone: frozenset[Privilege] = frozenset()
        by_name: dict[str, frozenset[Privilege]] = {}
        scopes_of_everyone: frozenset[str] = NO_SCOPES
        scopes_by_name: dict[str, set[str]] = {}
        for policy in self.policies:
            if policy.state is not PolicyState.ACTIVE:
                continue
            grants = included(policy.privileges)
            if policy.all_users:
                everyone |= grants
                scopes_of_everyone = united(scopes_of_everyone, policy.scopes)
            for name in policy.users | policy.groups:
                by_name[name] = by_name.get(name, frozenset()) | grants
                if policy.scopes:
                    scopes_by_name.setdefault(name, set()).update(policy.scopes)
        with_everyones = {n: united(frozenset(scopes), scopes_of_everyone) for n, scopes in scopes_by_name.items()}
        object.__setattr__(self, "resource_ids", {one.name: one.id for one in self.resources})
        object.__setattr__(self, "_everyone", everyone)
        object.__setattr__(self, "_by_name", by_name)
        object.__setattr__(self, "_scopes_of_everyone", scopes_of_everyone)
        object.__setattr__(self, "_scopes_by_name", with_everyones)

    def granted(self, actor: str, groups: Iterable[str]) -> frozenset[Privilege]:
        granted = self._everyone | self._by_name.get(actor, frozenset())
        for group in groups:
            granted |= self._by_name.get(group, frozenset())
        return granted

    def scopes(self, actor: str, groups: Iterable[str]) -> frozenset[str]:
        """The scopes of other services that the actor is granted. Every verification reads them."""
        by_name = self._scopes_by_name
        granted = by_name.get(actor, self._scopes_of_everyone)
        for group in groups:
            if group in by_name:
                granted = united(granted, by_name[group])
        return granted

    def holds(self, actor: str, groups: Iterable[str], right: Right) -> bool:
        if isinstance(right, str):
            return covering(self.scopes(actor, groups), right) is not None
        return right in self.granted(actor, groups)

    def require_scopes(self, actor: str, groups: Iterable[str], scopes: Iterable[str] | None) -> None:
        """Every scope that a new token names must be granted to its actor."""
        for scope in scopes or ():
            if not self.holds(actor, groups, right_of(scope, "scopes")):
                message = f"No policy grants the scope {scope} to {actor}. Ask someone who manages policies."
                raise Fault(Reason.MISSING_SCOPE, message, scope=scope)


def included(privileges: Iterable[Privilege]) -> frozenset[Privilege]:
    """The privileges and those that they include."""
    named = frozenset(privileges)
    return named.union(*(_INCLUDES.get(privilege, frozenset()) for privilege in named))


def root_policy(actor: str) -> Policy:
    """The policy that grants everything to the root actor; rewritten from the setting at every start."""
    return Policy(
        urn=ROOT_POLICY,
        name="Root actor",
        description="The actor of the setting WATCHWORD_ROOT_ACTOR holds every privilege and every scope.",
        privileges=EVERYTHING,
        scopes=frozenset({ALL_SCOPES}),
        users=frozenset({actor}),
        source=PolicySource.SERVICE,
    )


def default_policies() -> tuple[Policy, ...]:
    """Created once, at the first start. A deleted one is not created again."""
    return (
        Policy(
            urn=POLICY_PREFIX + "everyone-task-status",
            name="Everyone reads task status",
            description="Any authenticated caller may read the status of a task in the search index.",
            privileges=frozenset({Privilege.GET_ES_TASK_STATUS_PRIVILEGE}),
            all_users=True,
        ),
    )


class GrantedVia(Enum):
    USER = "USER"
    GROUP = "GROUP"
    ALL_USERS = "ALL_USERS"


@dataclass(frozen=True, slots=True)
class PolicyMatch:
    policy: Policy
    via: GrantedVia
    right: Right  # in the policy: the requested one, a privilege that includes it or a wildcard that covers it
    group: str | None = None

    def __str__(self) -> str:
        to = {
            GrantedVia.USER: "names the actor",
            GrantedVia.ALL_USERS: "is for all users",
            GrantedVia.GROUP: f"names {self.group}",
        }
        return f"{self.policy.name!r} ({self.policy.urn}), which {to[self.via]}"


@dataclass(frozen=True, slots=True)
class Explanation:
    """Whether an actor has a privilege or scope, and which policies grant it."""

    actor: str
    right: Right
    suspended: bool
    grants: tuple[PolicyMatch, ...]
    refusal: Fault | None  # the error that the actor would get; None: it has the right

    @property
    def explanation(self) -> str:
        if self.refusal is not None:
            return self.refusal.message
        named = "; by ".join(str(match) for match in self.grants[:MOST_NAMED])
        more = len(self.grants) - MOST_NAMED
        return f"Allowed by {named}{f'; and {more} more' if more > 0 else ''}."


def grants_of(policies: Iterable[Policy], actor: str, groups: Iterable[str], right: Right) -> tuple[PolicyMatch, ...]:
    """Every ACTIVE policy that grants the privilege or scope, once for each way it includes the actor."""
    mine = sorted(groups)
    found: list[PolicyMatch] = []
    for policy in policies:
        named = granting(policy.privileges, policy.scopes, right)
        if named is None or policy.state is not PolicyState.ACTIVE:
            continue
        if actor in policy.users:
            found.append(PolicyMatch(policy, GrantedVia.USER, named))
        found += [PolicyMatch(policy, GrantedVia.GROUP, named, group) for group in mine if group in policy.groups]
        if policy.all_users:
            found.append(PolicyMatch(policy, GrantedVia.ALL_USERS, named))
    return tuple(found)


def granting(privileges: Collection[Privilege], scopes: Collection[str], right: Right) -> Right | None:
    """The entry among those of a policy that grants the privilege or scope."""
    if isinstance(right, str):
        return covering(scopes, right)
    if right in privileges:
        return right
    return next((one for one in Privilege if one in privileges and right in included([one])), None)


class ChangeKind(Enum):
    CREATE = "CREATE"
    UPDATE = "UPDATE"
    DELETE = "DELETE"


class Change(NamedTuple, Generic[T]):
    kind: ChangeKind
    urn: str
    before: T | None
    after: T | None


PolicyChange = Change[Policy]


class PartPlan(NamedTuple, Generic[T, C]):
    """For one kind of what a set declares: the changes to make, and what is no longer declared and stays in the set."""

    changes: tuple[C, ...] = ()
    undeclared: tuple[T, ...] = ()


@dataclass(frozen=True, slots=True)
class PolicyDeclaration:
    """All policies of one set, and its groups, accounts, retention rules, webhooks and resources."""

    policies: tuple[Policy, ...]
    set_name: str = DEFAULT_SET
    entities: "DeclaredEntities | None" = None
    rules: "tuple[RetentionRule, ...]" = ()
    webhooks: "tuple[Webhook, ...]" = ()
    resources: "tuple[Resource, ...]" = ()


@dataclass(frozen=True, slots=True)
class PolicyPlan:
    """The changes to make, and the policies of the set that are no longer declared and not deleted."""

    changes: tuple[PolicyChange, ...] = ()
    undeclared: tuple[Policy, ...] = ()
    entities: "EntityPlan | None" = None
    rules: "RulePlan | None" = None
    webhooks: "WebhookPlan | None" = None
    resources: "ResourcePlan | None" = None

    @property
    def all_changes(self) -> "tuple[PolicyChange | EntityChange, ...]":
        """Of all that has a urn: all but the retention rules, webhooks and resources."""
        return (*self.changes, *(() if self.entities is None else self.entities.changes))

    @property
    def rule_changes(self) -> "tuple[RuleChange, ...]":
        return () if self.rules is None else self.rules.changes

    @property
    def webhook_changes(self) -> "tuple[WebhookChange, ...]":
        return () if self.webhooks is None else self.webhooks.changes

    @property
    def resource_changes(self) -> "tuple[ResourceChange, ...]":
        return () if self.resources is None else self.resources.changes


def check_declared(policies: Sequence[Policy], set_name: str = DEFAULT_SET) -> PolicyDeclaration:
    """Validate the policies of a set; the fault names the policy and the field."""
    check_short_id(set_name, "set")
    if set_name == DATAHUB_SET:
        raise invalid("set", f"set must not be {DATAHUB_SET}: that set holds imports from DataHub.")
    check_length(policies, "policies", MAX_DECLARED)
    seen: set[str] = set()
    for index, policy in enumerate(policies):
        where = f"policies[{index}]"
        check_short_id(policy.urn.removeprefix(POLICY_PREFIX), f"{where}.id")
        if policy.urn == ROOT_POLICY:
            raise invalid(f"{where}.id", f"{where}.id must not be root: the service manages that policy itself.")
        if policy.urn in seen:
            raise invalid(f"{where}.id", f"{where}.id is declared twice; ids must be unique.")
        seen.add(policy.urn)
        try:
            check_policy(policy)
        except Fault as fault:
            raise invalid(f"{where}.{fault.details['field']}", f"{where}.{fault.message}") from None
    kept = tuple(replace(policy, source=PolicySource.FILE, set_name=set_name) for policy in policies)
    return PolicyDeclaration(kept, set_name)


def reconcile(current: Iterable[Policy], declared: PolicyDeclaration, *, prune: bool) -> PolicyPlan:
    """The plan that turns the current policies into the declared ones."""
    kept = {policy.urn: policy for policy in current}
    changes: list[PolicyChange] = []
    for policy in declared.policies:
        before = kept.pop(policy.urn, None)
        if before is None:
            changes.append(PolicyChange(ChangeKind.CREATE, policy.urn, None, policy))
        elif not before.editable:
            raise Fault(Reason.NOT_EDITABLE, f"{policy.urn} is managed by the service itself and cannot be declared.")
        elif before.set_name not in (None, declared.set_name):
            raise declared_elsewhere(policy.urn, before.set_name, declared.set_name)
        elif before != policy:
            changes.append(PolicyChange(ChangeKind.UPDATE, policy.urn, before, policy))
    undeclared = tuple(policy for policy in kept.values() if policy.set_name == declared.set_name)
    if not prune:
        return PolicyPlan(tuple(changes), undeclared)
    return PolicyPlan((*changes, *(PolicyChange(ChangeKind.DELETE, gone.urn, gone, None) for gone in undeclared)))


def declared_elsewhere(urn: str, other: str | None, set_name: str) -> Fault:
    return Fault(
        Reason.POLICY_DECLARED_ELSEWHERE,
        f"{urn} belongs to the policy set {other!r}; this is the set {set_name!r}. "
        "Nothing was changed. Choose another name or id, or remove it from that set first.",
        set=other,
    )


def summary(changes: "Iterable[PolicyChange | EntityChange | RuleChange | WebhookChange | ResourceChange]") -> str:
    """For example: 2 created, 1 removed."""
    kinds = [change.kind for change in changes]
    words = {ChangeKind.CREATE: "created", ChangeKind.UPDATE: "updated", ChangeKind.DELETE: "removed"}
    counts = [f"{kinds.count(kind)} {word}" for kind, word in words.items() if kind in kinds]
    return ", ".join(counts) or "nothing to change"


MAX_ACTORS = 5_000
"""Whose privileges are compared before and after a change, and who are listed as holders."""
MAX_NAMED = 20

Memberships = Mapping[str, tuple[str, ...]]
"""The groups of each actor."""


class RightChange(NamedTuple):
    right: Right
    gained: bool
    actors: tuple[str, ...] | None  # None: all users, except those to whom other policies grant it


class PolicyEffect(NamedTuple):
    applies_to: int | None  # as of the function
    changes: tuple[RightChange, ...]
    complete: bool  # False: it names more than MAX_ACTORS, and only MAX_ACTORS were compared


class Holder(NamedTuple):
    """One way in which an actor, or with None every user, holds a privilege or scope."""

    actor: str | None
    match: PolicyMatch


def applies_to(policy: Policy | None, memberships: Memberships) -> int | None:
    """How many of these actors the policy names, alone or by a group; None: it is for all users."""
    if policy is None:
        return 0
    named = (actor in policy.users or policy.groups.intersection(groups) for actor, groups in memberships.items())
    return None if policy.all_users else sum(map(bool, named))


def right_changes(
    policies: PolicySet, before: Policy | None, after: Policy | None, memberships: Memberships
) -> tuple[RightChange, ...]:
    """What these actors, and all users, gain and lose if one policy becomes another. Gains first, then by right."""
    others = tuple(policy for policy in policies.policies if policy != before)
    then = PolicySet(policies.version, others if after is None else (*others, after))
    rights = list(_rights(policy for policy in (before, after) if policy is not None))
    of_all = dict(_changed_rights(policies, then, "", (), rights))
    moved: dict[tuple[Right, bool], list[str]] = {}
    for actor, groups in sorted(memberships.items()):
        for right, gained in _changed_rights(policies, then, actor, groups, rights):
            if right not in of_all:
                moved.setdefault((right, gained), []).append(actor)
    changes = [RightChange(right, gained, None) for right, gained in of_all.items()]
    changes += [RightChange(right, gained, tuple(actors)) for (right, gained), actors in moved.items()]
    return tuple(sorted(changes, key=lambda change: (not change.gained, rights.index(change.right))))


def _changed_rights(
    was: PolicySet, then: PolicySet, actor: str, groups: Iterable[str], rights: Iterable[Right]
) -> Iterator[tuple[Right, bool]]:
    """The rights that an actor gains (True) or loses."""
    held, will_hold = ((policies.granted(actor, groups), policies.scopes(actor, groups)) for policies in (was, then))
    if held == will_hold:
        return
    for right in rights:
        before, after = (granting(*some, right) is not None for some in (held, will_hold))
        if before != after:
            yield right, after


def _rights(policies: Iterable[Policy]) -> Iterator[Right]:
    given = list(policies)
    privileges = included(privilege for policy in given for privilege in policy.privileges)
    yield from (privilege for privilege in Privilege if privilege in privileges)
    yield from sorted({scope for policy in given for scope in policy.scopes})


def granting_policies(policies: Iterable[Policy], right: Right) -> tuple[Policy, ...]:
    return tuple(
        policy
        for policy in policies
        if policy.state is PolicyState.ACTIVE and granting(policy.privileges, policy.scopes, right) is not None
    )


def page_of_holders(
    policies: Iterable[Policy], right: Right, memberships: Memberships, start: int, count: int
) -> tuple[int, tuple[Holder, ...]]:
    """How many holders there are, and some of them: all users first, then these actors by urn. Only those are built:
    there may be as many as policies times actors.
    """
    some = granting_policies(policies, right)
    ways = Counter(chain.from_iterable(chain(policy.users, policy.groups) for policy in some))
    found = [Holder(None, match) for match in grants_of(some, "", (), right)]
    total, found = len(found), found[start : start + count]
    for actor, groups in sorted(memberships.items()):
        number = ways[actor] + sum(map(ways.__getitem__, groups))
        if total < start + count and total + number > start:
            mine = [policy for policy in some if actor in policy.users or not policy.groups.isdisjoint(groups)]
            matches = [m for m in grants_of(mine, actor, groups, right) if m.via is not GrantedVia.ALL_USERS]
            found += [Holder(actor, match) for match in matches[max(0, start - total) : start + count - total]]
        total += number
    return total, tuple(found)
