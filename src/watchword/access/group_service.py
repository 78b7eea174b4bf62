"""Groups and their members. Changes take effect at the next request."""

from collections.abc import Awaitable, Callable, Collection
from dataclasses import dataclass, replace

from watchword.access.actor_service import SEE_ACTORS
from watchword.access.group_rules import Group
from watchword.access.group_store import GroupStore
from watchword.access.policy_service import MANAGE, VIEW
from watchword.authority.callers import Caller, Grant
from watchword.authority.service import Authority
from watchword.basics.names import GROUP_PREFIX


@dataclass(frozen=True, slots=True)
class Groups:
    _store: GroupStore
    _authority: Authority
    _new_id: Callable[[], str]

    def authorize(self, caller: Caller) -> Awaitable[Grant]:
        return self._authority.authorize(caller, MANAGE)

    def authorize_view(self, caller: Caller) -> Awaitable[Grant]:
        return self._authority.authorize(caller, VIEW)

    async def authorize_see(self, caller: Caller, group: str) -> Grant:
        """Members may see the name of their group."""
        return await self._authority.authorize(caller, *(() if group in caller.snapshot.groups else (VIEW,)))

    async def create(self, grant: Grant, short_id: str | None, name: str, description: str | None) -> str:
        grant.expect(MANAGE)
        group = Group(GROUP_PREFIX + (short_id or self._new_id()), name, description)
        await self._authority.change(grant, self._store.add_group, group)
        return group.urn

    async def delete(self, grant: Grant, urn: str) -> None:
        grant.expect(MANAGE)
        await self._authority.change(grant, self._store.delete_group, urn)

    async def change_members(
        self, grant: Grant, group: str, *, add: Collection[str] = (), remove: Collection[str] = ()
    ) -> None:
        grant.expect(MANAGE)
        await self._authority.change(grant, self._store.change_members, group, add=add, remove=remove)

    async def get(self, grant: Grant, urn: str) -> Group:
        grant.expect(VIEW)
        return await self._store.get_group(urn)

    async def see(self, grant: Grant, urn: str) -> Group:
        """Return a group, also to its members, and also one of the identity provider."""
        if grant.required or urn not in grant.caller.snapshot.groups:
            grant.expect(VIEW)
        return _visible(grant, await self._store.get_group(urn, external=True))

    async def list(self, grant: Grant, start: int, count: int, query: str) -> tuple[int, tuple[Group, ...]]:
        grant.expect(VIEW)
        return await self._store.groups(start, count, query)

    async def members(self, grant: Grant, group: str, start: int, count: int) -> tuple[int, tuple[str, ...]]:
        grant.expect(VIEW)
        return await self._store.members(group, start, count)

    async def of(
        self, grant: Grant, actor: str, start: int, count: int, *, external: bool
    ) -> tuple[int, tuple[Group, ...]]:
        grant.expect(*(() if actor == grant.caller.actor else SEE_ACTORS))
        total, groups = await self._store.groups_of(actor, start, count, external=external)
        return total, tuple(_visible(grant, group) for group in groups)


def _visible(grant: Grant, group: Group) -> Group:
    """Members of a group see neither how many they are nor which policy set declares it."""
    return group if grant.may(VIEW) else replace(group, members=None, set_name=None)
