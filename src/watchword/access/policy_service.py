"""Policies. Changes take effect at the next request."""

import asyncio
from collections.abc import Awaitable, Callable, Iterable
from dataclasses import dataclass, replace

from watchword.access.explanations import (
    MAX_ACTORS,
    Explanation,
    Holder,
    Memberships,
    PolicyEffect,
    applies_to,
    granting_policies,
    grants_of,
    page_of_holders,
    right_changes,
)
from watchword.access.policy_filter import PolicyFilter
from watchword.access.policy_store import PolicyStore
from watchword.authority.callers import Caller, Grant
from watchword.authority.policies import Policy, check_policy, editable, existing
from watchword.authority.privileges import Privilege, Right, denied, out_of_scope
from watchword.authority.resources import Resource
from watchword.authority.service import Authority, not_accepted
from watchword.basics.errors import Fault
from watchword.basics.names import POLICY_PREFIX, check_short_id

MANAGE, VIEW = Privilege.MANAGE_POLICIES, Privilege.VIEW_POLICIES


@dataclass(frozen=True, slots=True)
class Policies:
    _store: PolicyStore
    _authority: Authority
    _new_id: Callable[[], str]

    def authorize(self, caller: Caller) -> Awaitable[Grant]:
        return self._authority.authorize(caller, MANAGE)

    def authorize_view(self, caller: Caller) -> Awaitable[Grant]:
        return self._authority.authorize(caller, VIEW)

    async def authorize_for(self, caller: Caller, actor: str) -> Grant:
        """Authorize a question about an actor: callers may ask about themselves."""
        return await self._authority.authorize(caller, *(() if actor == caller.actor else (VIEW,)))

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

    async def get(self, grant: Grant, urn: str) -> Policy:
        grant.expect(VIEW)
        return existing((await self._store.policies()).find(urn))

    async def list(self, grant: Grant, query: str | None, only: PolicyFilter) -> tuple[Policy, ...]:
        """Return policies by name; with a query, those whose name or description contains it."""
        grant.expect(VIEW)
        policies = filter(only, (await self._store.policies()).policies)
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
        before = None if urn is None else editable(found.find(urn))
        after = None if policy is None else check_policy(replace(policy, urn=urn or POLICY_PREFIX + "new"))
        memberships = await self._memberships(one for one in (before, after) if one is not None)
        changes = right_changes(found, before, after, memberships)
        return PolicyEffect(applies_to(after, memberships), changes, complete=len(memberships) <= MAX_ACTORS)

    async def holders(self, grant: Grant, right: Right, start: int, count: int) -> tuple[int, tuple[Holder, ...], bool]:
        """Who holds a privilege or scope, once for each way: how many, a page, and whether all were looked at."""
        grant.expect(VIEW)
        policies = granting_policies((await self._store.policies()).policies, right)
        memberships = await self._memberships(policies)
        total, found = await asyncio.to_thread(page_of_holders, policies, right, memberships, start, count)
        return total, found, len(memberships) <= MAX_ACTORS

    async def _memberships(self, policies: Iterable[Policy]) -> Memberships:
        """Of all actors that these policies name, alone or by a group: MAX_ACTORS and one, if there are more."""
        named = list(policies)
        users = {user for policy in named for user in policy.users}
        return await self._store.memberships(users, {group for one in named for group in one.groups}, MAX_ACTORS)
