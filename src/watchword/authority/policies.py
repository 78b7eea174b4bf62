"""Policies, which grant privileges here and scopes of other services, to users and groups."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from enum import Enum
from hashlib import sha256
from typing import ClassVar

from watchword.authority.declared_parts import NEEDED, OPTIONAL, TEXTS, FieldForm, FileField, Json, ListFields, Part
from watchword.authority.privileges import EVERYTHING, PRIVILEGE_NAMES, Privilege, privilege_of
from watchword.basics.errors import Fault, Reason, invalid
from watchword.basics.names import (
    GROUP_PREFIX,
    POLICY_PREFIX,
    USER_PREFIX,
    check_actor,
    check_description,
    check_group,
    check_name,
    check_short_id,
    check_urn,
)
from watchword.basics.scopes import ALL_SCOPES, NO_SCOPES, check_scope

ROOT_POLICY = POLICY_PREFIX + "root"
MAX_ENTRIES = 1_000
MAX_SCOPES = 100


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


def existing(policy: Policy | None) -> Policy:
    if policy is None:
        raise Fault(Reason.POLICY_NOT_FOUND, "There is no policy with this urn.")
    return policy


def editable(policy: Policy | None) -> Policy:
    if not existing(policy).editable:
        raise Fault(Reason.NOT_EDITABLE, "The service keeps this policy itself. It cannot be changed or deleted.")
    return existing(policy)


def parse_policy(urn: str, given: Json) -> Policy:
    """A policy of plain values, under the names of `PolicyUpdateInput`. Checks no more than the privileges."""
    actors = given["actors"]
    return Policy(
        urn=urn,
        name=given["name"],
        description=given.get("description"),
        state=PolicyState(given.get("state") or "ACTIVE"),
        privileges=frozenset(privilege_of(word, "privileges") for word in given.get("privileges") or ()),
        scopes=frozenset(given.get("scopes") or ()),
        users=frozenset(actors.get("users") or ()),
        groups=frozenset(actors.get("groups") or ()),
        all_users=bool(actors.get("allUsers")),
    )


class PolicyPart(Part[Policy]):
    lists: ClassVar[ListFields] = {
        "policies": {
            "id": NEEDED,
            "name": NEEDED,
            "description": OPTIONAL,
            "state": FileField(choices=tuple(PolicyState.__members__), allowed="ACTIVE or INACTIVE"),
            "privileges": FileField(
                many=True, choices=tuple(Privilege.__members__), allowed=f"among: {PRIVILEGE_NAMES}"
            ),
            "scopes": TEXTS,
            "actors": FileField(
                required=True,
                fields={
                    "users": FileField(many=True, prefix=USER_PREFIX),
                    "groups": FileField(many=True, prefix=GROUP_PREFIX),
                    "allUsers": FileField(FieldForm.FLAG, nullable=True),
                },
            ),
        }
    }

    def parse_entry(self, name: str, given: Json, set_name: str) -> Policy:
        policy = parse_policy(POLICY_PREFIX + check_short_id(given["id"], "id"), given)
        if policy.urn == ROOT_POLICY:
            raise invalid("id", "id must not be root: the service manages that policy itself.")
        return replace(check_policy(policy), source=PolicySource.FILE, set_name=set_name)

    def name(self, one: Policy) -> str:
        return one.urn

    def is_same(self, before: Policy, after: Policy) -> bool:
        return before == after

    def check(self, stored: Mapping[str, Policy], declared: Sequence[Policy], set_name: str, *, prune: bool) -> None:
        for policy in declared:
            if policy.urn in stored and not stored[policy.urn].editable:
                message = f"{policy.urn} is managed by the service itself and cannot be declared."
                raise Fault(Reason.NOT_EDITABLE, message)


POLICY_PART = PolicyPart()
