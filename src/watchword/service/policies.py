"""Policies, groups and the status of actors. Changes take effect at the next request."""

import asyncio
from collections.abc import Awaitable, Callable, Collection
from dataclasses import dataclass, replace

from watchword.domain.actors import (
    ActorHoldings,
    ActorPage,
    ActorSearch,
    ActorState,
    ActorStatus,
    Caller,
    Grant,
    Profile,
)
from watchword.domain.declared_entities import plan_declaration
from watchword.domain.errors import Fault, Reason, invalid
from watchword.domain.filters import PolicyFilter
from watchword.domain.names import GROUP_PREFIX, NOTHING_STORED, POLICY_PREFIX, ShownActor, check_short_id, is_account
from watchword.domain.policies import (
    MAX_ACTORS,
    Explanation,
    Holder,
    Policy,
    PolicyDeclaration,
    PolicyEffect,
    PolicyPlan,
    PolicySet,
    Privilege,
    Right,
    applies_to,
    check_policy,
    denied,
    granting_policies,
    grants_of,
    out_of_scope,
    page_of_holders,
    right_changes,
)
from watchword.domain.ports import Group, Store
from watchword.domain.resources import Resource
from watchword.domain.webhooks import MAX_WEBHOOKS, without_secret_path
from watchword.service.authority import Authority, not_accepted
from watchword.service.webhooks import with_secrets

MANAGE, VIEW = Privilege.MANAGE_POLICIES, Privilege.VIEW_POLICIES
SEE_ACTORS = (MANAGE, Privilege.MANAGE_ACCESS_TOKENS)
WEBHOOKS = (Privilege.MANAGE_WEBHOOKS, Privilege.VIEW_AUDIT_LOG)


