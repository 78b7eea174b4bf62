"""Actors: their status, profile and names. Changes take effect at the next request."""

from collections.abc import Awaitable, Collection
from dataclasses import dataclass

from watchword.access.actor_rules import ActorHoldings, ActorPage, ActorSearch, ActorState, Profile
from watchword.access.actor_store import ActorStore
from watchword.access.policy_service import MANAGE
from watchword.authority.callers import ActorStatus, Caller, Grant
from watchword.authority.privileges import Privilege
from watchword.authority.service import Authority
from watchword.basics.errors import Fault, Reason, invalid
from watchword.basics.names import NOTHING_STORED, ShownActor, is_account

SEE_ACTORS = (MANAGE, Privilege.MANAGE_ACCESS_TOKENS)


@dataclass(frozen=True, slots=True)
class Actors:
    _store: ActorStore
    _authority: Authority
    _root_actor: str

    def authorize(self, caller: Caller) -> Awaitable[Grant]:
        return self._authority.authorize(caller, MANAGE)

    def authorize_any(self, caller: Caller) -> Awaitable[Grant]:
        """For questions whose answer depends on the privileges, and needs none."""
        return self._authority.authorize(caller)

    def authorize_list(self, caller: Caller) -> Awaitable[Grant]:
        return self._authority.authorize(caller, *SEE_ACTORS)

    async def authorize_see(self, caller: Caller, actor: str) -> Grant:
        """Authorize what `listActors` shows of one actor: callers may see themselves."""
        return await self._authority.authorize(caller, *(() if actor == caller.actor else SEE_ACTORS))

    async def list(self, grant: Grant, search: ActorSearch, seconds: float) -> ActorPage:
        grant.expect(*SEE_ACTORS)
        return await self._store.known_actors(search, seconds)

    async def find(self, grant: Grant, urn: str) -> ActorState | None:
        """The status of a known actor; None if it is not known, or the caller may not see it. Callers may see
        themselves.
        """
        if urn != grant.caller.actor and not _may_see(grant):
            return None
        state = await self._store.actor_state(urn)
        known = state.changed_at is not None or (await self._store.actor_holdings(urn)).known
        return state if known else None

    async def search(
        self, grant: Grant, query: str, start: int, count: int, seconds: float
    ) -> tuple[int, tuple[str, ...]]:
        grant.expect(*SEE_ACTORS)
        return await self._store.find_actors(query, start, count, seconds)

    async def state(self, grant: Grant, urn: str) -> tuple[ActorState, ActorHoldings]:
        grant.expect(MANAGE)
        return await self._store.actor_state(urn), await self._store.actor_holdings(urn)

    async def set_status(self, grant: Grant, urn: str, status: ActorStatus) -> None:
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


def _may_see(grant: Grant) -> bool:
    return any(grant.may(privilege) for privilege in SEE_ACTORS)
