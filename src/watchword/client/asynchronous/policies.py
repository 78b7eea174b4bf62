"""Policies and privileges: who may do what, and the sets that files declare."""

from collections.abc import Iterable

from watchword.client.answers import (
    AppliedPolicies,
    PolicyInfo,
    PrivilegeDescription,
    PrivilegeExplanation,
    PrivilegeHolder,
    ResourceInfo,
)
from watchword.client.asynchronous.lists import AsyncResults
from watchword.client.asynchronous.namespace import PAGE_SIZE, AsyncNamespace
from watchword.client.inputs import (
    DeclaredAccountInfo,
    DeclaredGroupInfo,
    DeclaredPolicyInfo,
    declared_policy,
    plain,
    policy_input,
)
from watchword.client.records import Json, PolicyActors
from watchword.client.requests import ask, ask_tuple, ignore, rule_input


class AsyncPolicies(AsyncNamespace):
    """List and change policies, and apply policy files."""

    def list(self, *, query: str | None = None, page_size: int = PAGE_SIZE) -> AsyncResults[PolicyInfo]:
        """List policies, all or those with `query` in their name or description."""
        return self._list("listPolicies", "policies", PolicyInfo, "ListPoliciesInput!", page_size, query=query)

    async def get(self, urn: str) -> PolicyInfo:
        """Get a policy."""
        return await self._send(ask("getPolicy", PolicyInfo, {"urn: String!": urn}))

    async def create(
        self,
        name: str,
        privileges: Iterable[str],
        actors: PolicyActors,
        *,
        scopes: Iterable[str] = (),
        description: str | None = None,
        state: str = "ACTIVE",
    ) -> str:
        """Create a policy and return its urn. It grants privileges here and scopes of other services."""
        wanted = policy_input(name, privileges, actors, scopes=scopes, description=description, state=state)
        return await self._send(ask("createPolicy", str, {"input: PolicyUpdateInput!": wanted}, mutation=True))

    async def update(
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
    ) -> str:
        """Replace a policy and return its urn. With the revision that was read, only if it has not changed since."""
        wanted = policy_input(name, privileges, actors, scopes=scopes, description=description, state=state)
        variables = {"urn: String!": urn, "input: PolicyUpdateInput!": wanted, "revision: String": revision}
        return await self._send(ask("updatePolicy", str, variables, mutation=True))

    async def delete(self, urn: str) -> None:
        """Delete a policy."""
        await self._send(ask("deletePolicy", ignore, {"urn: String!": urn}, mutation=True))

    async def apply(
        self,
        policies: Iterable[DeclaredPolicyInfo | Json] = (),
        *,
        groups: Iterable[DeclaredGroupInfo | Json] = (),
        accounts: Iterable[DeclaredAccountInfo | Json] = (),
        retention: Iterable[Json] = (),
        webhooks: Iterable[Json] = (),
        resources: Iterable[Json] = (),
        set: str = "default",
        prune: bool = False,
        dry_run: bool = False,
    ) -> AppliedPolicies:
        """Create or update the policies, groups, service accounts, retention rules, webhooks and resources of a set in
        one transaction; rules, webhooks and resources are mappings with the keys of a policy file, and the others may
        be. `prune` deletes what the set has and is not declared, but no accounts. A dry run changes nothing and returns
        what would change.
        """
        wanted = {
            "policies": [declared_policy(one) for one in policies],
            "groups": [plain(one) for one in groups],
            "accounts": [plain(one) for one in accounts],
            "retention": [rule_input(one) for one in retention],
            "webhooks": [dict(one) for one in webhooks],
            "resources": [dict(one) for one in resources],
            "set": set,
            "prune": prune,
            "dryRun": dry_run,
        }
        variables = {"input: ApplyPoliciesInput!": wanted}
        return await self._send(ask("applyPolicies", AppliedPolicies, variables, mutation=True, changes=not dry_run))


class AsyncPrivileges(AsyncNamespace):
    """Which privileges and scopes there are, and who holds them."""

    async def list(self) -> tuple[PrivilegeDescription, ...]:
        """Get all privileges and what each allows."""
        return await self._send(ask_tuple("listPrivileges", PrivilegeDescription))

    async def granted(self, actor_urn: str) -> tuple[str, ...]:
        """Get an actor's privileges. Other actors than the caller need View Policies."""
        return await self._granted(actor_urn, "privileges")

    async def granted_scopes(self, actor_urn: str) -> tuple[str, ...]:
        """Get the scopes of other services that policies grant an actor. Other actors than the caller need View
        Policies.
        """
        return await self._granted(actor_urn, "scopes")

    async def _granted(self, actor_urn: str, part: str) -> tuple[str, ...]:
        variables = {"input: GetGrantedPrivilegesInput!": {"actorUrn": actor_urn}}
        return await self._send(ask("getGrantedPrivileges", tuple, variables, part=part))

    async def explain(self, actor_urn: str, privilege: str) -> PrivilegeExplanation:
        """Explain whether an actor has a privilege or a scope, and by which policies."""
        variables = {"input: ExplainPrivilegeInput!": {"actorUrn": actor_urn, "privilege": privilege}}
        return await self._send(ask("explainPrivilege", PrivilegeExplanation, variables))

    def holders(self, privilege: str, *, page_size: int = PAGE_SIZE) -> AsyncResults[PrivilegeHolder]:
        """List who holds a privilege or scope, once for each way: all users first, then actors by urn."""
        listed = ("listPrivilegeHolders", "holders", PrivilegeHolder, "ListPrivilegeHoldersInput!")
        return self._list(*listed, page_size, key=("actor_urn", "policy_urn", "group_urn"), privilege=privilege)


class AsyncResources(AsyncNamespace):
    """Services whose gateways verify tokens for an audience of their own."""

    async def list(self) -> tuple[ResourceInfo, ...]:
        """List the resources that policy files declare."""
        return await self._send(ask_tuple("listResources", ResourceInfo))
