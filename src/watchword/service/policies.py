"""Policies, groups and the status of actors: managed with Manage Policies, in force at the next request.

Input comes as something to call, so that it is judged only once the caller has been found to be allowed.
"""

from collections.abc import Callable, Collection
from dataclasses import replace

from watchword.domain.actors import ActorHoldings, ActorPage, ActorSearch, ActorState, ActorStatus, Caller, Grant
from watchword.domain.errors import Fault, Reason
from watchword.domain.policies import Explanation, Policy, Privilege, check_policy, denied, grounds, out_of_scope
from watchword.domain.policy_sets import PolicyDeclaration, PolicyPlan, reconcile
from watchword.domain.ports import Group, PolicyStore
from watchword.domain.urns import POLICY_PREFIX
from watchword.service.authority import Authority, not_accepted

MANAGE = Privilege.MANAGE_POLICIES
NewId = Callable[[], str]
Span = tuple[int, int]


class Policies:
    def __init__(self, store: PolicyStore, authority: Authority, root_actor: str, new_id: NewId) -> None:
        self._store = store
        self._authority = authority
        self._root_actor = root_actor
        self._new_id = new_id

    async def create(self, caller: Caller, draft: Callable[[], Policy]) -> str:
        async def write(grant: Grant) -> str:
            grant.require(MANAGE)
            policy = check_policy(replace(draft(), urn=POLICY_PREFIX + self._new_id()))
            await self._store.add_policy(grant.precondition, policy)
            return policy.urn

        return await self._authority.authorize_and_write(caller, write)

    async def update(self, caller: Caller, draft: Callable[[], Policy]) -> str:
        async def write(grant: Grant) -> str:
            grant.require(MANAGE)
            policy = check_policy(draft())
            await self._store.replace_policy(grant.precondition, policy)
            return policy.urn

        return await self._authority.authorize_and_write(caller, write)

    async def delete(self, caller: Caller, wanted: Callable[[], str]) -> str:
        async def write(grant: Grant) -> str:
            grant.require(MANAGE)
            urn = wanted()
            await self._store.delete_policy(grant.precondition, urn)
            return urn

        return await self._authority.authorize_and_write(caller, write)

    async def apply(
        self, caller: Caller, declared: Callable[[], PolicyDeclaration], *, prune: bool, dry_run: bool
    ) -> tuple[PolicyDeclaration, PolicyPlan]:
        """Bring a set of policies to what is declared, or only say what that would change."""

        async def write(grant: Grant) -> tuple[PolicyDeclaration, PolicyPlan]:
            grant.require(MANAGE)
            wanted = declared()
            if dry_run:
                return wanted, reconcile((await self._store.policies()).policies, wanted, prune=prune)
            return wanted, await self._store.apply_policies(grant.precondition, wanted, prune=prune)

        return await self._authority.authorize_and_write(caller, write)

    async def get(self, caller: Caller, wanted: Callable[[], str]) -> Policy:
        await self._require(caller)
        urn = wanted()
        for policy in (await self._store.policies()).policies:
            if policy.urn == urn:
                return policy
        raise Fault(Reason.POLICY_NOT_FOUND, "There is no policy with this urn.")

    async def list(self, caller: Caller, query: str | None) -> tuple[Policy, ...]:
        """All policies by name, or those in whose name or description the words occur."""
        await self._require(caller)
        policies = (await self._authority.policies()).policies
        wanted = (query or "").strip().lower()
        if wanted in ("", "*"):
            return policies
        return tuple(p for p in policies if wanted in f"{p.name}\n{p.description or ''}".lower())

    async def granted(self, caller: Caller, actor: str) -> frozenset[Privilege]:
        """What an actor may do: one's own for the asking, another's with Manage Policies."""
        grant = await self._authority.grant(caller)
        if actor == caller.actor:
            return grant.privileges
        grant.require(MANAGE)
        return await self._authority.privileges_of(actor)

    async def explain(self, caller: Caller, actor: str, wanted: Callable[[], Privilege]) -> Explanation:
        """Whether an actor may do this, and why: one's own (with the token that asks) for the asking, another's with
        Manage Policies. What the scopes of the token take away is not looked up for it.
        """
        own = actor == caller.actor
        grant = await self._authority.grant(caller)
        if not own:
            grant.require(MANAGE)
        privilege = wanted()
        snapshot, policies = await self._authority.position_of(actor)
        found = grounds(policies.policies, actor, snapshot.groups, privilege)
        refusal: Fault | None = None
        if snapshot.suspended:
            refusal = not_accepted()
        elif own and privilege not in caller.limits.privileges:
            refusal = out_of_scope(privilege, caller.limits.scopes or ())
            found = found if grant.may(MANAGE) else ()
        elif not found:
            refusal = denied(privilege)
        return Explanation(actor, privilege, snapshot.suspended, found, refusal)

    async def actors(
        self, caller: Caller, wanted: Callable[[], ActorSearch], seconds: float
    ) -> tuple[ActorSearch, ActorPage]:
        (await self._authority.grant(caller)).require_any(MANAGE, Privilege.MANAGE_ACCESS_TOKENS)
        search = wanted()
        return search, await self._store.known_actors(search, seconds)

    async def create_group(self, caller: Caller, draft: Callable[[], Group]) -> str:
        async def write(grant: Grant) -> str:
            grant.require(MANAGE)
            group = draft()
            await self._store.add_group(grant.precondition, group)
            return group.urn

        return await self._authority.authorize_and_write(caller, write)

    async def delete_group(self, caller: Caller, urn: Callable[[], str]) -> None:
        async def write(grant: Grant) -> None:
            grant.require(MANAGE)
            await self._store.delete_group(grant.precondition, urn())

        await self._authority.authorize_and_write(caller, write)

    async def change_members(
        self,
        caller: Caller,
        group: Callable[[], str],
        *,
        add: Callable[[], Collection[str]] = tuple,
        remove: Callable[[], Collection[str]] = tuple,
    ) -> None:
        async def write(grant: Grant) -> None:
            grant.require(MANAGE)
            await self._store.change_members(grant.precondition, group(), add=add(), remove=remove())

        await self._authority.authorize_and_write(caller, write)

    async def get_group(self, caller: Caller, urn: Callable[[], str]) -> Group:
        await self._require(caller)
        return await self._store.get_group(urn())

    async def groups(self, caller: Caller, page: Callable[[], Span]) -> tuple[int, int, int, tuple[Group, ...]]:
        await self._require(caller)
        start, count = page()
        return start, count, *await self._store.groups(start, count)

    async def members(
        self, caller: Caller, group: Callable[[], str], page: Callable[[], Span]
    ) -> tuple[int, int, int, tuple[str, ...]]:
        await self._require(caller)
        start, count = page()
        return start, count, *await self._store.members(group(), start, count)

    async def actor_state(self, caller: Caller, actor: Callable[[], str]) -> tuple[ActorState, ActorHoldings]:
        await self._require(caller)
        urn = actor()
        return await self._store.actor_state(urn), await self._store.actor_holdings(urn)

    async def set_actor_status(self, caller: Caller, actor: Callable[[], str], status: ActorStatus) -> None:
        async def write(grant: Grant) -> None:
            grant.require(MANAGE)
            urn = actor()
            if status is ActorStatus.SUSPENDED:
                self.check_suspendable(urn)
            await self._store.set_actor_status(grant.precondition, urn, status)

        await self._authority.authorize_and_write(caller, write)

    def check_suspendable(self, urn: str) -> None:
        if urn == self._root_actor:
            raise Fault(Reason.NOT_EDITABLE, "The root actor cannot be suspended; change WATCHWORD_ROOT_ACTOR instead.")

    async def _require(self, caller: Caller) -> None:
        (await self._authority.grant(caller)).require(MANAGE)
