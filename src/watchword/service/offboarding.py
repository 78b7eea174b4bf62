"""Offboarding: an actor is suspended, its tokens are revoked, its sessions end, it leaves its groups.

Each step is a transaction of its own, the suspension first: from then on everything of the actor is refused, whatever
becomes of the rest. A step that was done before changes nothing, so an offboarding that failed midway is run again.
Policies that name the actor, and service accounts that it made, are only listed: they may be what others rely on.
"""

from collections.abc import Callable

from watchword.domain.actors import ActorStatus, Caller, Grant
from watchword.domain.bulk_revocation import Selection
from watchword.domain.errors import Fault, Reason, invalid
from watchword.domain.filters import Condition, Field, Filter, Search
from watchword.domain.offboarding import MAX_IDS, MAX_SHOWN, OffboardingPlan, OffboardingReceipt, RevokedTokens
from watchword.domain.policies import Privilege
from watchword.domain.ports import Store
from watchword.domain.tokens import TokenStatus
from watchword.service.authority import Authority
from watchword.service.bulk_revocation import Endings
from watchword.service.policies import Policies

NEEDED = (Privilege.MANAGE_POLICIES, Privilege.MANAGE_ACCESS_TOKENS, Privilege.MANAGE_SERVICE_ACCOUNTS)
"""What the steps need: status and groups, tokens, and to see service accounts."""
_LIVE = Filter(Field.STATUS, Condition.EQUAL, (TokenStatus.ACTIVE.value,))
_REVOKED = Filter(Field.STATUS, Condition.EQUAL, (TokenStatus.REVOKED.value,))


class Offboarding:
    def __init__(self, store: Store, authority: Authority, policies: Policies, endings: Endings) -> None:
        self._store = store
        self._authority = authority
        self._policies = policies
        self._endings = endings

    async def plan(self, caller: Caller, actor: Callable[[], str], seconds: float) -> OffboardingPlan:
        """What would be done. Nothing is looked up for a caller who lacks one of the privileges."""
        grant = await self._authority.grant(caller)
        for privilege in NEEDED:
            grant.require(privilege)
        urn = actor()
        self._policies.check_suspendable(urn)
        if urn == caller.actor:
            raise invalid("urn", "urn must not be the caller's own: it would be refused before the end.")
        search = self._store.search
        return OffboardingPlan(
            state=await self._store.actor_state(urn),
            holdings=await self._store.actor_holdings(urn),
            tokens=await search(Search(filters=(*_own(urn), _LIVE), count=MAX_SHOWN), seconds),
            minted=await search(Search(filters=(*_minted(urn), _LIVE), count=MAX_SHOWN), seconds),
            accounts=await self._store.accounts_of(urn, MAX_SHOWN),
            groups=(await self._store.snapshot(urn)).groups,
            policies=tuple(policy for policy in (await self._store.policies()).policies if urn in policy.users),
        )

    async def offboard(
        self, caller: Caller, plan: OffboardingPlan, *, revoke_minted: bool, seconds: float
    ) -> OffboardingReceipt:
        """Carry out a plan. What came after the plan was made is dealt with too, for it is looked for again."""
        urn = plan.state.urn
        await self._policies.set_actor_status(caller, lambda: urn, ActorStatus.SUSPENDED)
        tokens = await self._revoke(caller, _own(urn), seconds)
        minted = await self._revoke(caller, _minted(urn), seconds) if revoke_minted else None

        async def end_sessions(grant: Grant) -> int:
            grant.require(Privilege.MANAGE_POLICIES)
            return await self._store.end_sessions_of(grant.precondition, urn)

        sessions = await self._authority.authorize_and_write(caller, end_sessions)
        groups = (await self._store.snapshot(urn)).groups
        for group in groups:
            await self._leave(caller, group, urn)
        return OffboardingReceipt(tokens.receipt.revoked_at, tokens, minted, sessions, groups)

    async def _revoke(self, caller: Caller, filters: tuple[Filter, ...], seconds: float) -> RevokedTokens:
        receipt = await self._endings.end(caller, lambda: Selection(filters=filters), seconds)
        then = Filter(Field.REVOKED_AT, Condition.EQUAL, (receipt.revoked_at,))
        found = await self._store.search(Search(filters=(*filters, _REVOKED, then), count=MAX_IDS), seconds)
        return RevokedTokens(receipt, tuple(record.id for record in found.rows))

    async def _leave(self, caller: Caller, group: str, urn: str) -> None:
        try:
            await self._policies.change_members(caller, lambda: group, remove=lambda: (urn,))
        except Fault as fault:
            if fault.reason is not Reason.GROUP_NOT_FOUND:  # deleted meanwhile
                raise


def _own(urn: str) -> tuple[Filter, ...]:
    return (Filter(Field.ACTOR_URN, Condition.EQUAL, (urn,)),)


def _minted(urn: str) -> tuple[Filter, ...]:
    return (
        Filter(Field.OWNER_URN, Condition.EQUAL, (urn,)),
        Filter(Field.ACTOR_URN, Condition.EQUAL, (urn,), negated=True),
    )