@dataclass(frozen=True, slots=True)
class Policies:
    _store: Store
    _authority: Authority
    _root_actor: str
    _new_id: Callable[[], str]
    _webhook_secret: Callable[[str], bytes]

    def authorize(self, caller: Caller) -> Awaitable[Grant]:
        return self._authority.authorize(caller, MANAGE)

    def authorize_view(self, caller: Caller) -> Awaitable[Grant]:
        return self._authority.authorize(caller, VIEW)

    def authorize_any(self, caller: Caller) -> Awaitable[Grant]:
        """For questions whose answer depends on the privileges, and needs none."""
        return self._authority.authorize(caller)

    async def authorize_for(self, caller: Caller, actor: str) -> Grant:
        """Authorize a question about an actor: callers may ask about themselves."""
        return await self._authority.authorize(caller, *(() if actor == caller.actor else (VIEW,)))

    def authorize_list_actors(self, caller: Caller) -> Awaitable[Grant]:
        return self._authority.authorize(caller, *SEE_ACTORS)

    async def authorize_see(self, caller: Caller, actor: str) -> Grant:
        """Authorize what `listActors` shows of one actor: callers may see themselves."""
        return await self._authority.authorize(caller, *(() if actor == caller.actor else SEE_ACTORS))

    async def authorize_group(self, caller: Caller, group: str) -> Grant:
        """Members may see the name of their group."""
        return await self._authority.authorize(caller, *(() if group in caller.snapshot.groups else (VIEW,)))

    async def create(self, grant: Grant, policy: Policy) -> str:
        grant.expect(MANAGE)
        policy = check_policy(replace(policy, urn=POLICY_PREFIX + self._new_id()))
        await self._authority.change(grant, self._store.add_policy, policy)
        return policy.urn

    async def update(self, grant: Grant, policy: Policy, *, create: bool = False, revision: str | None = None) -> None:
        """Update a policy, only of this revision if one is given; with `create`, create one that does not exist."""
        grant.expect(MANAGE)
        policy = check_policy(policy)
        if create:
            check_short_id(policy.urn.removeprefix(POLICY_PREFIX), "urn", "The id at the end of urn")
        await self._authority.change(grant, self._store.replace_policy, policy, create=create, revision=revision)

    async def delete(self, grant: Grant, urn: str) -> None:
        grant.expect(MANAGE)
        await self._authority.change(grant, self._store.delete_policy, urn)

    async def apply(self, grant: Grant, declared: PolicyDeclaration, *, prune: bool, dry_run: bool) -> PolicyPlan:
        """Make a set of policies, groups, accounts, retention rules, webhooks and resources match a declaration. To
        declare accounts needs Manage Service Accounts too, to change rules Truncate time series index, to change
        webhooks what `Webhooks` needs. With `dry_run`, only return the changes, for which View Policies is enough.
        """
        grant.expect(VIEW if dry_run else MANAGE)
        accounts = () if declared.entities is None else declared.entities.accounts
        if dry_run:
            return await self._preview(grant, declared, prune=prune)
        needed = (Privilege.MANAGE_SERVICE_ACCOUNTS,) if accounts else ()
        grant = grant.requiring(MANAGE, also=(*needed, *(WEBHOOKS if declared.webhooks else ())))
        declared = with_secrets(declared, self._webhook_secret)
        return await self._authority.write(
            grant,
            lambda grant: self._store.apply_policies(grant.precondition, declared, prune=prune, require=grant.require),
        )

    async def _preview(self, grant: Grant, declared: PolicyDeclaration, *, prune: bool) -> PolicyPlan:
        policies, entities = await self._store.policies(), await self._store.entities(declared)
        rules = (await self._store.retention()).rules
        webhooks = (await self._store.webhooks(0, MAX_WEBHOOKS)).rows
        found = policies.policies, entities, rules, webhooks, policies.resources
        plan = plan_declaration(*found, declared, prune=prune)
        if plan.webhooks is None or all(map(grant.may, WEBHOOKS)):
            return plan
        changes = tuple(map(without_secret_path, plan.webhooks.changes))
        return replace(plan, webhooks=plan.webhooks._replace(changes=changes))

    async def get(self, grant: Grant, urn: str) -> Policy:
        grant.expect(VIEW)
        return _find(await self._store.policies(), urn)

    async def list(self, grant: Grant, query: str | None, only: PolicyFilter) -> tuple[Policy, ...]:
        """Return policies by name; with a query, those whose name or description contains it."""
        grant.expect(VIEW)
        policies = filter(only.matches, (await self._store.policies()).policies)
        wanted = (query or "").strip().lower()
        if wanted in ("", "*"):
            return tuple(policies)
        return tuple(p for p in policies if wanted in f"{p.name}\n{p.description or ''}".lower())

    async def resources(self, grant: Grant) -> tuple[Resource, ...]:
        """The resources by name."""
        grant.expect(VIEW)
        return (await self._store.policies()).resources

    async def granted(self, grant: Grant, actor: str) -> tuple[frozenset[Privilege], frozenset[str]]:
        """The privileges and scopes of an actor; for the caller, within the scopes of its token."""
        if actor == grant.caller.actor:
            return grant.privileges, grant.scopes
        snapshot, policies = await self._authority.snapshot_and_policies(actor)
        return policies.granted(actor, snapshot.groups), policies.scopes(actor, snapshot.groups)

    async def explain(self, grant: Grant, actor: str, right: Right) -> Explanation:
        """Whether an actor has a privilege or scope, and why; for the caller, with the scopes of its token. A token
        whose scopes exclude View Policies does not see the policies behind a right that its scopes exclude.
        """
        caller = grant.caller
        snapshot, policies = await self._authority.snapshot_and_policies(actor)
        found = grants_of(policies.policies, actor, snapshot.groups, right)
        refusal: Fault | None = None
        if snapshot.suspended:
            refusal = not_accepted()
        elif actor == caller.actor and not caller.limits.allow(right):
            refusal = out_of_scope(right, caller.limits.scopes or ())
            found = found if grant.may(VIEW) else ()
        elif not found:
            refusal = denied(right)
        return Explanation(actor, right, snapshot.suspended, found, refusal)

    async def effect(self, grant: Grant, urn: str | None, policy: Policy | None) -> PolicyEffect:
        """What changes if the policy with this urn becomes this one. Without a urn it is new; without a policy the one
        with this urn is deleted.
        """
        grant.expect(VIEW)
        found = await self._store.policies()
        before = None if urn is None else _editable(found, urn)
        after = None if policy is None else check_policy(replace(policy, urn=urn or POLICY_PREFIX + "new"))
        named = [one for one in (before, after) if one is not None]
        memberships = await self._store.memberships(
            {user for one in named for user in one.users}, {group for one in named for group in one.groups}, MAX_ACTORS
        )
        changes = right_changes(found, before, after, memberships)
        return PolicyEffect(applies_to(after, memberships), changes, complete=len(memberships) <= MAX_ACTORS)

    async def holders(self, grant: Grant, right: Right, start: int, count: int) -> tuple[int, tuple[Holder, ...], bool]:
        """Who holds a privilege or scope, once for each way: how many, a page, and whether all were looked at."""
        grant.expect(VIEW)
        policies = granting_policies((await self._store.policies()).policies, right)
        memberships = await self._store.memberships(
            {user for policy in policies for user in policy.users},
            {group for policy in policies for group in policy.groups},
            MAX_ACTORS,
        )
        total, found = await asyncio.to_thread(page_of_holders, policies, right, memberships, start, count)
        return total, found, len(memberships) <= MAX_ACTORS

    async def actors(self, grant: Grant, search: ActorSearch, seconds: float) -> ActorPage:
        grant.expect(*SEE_ACTORS)
        return await self._store.known_actors(search, seconds)

    async def find_actor(self, grant: Grant, urn: str) -> ActorState | None:
        """The status of a known actor; None if it is not known, or the caller may not see it. Callers may see
        themselves.
        """
        if urn != grant.caller.actor and not _may_see(grant):
            return None
        state = await self._store.actor_state(urn)
        known = state.changed_at is not None or (await self._store.actor_holdings(urn)).known
        return state if known else None

    async def find_actors(
        self, grant: Grant, query: str, start: int, count: int, seconds: float
    ) -> tuple[int, tuple[str, ...]]:
        grant.expect(*SEE_ACTORS)
        return await self._store.find_actors(query, start, count, seconds)

    async def create_group(self, grant: Grant, short_id: str | None, name: str, description: str | None) -> str:
        grant.expect(MANAGE)
        group = Group(GROUP_PREFIX + (short_id or self._new_id()), name, description)
        await self._authority.change(grant, self._store.add_group, group)
        return group.urn

    async def delete_group(self, grant: Grant, urn: str) -> None:
        grant.expect(MANAGE)
        await self._authority.change(grant, self._store.delete_group, urn)

    async def change_members(
        self, grant: Grant, group: str, *, add: Collection[str] = (), remove: Collection[str] = ()
    ) -> None:
        grant.expect(MANAGE)
        await self._authority.change(grant, self._store.change_members, group, add=add, remove=remove)

    async def get_group(self, grant: Grant, urn: str) -> Group:
        grant.expect(VIEW)
        return await self._store.get_group(urn)

    async def see_group(self, grant: Grant, urn: str) -> Group:
        """Return a group, also to its members, and also one of the identity provider."""
        if grant.required or urn not in grant.caller.snapshot.groups:
            grant.expect(VIEW)
        return _visible(grant, await self._store.get_group(urn, external=True))

    async def groups(self, grant: Grant, start: int, count: int, query: str) -> tuple[int, tuple[Group, ...]]:
        grant.expect(VIEW)
        return await self._store.groups(start, count, query)

    async def members(self, grant: Grant, group: str, start: int, count: int) -> tuple[int, tuple[str, ...]]:
        grant.expect(VIEW)
        return await self._store.members(group, start, count)

    async def groups_of(
        self, grant: Grant, actor: str, start: int, count: int, *, external: bool
    ) -> tuple[int, tuple[Group, ...]]:
        grant.expect(*(() if actor == grant.caller.actor else SEE_ACTORS))
        total, groups = await self._store.groups_of(actor, start, count, external=external)
        return total, tuple(_visible(grant, group) for group in groups)

    async def actor_state(self, grant: Grant, urn: str) -> tuple[ActorState, ActorHoldings]:
        grant.expect(MANAGE)
        return await self._store.actor_state(urn), await self._store.actor_holdings(urn)

    async def set_actor_status(self, grant: Grant, urn: str, status: ActorStatus) -> None:
        grant.expect(MANAGE)
        if status is ActorStatus.SUSPENDED:
            self.check_suspendable(urn)
        await self._authority.change(grant, self._store.set_actor_status, urn, status)

    async def set_profile(self, grant: Grant, urn: str, profile: Profile) -> None:
        grant.expect(MANAGE)
        if is_account(urn):
            raise invalid("urn", "urn must not be that of a service account, whose name is set when it is created.")
        await self._authority.change(grant, self._store.set_profile, urn, profile)

    async def names_of(self, actors: Collection[str]) -> dict[str, str]:
        """The display names of actors. Only for urns that the caller was allowed to see."""
        found = await self._store.shown_actors(actors) if actors else {}
        return {urn: shown.name for urn, shown in found.items() if shown.name is not None}

    async def shown_actors(self, grant: Grant, actors: Collection[str]) -> dict[str, ShownActor]:
        """Return names, and e-mail addresses and status of the caller itself or to callers who may list actors."""
        sees_all = _may_see(grant)
        found = await self._store.shown_actors(actors) if actors else {}
        shown = {urn: found.get(urn, NOTHING_STORED) for urn in actors}
        return {
            urn: one if sees_all or urn == grant.caller.actor else ShownActor(one.name) for urn, one in shown.items()
        }

    def check_suspendable(self, urn: str) -> None:
        if urn == self._root_actor:
            raise Fault(Reason.NOT_EDITABLE, "The root actor cannot be suspended; change WATCHWORD_ROOT_ACTOR instead.")


def _find(policy_set: PolicySet, urn: str) -> Policy:
    for policy in policy_set.policies:
        if policy.urn == urn:
            return policy
    raise Fault(Reason.POLICY_NOT_FOUND, "There is no policy with this urn.")


def _editable(policy_set: PolicySet, urn: str) -> Policy:
    policy = _find(policy_set, urn)
    if not policy.editable:
        raise Fault(Reason.NOT_EDITABLE, "The service keeps this policy itself. It cannot be changed or deleted.")
    return policy


def _may_see(grant: Grant) -> bool:
    """Whether the caller may see other actors."""
    return any(grant.may(privilege) for privilege in SEE_ACTORS)


def _visible(grant: Grant, group: Group) -> Group:
    """Members of a group see neither how many they are nor which policy set declares it."""
    return group if grant.may(VIEW) else replace(group, members=None, set_name=None)
