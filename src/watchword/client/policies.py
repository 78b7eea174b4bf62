"""Policies and privileges: who may do what, and the sets that files declare."""

from collections.abc import Iterable
from dataclasses import asdict
from typing import Any

from watchword.client.records import Json, Record, UserInfo
from watchword.client.requests import (
    PAGE_SIZE,
    ApiRequest,
    Listing,
    as_list,
    ask,
    ask_tuple,
    ignore,
    list_records,
    lists,
    rule_input,
    sends,
    word_lists,
)


class PolicyActors(Record):
    """To whom a policy grants its privileges and scopes."""

    users: tuple[str, ...] = ()
    groups: tuple[str, ...] = ()
    all_users: bool = False


class GrantedActors(PolicyActors):
    """The actors of a policy that the server stores. `resolved_users` has the names of `users`."""

    resolved_users: tuple[UserInfo, ...] = ()


class PolicyInfo(Record):
    """A policy as the server stores it."""

    urn: str
    name: str
    state: str
    description: str | None
    privileges: tuple[str, ...]
    scopes: tuple[str, ...]
    actors: GrantedActors
    editable: bool
    source: str
    set: str | None
    revision: str


class DeclaredPolicyInfo(Record):
    """A policy to apply. Its urn ends with `id`."""

    id: str
    name: str
    privileges: tuple[str, ...]
    actors: PolicyActors
    description: str | None = None
    state: str = "ACTIVE"
    scopes: tuple[str, ...] = ()


class DeclaredGroupInfo(Record):
    """A group to apply. Its urn ends with `id`. `members` has the urns of all members; None: they stay as they are."""

    id: str
    name: str
    description: str | None = None
    members: tuple[str, ...] | None = None


class DeclaredAccountInfo(Record):
    """A service account to apply. Its urn ends with `id`. `groups` are urns of groups that are declared with it."""

    id: str
    name: str
    description: str | None = None
    groups: tuple[str, ...] = ()


class EntityDiff(Record):
    """A group or service account before and after a change. `change` is CREATE, UPDATE or DELETE."""

    change: str
    urn: str
    before: Json | None
    after: Json | None


class PolicyDiff(Record):
    """A policy before and after a change. `change` is CREATE, UPDATE or DELETE."""

    change: str
    urn: str
    before: PolicyInfo | None
    after: PolicyInfo | None


class RetentionRuleDiff(Record):
    """A retention rule before and after a change. `change` is CREATE, UPDATE or DELETE."""

    change: str
    series: str
    before: Json | None
    after: Json | None


class WebhookDiff(Record):
    """A change of a webhook: what a policy file declares of it, before and after."""

    change: str
    id: str
    before: Json | None
    after: Json | None


class ResourceInfo(Record):
    """A service whose gateway verifies tokens for an audience of its own, `id`, at `/resources/<name>/auth`."""

    name: str
    id: str
    set: str


class ResourceDiff(Record):
    """A resource before and after a change. `change` is CREATE, UPDATE or DELETE."""

    change: str
    name: str
    before: Json | None
    after: Json | None


class AppliedPolicies(Record):
    """What `apply_policies` changed: policies, groups and accounts (`entities`), retention rules, webhooks, resources.
    `undeclared` has the policies of the set that were not declared and were kept, because `prune` was not set;
    `undeclared_entities` has the urns of groups and accounts, `undeclared_retention` the series of rules,
    `undeclared_webhooks` the ids of webhooks, `undeclared_resources` the names of resources.
    """

    set: str
    dry_run: bool
    changes: tuple[PolicyDiff, ...]
    entities: tuple[EntityDiff, ...]
    retention: tuple[RetentionRuleDiff, ...]
    webhooks: tuple[WebhookDiff, ...]
    resources: tuple[ResourceDiff, ...]
    unchanged: int
    undeclared: tuple[PolicyInfo, ...]
    undeclared_entities: tuple[str, ...]
    undeclared_retention: tuple[str, ...]
    undeclared_webhooks: tuple[str, ...]
    undeclared_resources: tuple[str, ...]


class PolicyGrant(Record):
    """A policy that grants a privilege or scope. `via` is USER, GROUP or ALL_USERS."""

    policy_urn: str
    policy_name: str
    via: str
    group_urn: str | None
    privilege: str


class PrivilegeExplanation(Record):
    """Whether an actor has a privilege or scope. `explanation` names the policies that grant it, or the error the actor
    gets.
    """

    actor_urn: str
    privilege: str
    allowed: bool
    suspended: bool
    grants: tuple[PolicyGrant, ...]
    explanation: str


class PrivilegeDescription(Record):
    """A privilege and what it allows."""

    name: str
    display_name: str
    allows: str
    includes: tuple[str, ...]
    escalates: bool


class PrivilegeHolder(Record):
    """One way in which an actor holds a privilege or scope. `actor_urn` is None for all users."""

    actor_urn: str | None
    actor_name: str | None
    status: str | None
    policy_urn: str
    policy_name: str
    via: str
    group_urn: str | None
    privilege: str


class PolicyMethods:
    @sends
    def granted_privileges(self, actor: str) -> ApiRequest[tuple[str, ...]]:
        """Get an actor's privileges. Other actors than the caller need View Policies."""
        variables = {"input: GetGrantedPrivilegesInput!": {"actorUrn": actor}}
        return ask("getGrantedPrivileges", tuple, variables, part="privileges")

    @sends
    def granted_scopes(self, actor: str) -> ApiRequest[tuple[str, ...]]:
        """Get the scopes of other services that policies grant an actor. Other actors than the caller need View
        Policies.
        """
        variables = {"input: GetGrantedPrivilegesInput!": {"actorUrn": actor}}
        return ask("getGrantedPrivileges", tuple, variables, part="scopes")

    @sends
    def explain_privilege(self, actor: str, privilege: str) -> ApiRequest[PrivilegeExplanation]:
        """Explain whether an actor has a privilege or a scope, and by which policies."""
        variables = {"input: ExplainPrivilegeInput!": {"actorUrn": actor, "privilege": privilege}}
        return ask("explainPrivilege", PrivilegeExplanation, variables)

    @sends
    def privileges(self) -> ApiRequest[tuple[PrivilegeDescription, ...]]:
        """Get all privileges and what each allows."""
        return ask_tuple("listPrivileges", PrivilegeDescription)

    @lists
    def policies(self, *, query: str | None = None, page_size: int = PAGE_SIZE) -> Listing[PolicyInfo]:
        """List policies, all or those with `query` in their name or description."""
        return list_records("listPolicies", "policies", PolicyInfo, "ListPoliciesInput!", page_size, query=query)

    @lists
    def holders(self, privilege: str, *, page_size: int = PAGE_SIZE) -> Listing[PrivilegeHolder]:
        """List who holds a privilege or scope, once for each way: all users first, then actors by urn."""
        listed = ("listPrivilegeHolders", "holders", PrivilegeHolder, "ListPrivilegeHoldersInput!")
        return list_records(*listed, page_size, key=("actor_urn", "policy_urn", "group_urn"), privilege=privilege)

    @sends
    def get_policy(self, urn: str) -> ApiRequest[PolicyInfo]:
        """Get a policy."""
        return ask("getPolicy", PolicyInfo, {"urn: String!": urn})

    @sends
    def create_policy(
        self,
        name: str,
        privileges: Iterable[str],
        actors: PolicyActors,
        *,
        scopes: Iterable[str] = (),
        description: str | None = None,
        state: str = "ACTIVE",
    ) -> ApiRequest[str]:
        """Create a policy and return its urn. It grants privileges here and scopes of other services."""
        return ask("createPolicy", str, {"input: PolicyUpdateInput!": _policy_input(locals())}, mutation=True)

    @sends
    def update_policy(
        self,
        urn: str,
        name: str,
        privileges: Iterable[str],
        actors: PolicyActors,
        *,
        scopes: Iterable[str] = (),
        description: str | None = None,
        state: str = "ACTIVE",
        revision: str | None = None,
    ) -> ApiRequest[str]:
        """Replace a policy and return its urn. With the revision that was read, only if it has not changed since."""
        wanted = _policy_input(locals())
        variables = {"urn: String!": urn, "input: PolicyUpdateInput!": wanted, "revision: String": revision}
        return ask("updatePolicy", str, variables, mutation=True)

    @sends
    def delete_policy(self, urn: str) -> ApiRequest[None]:
        """Delete a policy."""
        return ask("deletePolicy", ignore, {"urn: String!": urn}, mutation=True)

    @sends
    def apply_policies(
        self,
        declared: Iterable[DeclaredPolicyInfo | Json] = (),
        *,
        groups: Iterable[DeclaredGroupInfo | Json] = (),
        accounts: Iterable[DeclaredAccountInfo | Json] = (),
        retention: Iterable[Json] = (),
        webhooks: Iterable[Json] = (),
        resources: Iterable[Json] = (),
        set_name: str = "default",
        prune: bool = False,
        dry_run: bool = False,
    ) -> ApiRequest[AppliedPolicies]:
        """Create or update the policies, groups, service accounts, retention rules, webhooks and resources of a set in
        one transaction; rules, webhooks and resources are mappings with the keys of a policy file, and the others may
        be. `prune` deletes what the set has and is not declared, but no accounts. A dry run changes nothing and returns
        what would change.
        """
        policies = [_declared_input(policy) for policy in declared]
        others = {"groups": [_plain(one) for one in groups], "accounts": [_plain(one) for one in accounts]}
        others |= {"retention": [rule_input(one) for one in retention], "webhooks": [dict(one) for one in webhooks]}
        others |= {"resources": [dict(one) for one in resources]}
        wanted = {"policies": policies, **others, "set": set_name, "prune": prune, "dryRun": dry_run}
        variables = {"input: ApplyPoliciesInput!": wanted}
        names = {"set": "set_name"}
        return ask("applyPolicies", AppliedPolicies, variables, mutation=True, changes=not dry_run, arguments=names)

    @sends
    def resources(self) -> ApiRequest[tuple[ResourceInfo, ...]]:
        """List the resources that policy files declare."""
        return ask_tuple("listResources", ResourceInfo)


def _policy_input(given: Json) -> dict[str, Any]:
    same = {name: given[name] for name in ("name", "state", "description")}
    lists = word_lists(privileges=given["privileges"], scopes=given["scopes"])
    return {"type": "PLATFORM", **same, **lists, "actors": _actors_input(given["actors"])}


def _declared_input(policy: DeclaredPolicyInfo | Json) -> dict[str, Any]:
    """Without empty parts: the server limits how many parts a body has."""
    sent = {name: value for name, value in _plain(policy).items() if value}
    if isinstance(policy, DeclaredPolicyInfo):
        return sent | {"actors": _actors_input(policy.actors)}
    return sent | {"actors": {name: value for name, value in policy["actors"].items() if value}}


def _plain(declared: Record | Json) -> dict[str, Any]:
    return asdict(declared) if isinstance(declared, Record) else dict(declared)


def _actors_input(actors: PolicyActors) -> dict[str, Any]:
    """Without empty parts, too."""
    users, groups = as_list("actors.users", actors.users), as_list("actors.groups", actors.groups)
    sent = {"users": users, "groups": groups, "allUsers": actors.all_users}
    return {name: value for name, value in sent.items() if value}
